"""An S3-compatible server on loopback, in a process of its own: a client here holds the GIL."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def serving_s3(bucket: str) -> Iterator[dict[str, str]]:
    """The options of a server with one bucket, which is empty."""
    import boto3

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as server:
        try:
            for _ in range(200):
                with socket.socket() as trial:
                    if trial.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            options = {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "AWS_REGION": "us-east-1",
                "AWS_ALLOW_HTTP": "true",
            }
            client = boto3.client(
                "s3",
                endpoint_url=options["AWS_ENDPOINT_URL"],
                aws_access_key_id="test",
                aws_secret_access_key="test",
                region_name="us-east-1",
            )
            client.create_bucket(Bucket=bucket)
            client.close()
            yield options
        finally:
            server.terminate()
