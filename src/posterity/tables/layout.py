"""The tables of a store, their schemas, and the one small file that says what it is."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from posterity.errors import StoreError
from posterity.tables.delta import Table
from posterity.tables.files import Files

FORMAT = 5
"""Raised when a store written by this version could not be read by the one before.

A store of an older format is read as it is, and brought to this one by the first change made to
it: columns are added, nothing is rewritten.
"""

DESCRIPTION = "posterity.json"
SHARD_ROWS = 2**22
HEADER_SHARD = -1
"""The partition of the ledger that holds one header row a step."""

CLASSES = pa.schema(
    [
        ("code", pa.int32()),
        ("name", pa.string()),
        ("kind", pa.string()),
        ("weight", pa.float64()),
    ]
)
MODELS = pa.schema(
    [
        ("name", pa.string()),
        ("arrival", pa.int32()),
        ("settings", pa.string()),
        ("vote", pa.list_(pa.int32())),
        ("truth", pa.list_(pa.int32())),
        ("count", pa.list_(pa.int64())),
        ("probability", pa.list_(pa.float64())),
    ]
)
LABELLED = pa.schema(
    [
        ("model", pa.string()),
        ("digest", pa.string()),
        ("key", pa.string()),
        ("truth", pa.int32()),
        ("vote", pa.int32()),
        ("soft_classes", pa.list_(pa.int32())),
        ("soft_weights", pa.list_(pa.float32())),
    ]
)
WEIGHT = "weight"
WEIGHED = LABELLED.append(pa.field(WEIGHT, pa.float64()))
"""Of stores with a model whose labelled items have weights."""
LEDGER = pa.schema(
    [
        ("shard", pa.int32()),
        ("row", pa.int64()),
        ("step", pa.int32()),
        ("vote", pa.int32()),
        ("soft_classes", pa.list_(pa.int32())),
        ("soft_weights", pa.list_(pa.float32())),
        ("label", pa.int32()),
        ("belief", pa.float32()),
        ("entropy", pa.float64()),
        ("proposed", pa.int32()),
        ("belief_proposed", pa.float32()),
        ("header", pa.string()),
    ]
)
REMOVED = pa.schema([("row", pa.int64())])


@dataclass(frozen=True)
class Description:
    """What a store is: written when it is created, and when its format is raised."""

    store: str = field(default_factory=lambda: uuid.uuid4().hex)
    format: int = FORMAT
    shard_rows: int = SHARD_ROWS
    beliefs: str = "plain"
    confusion: str = "full"
    prior: list[float] | str | None = None
    """None: uniform; ``given``: the weights in the table of classes; ``labelled``: the class
    frequencies of the labelled set; ``estimated``: those the items' votes tell of; a list:
    weights, as format 1 kept them."""
    adapt: list[str] | None = None
    """What of the items beliefs follow, see ``adapting``; None: the default."""
    classes: int | None = None
    """How many there were at first; None in format 1, where none can be appended."""
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def to_json(self) -> bytes:
        """As it is stored."""
        told = asdict(self)
        if self.adapt is None:
            del told["adapt"]  # as versions wrote it that knew of no other
        return json.dumps(told, indent=1).encode()

    @classmethod
    def read(cls, files: Files) -> Description:
        """Refuses what this version does not understand, before anything else is read."""
        if files.size(DESCRIPTION) is None:
            raise StoreError(
                f"There is no store at '{files.root}'.", hint="Make one with `posterity init`."
            )
        try:
            stored: dict[str, Any] = json.loads(files.read(DESCRIPTION).to_pybytes())
            version = int(stored["format"])
        except (ValueError, KeyError, TypeError):
            raise StoreError(f"'{files.root}/{DESCRIPTION}' is damaged.") from None
        if version > FORMAT:
            raise StoreError(
                f"The store at '{files.root}' has format {version}; this version knows {FORMAT}.",
                hint="Update Posterity.",
            )
        return cls(**stored)


@dataclass(frozen=True)
class Layout:
    """Every table of a store."""

    files: Files

    @property
    def classes(self) -> Table:
        """One row per class."""
        return Table(self.files, "classes", CLASSES)

    def items(self, schema: pa.Schema | None = None) -> Table:
        """One row per item; its payload columns are those of the first items added."""
        return Table(self.files, "items", schema or pa.schema([]), "shard")

    @property
    def removed(self) -> Table:
        """Tombstones of removed items."""
        return Table(self.files, "removed", REMOVED)

    @property
    def models(self) -> Table:
        """One row per model."""
        return Table(self.files, "models", MODELS)

    @property
    def labelled(self) -> Table:
        """One row per model and labelled item; visible through ``models``."""
        return Table(self.files, "labelled", LABELLED)

    @property
    def weighed(self) -> Table:
        """The same with weights, which it has from the first model on that came with any."""
        return Table(self.files, "labelled", WEIGHED)

    @property
    def ledger(self) -> Table:
        """One row per item a step touched, and one header row per step."""
        return Table(self.files, "ledger", LEDGER, "shard")

    @property
    def fixed(self) -> list[Table]:
        """The tables every store has from the start."""
        return [self.classes, self.models, self.labelled, self.ledger, self.removed]

    @property
    def labels(self) -> Table:
        """Derived: the current label of each item, for readers without us."""
        return Table(self.files, "labels", pa.schema([]), "shard")
