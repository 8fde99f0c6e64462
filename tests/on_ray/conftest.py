"""A Ray cluster of three nodes on this machine, for all tests here."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest

NODES = 3


class Nodes:
    """The cluster: its nodes have one CPU each, and two that count as graphics cards."""

    def __init__(self) -> None:
        import ray
        from ray.cluster_utils import Cluster

        # Losses are noticed within a second or two instead of half a minute.
        settings = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
        self._cluster: Any = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "include_dashboard": False,
                "object_store_memory": 100 * 2**20,
                "_system_config": settings,
            },
        )
        self.whole()
        ray.init(address=self._cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        self.address: str = self._cluster.address

    def whole(self) -> None:
        """Put nodes in the place of those that tests have killed."""
        for node in list(self._cluster.worker_nodes):
            if not node.any_processes_alive() or node.dead_processes():
                self._cluster.remove_node(node, allow_graceful=False)
        while len(self._cluster.list_all_nodes()) < NODES:
            self._cluster.add_node(
                num_cpus=1, num_gpus=1, object_store_memory=100 * 2**20, wait=True
            )

    def lose_one(self) -> None:
        """Kill a node, but not the driver's."""
        self._cluster.remove_node(self._cluster.worker_nodes.copy().pop(), allow_graceful=False)

    def close(self) -> None:
        """Stop everything."""
        import ray

        ray.shutdown()
        self._cluster.shutdown()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Nodes]:
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    nodes = Nodes()
    yield nodes
    nodes.close()


@pytest.fixture
def nodes(cluster: Nodes) -> Nodes:
    """All of them alive."""
    cluster.whole()
    return cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ray leaves sockets and processes to be collected, which is no fault of ours."""
    for item in items:
        if "on_ray" in item.nodeid:
            for kind in ("ResourceWarning", "FutureWarning", "DeprecationWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )
