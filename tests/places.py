"""Where the stores of a test live: in a folder, or on an S3 server whose answers get lost."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from posterity.storage.files import Files, open_files
from tests.proxy import losing
from tests.s3 import serving_s3

BUCKET = "killed"


class Place(Protocol):
    """What differs between places."""

    @property
    def environment(self) -> dict[str, str]:
        """What a command needs to reach its store."""

    def copied(self, prepared: Path) -> str:
        """The address of a new copy of a store, or of nothing at all."""

    def local(self, store: str) -> Path:
        """The store as a folder that can be read now."""

    def drop(self, store: str) -> None:
        """Remove a store."""


@dataclass(frozen=True)
class Folder:
    """Stores on this machine."""

    scratch: Path
    environment: dict[str, str]

    def copied(self, prepared: Path) -> str:
        path = self.scratch / f"store-{uuid.uuid4().hex[:12]}"
        if prepared.exists():
            shutil.copytree(prepared, path)
        return str(path)

    def local(self, store: str) -> Path:
        return Path(store)

    def drop(self, store: str) -> None:
        shutil.rmtree(store, ignore_errors=True)


@dataclass(frozen=True)
class Bucket:
    """Stores on an S3 server. Commands reach it through the proxy, the test itself directly."""

    scratch: Path
    environment: dict[str, str]
    files: Files

    def copied(self, prepared: Path) -> str:
        prefix = uuid.uuid4().hex[:12]
        for path in sorted(prepared.rglob("*")):
            if path.is_file():
                self.files.write(f"{prefix}/{path.relative_to(prepared)}", path.read_bytes())
        return f"s3://{BUCKET}/{prefix}"

    def local(self, store: str) -> Path:
        prefix = store.removeprefix(f"s3://{BUCKET}/")
        folder = self.scratch / f"local-{prefix}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for key in self.files.list(prefix):
            path = folder / key.removeprefix(f"{prefix}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.files.read(key))
        return folder

    def drop(self, store: str) -> None:
        """The server is soon gone; what was fetched from it is not."""
        shutil.rmtree(self.scratch / f"local-{store.rsplit('/', 1)[1]}", ignore_errors=True)


@contextmanager
def bucket(scratch: Path, environment: dict[str, str], *, one_in: int = 20) -> Iterator[Bucket]:
    """A server with a bucket, behind a proxy that loses one answer in so many."""
    with serving_s3(BUCKET) as direct, losing(direct, one_in=one_in) as proxy:
        files = open_files(f"s3://{BUCKET}", direct)
        yield Bucket(scratch, environment | proxy.options, files)
