"""A step at sizes nobody has here, estimated from measurements: time, bytes, what breaks first.

Every figure is a measured constant times a size, or one of the assumptions below. It is a model: it
tells what matters at which size, not how long a step will take to the minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SIZES = (10**9, 10**10)
MACHINES = (1, 10, 100)
CORES = 16
"""Of a machine, like those measured on."""
NETWORK = 1e9
"""Bytes a second between a machine and the object store, or the driver."""
REQUEST = 0.02
"""Seconds of one request to an object store; a driver makes some one after the other."""
SHARD = 2**22
SHARE = 0.1
"""Of the items, evaluated."""
HISTOGRAM = 8 * 2**20
"""Bytes a shard sends of a digit of 22 bits: one or two a value, where rows differ in all."""


@dataclass(frozen=True)
class Constants:
    """What was measured, a core and an item, or a core and an evaluation."""

    score: float
    """Core-seconds an item: votes read, beliefs formed, what a vote could change."""
    look: float
    """Core-seconds an item and pass of the selection."""
    passes: int
    fold: float
    """Core-seconds an evaluation."""
    publish: float
    """Core-seconds an item."""
    driver: float
    """Seconds of the driver by itself: fits, rehearsal, commits."""
    task: float
    """Seconds a task that does nothing takes, from the driver and back."""
    ledger: float
    """Bytes an item."""
    ids: float
    """Bytes an item."""
    labels: float
    """Bytes an item of the published table."""

    @classmethod
    def of(cls, told: dict[str, Any], stages: dict[str, float], cores: int) -> Constants:
        """From the stages of steps on this machine alone, which have all its cores."""
        items, votes = told["items"], told["evaluations"]
        passes = sum(1 for lap in told["laps"] if lap["name"] in ("count_digits", "before"))

        def each(name: str, among: int) -> float:
            return stages.get(name, 0.0) * cores / among

        looked = each("count_digits", items) + each("before", items)
        return cls(
            score=each("values_of", items),
            look=looked / max(1, passes),
            passes=passes,
            fold=each("fold", votes),
            publish=each("write", items),
            driver=stages["the driver itself"],
            task=told["task"],
            ledger=told["bytes"]["ledger"] / items,
            ids=told["bytes"]["items"] / items,
            labels=told["bytes"]["labels"] / items,
        )


@dataclass(frozen=True)
class Estimated:
    """A step of some size on some machines."""

    items: int
    machines: int
    compute: float
    """Seconds of all cores together."""
    moving: float
    """Seconds of all networks together."""
    driver: float
    """Seconds of the driver, which is one."""
    read: float
    written: float
    """Bytes."""
    memory: float
    """Bytes the driver holds for rows."""

    @property
    def seconds(self) -> float:
        """Reading goes on while cores work; the driver's own part does not."""
        return max(self.compute, self.moving) + self.driver


def estimate(known: Constants, items: int, machines: int) -> Estimated:
    """The bookkeeping of one step: plan, fold, publish; the model itself is not in it."""
    shards, passes = -(-items // SHARD), known.passes + 2  # as a driver of a cluster looks
    cpu = items * (known.score + known.look * passes + known.publish) + SHARE * items * known.fold
    # Values, sample and fold read the ledger; passes read the node's own cache after the first.
    read = items * (3 * known.ledger + known.ids)
    written = items * (SHARE * known.ledger + known.labels) + items / 8
    tasks = shards * (passes + 5)
    serial = known.driver + tasks * known.task + 3 * shards * REQUEST
    serial += passes * shards * HISTOGRAM / NETWORK
    return Estimated(
        items,
        machines,
        compute=cpu / min(CORES * machines, shards),  # a task is a shard, and has one core
        moving=(read + written) / (NETWORK * min(machines, shards)),
        driver=serial,
        read=read,
        written=written,
        memory=2 * items / 8,
    )


def table(known: Constants) -> str:
    """As Markdown, with what is assumed."""
    rows = []
    for items in SIZES:
        for machines in MACHINES:
            one = estimate(known, items, machines)
            rows.append(
                f"| 10{'⁹' if items == 10**9 else '¹⁰'} | {machines} | {_time(one.compute)} "
                f"| {_time(one.moving)} | {_time(one.driver)} | **{_time(one.seconds)}** "
                f"| {one.read / 1e9:,.0f} GB | {one.written / 1e9:,.0f} GB "
                f"| {one.memory / 2**30:.1f} GiB |"
            )
    whole = known.score + known.publish + known.look * (known.passes + 2) + SHARE * known.fold
    shares = {
        "what a vote could change": known.score,
        "passes of the selection": known.look * (known.passes + 2),
        "fold and decide": SHARE * known.fold,
        "publish": known.publish,
    }
    where = ", ".join(f"{name} {100 * part / whole:.0f} %" for name, part in shares.items())
    on_cluster = known.passes + 2
    return f"""Measured on this machine alone, a core: {1e6 * known.score:.2f} µs an item to see
what a vote could change, {1e6 * known.look:.2f} µs an item and pass of the selection
({known.passes} passes here, {on_cluster} on a cluster, whose driver holds fewer candidates),
{1e6 * known.fold:.2f} µs an evaluation to fold and decide, {1e6 * known.publish:.2f} µs an item to
publish; {known.driver:.1f} s of the driver by itself, {1000 * known.task:.1f} ms a task. Bytes an
item: ledger {known.ledger:.1f}, items {known.ids:.1f} (their ids are numbers in a row, which take
no room), published labels {known.labels:.1f}.

Assumed: machines of {CORES} such cores, {NETWORK / 1e9:g} GB/s to the object store from each and
into the driver, {1000 * REQUEST:g} ms a request, shards of {SHARD:,} rows, {100 * SHARE:g} %
evaluated. The model's own time is not in it: a model that takes a millisecond an item needs
{10**9 * SHARE * 1e-3 / 3600:.0f} replica-hours for a tenth of 10⁹.

| items | machines | cores | networks | driver | a step | read | written | rows, in the driver |
|---:|---:|---:|---:|---:|---:|---:|---:|---:|
{chr(10).join(rows)}

Of the cores' time: {where}.
"""


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 600 else f"{seconds / 60:,.0f} min"
