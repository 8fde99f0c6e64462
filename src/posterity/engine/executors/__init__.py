"""Executors: where the work on shards is done, on this machine or on a Ray cluster.

    open_executor("local")               here, one shard after the other
    open_executor("ray")                 the cluster this machine belongs to
    open_executor("ray://head:6379")     the same by its address, where there are several
    open_executor("ray://local")         one of this machine alone, started for the occasion

The engine says what is done with a shard; an executor only where and when. So results are the same
with any of them, to the last bit.
"""

from __future__ import annotations

from posterity.engine.executors.local import LOCAL, Local
from posterity.engine.executors.protocol import Executor, Lost, Pool, Replicas
from posterity.errors import UnknownName

__all__ = ["LOCAL", "Executor", "Local", "Lost", "Pool", "Replicas", "open_executor"]


def open_executor(given: Executor | str | None) -> Executor:
    """An executor by name; one that is made already stays as it is.

    >>> open_executor("local")
    Local()
    """
    if given is None:
        return LOCAL
    if not isinstance(given, str):
        return given
    if given == "local":
        return LOCAL
    if given == "ray" or given.startswith("ray://"):
        # Here, and not above: whoever works on one machine has no need of Ray.
        from posterity.engine.executors.on_ray import OnRay

        return OnRay.connect(given)
    raise UnknownName.among("executor", given, ["local", "ray", "ray://local", "ray://HOST:PORT"])
