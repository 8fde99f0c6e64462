"""The tables of a store, their schemas, and the one small file that says what it is."""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from posterity.errors import StoreError
from posterity.storage.delta.table import Table
from posterity.storage.files import Files

FORMAT = 1
"""Until the first release it may change without a way to upgrade; any other is refused."""

DESCRIPTION = "posterity.json"
RETENTION_HOURS = 168
"""Files that nothing refers to are kept so long by default."""
SHARD_ROWS = 2**22
MOST_SHARD_ROWS = 2**40
"""Shards are numbered with 32 bits, and rows with 64."""
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
WEIGHT = "weight"
LABELLED = pa.schema(
    [
        ("model", pa.string()),
        ("digest", pa.string()),
        ("key", pa.string()),
        ("truth", pa.int32()),
        ("vote", pa.int32()),
        ("soft_classes", pa.list_(pa.int32())),
        ("soft_weights", pa.list_(pa.float32())),
        (WEIGHT, pa.float64()),
    ]
)
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


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a store is: written when it is created."""

    store: str = field(default_factory=lambda: uuid.uuid4().hex)
    format: int = FORMAT
    shard_rows: int = SHARD_ROWS
    beliefs: str
    confusion: str
    prior: str | None
    """None: uniform; ``given``: the weights in the table of classes; ``labelled``: the class
    frequencies of the labelled set; ``estimated``: those estimated from the items' votes."""
    adapt: list[str]
    """What of the items beliefs follow, see ``adapt``."""
    refuse_unlike: bool = False
    """Whether updates refuse steps whose items look unlike the labelled set, if nobody says so."""
    classes: int
    """How many there were at first."""
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def to_json(self) -> bytes:
        """As it is stored."""
        return json.dumps(asdict(self), indent=1).encode()

    @classmethod
    def read(cls, files: Files) -> Description:
        """Refuses what this version does not understand, before anything else is read."""
        found = cls.find(files)
        if found is None:
            raise StoreError(
                f"There is no store at '{files.root}'.",
                hint="Make one with `Store.create(path, ...)`.",
            )
        return found

    @classmethod
    def find(cls, files: Files) -> Description | None:
        """That of the store that is there; None if there is none."""
        if files.size(DESCRIPTION) is not None:
            text = files.read(DESCRIPTION).to_pybytes()
        else:
            classes = Layout(files).classes
            text = classes.head().description.encode() if classes.exists() else b""
            if not text:
                return None
            with suppress(StoreError):  # whoever made it was cut short before this; now or later
                files.write(DESCRIPTION, text)
        try:
            stored: dict[str, Any] = json.loads(text)
            version = int(stored["format"])
            if version == FORMAT:
                return cls(**stored)
        except (ValueError, KeyError, TypeError):
            raise StoreError(f"'{files.root}/{DESCRIPTION}' is damaged.") from None
        raise StoreError(
            f"The store at '{files.root}' has format {version}; this version reads only {FORMAT}.",
            hint="Use the version that made it.",
        )


class Layout:
    """Every table of a store."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.classes = Table(files, "classes", CLASSES)
        """One row per class."""
        self.removed = Table(files, "removed", REMOVED)
        """Tombstones of removed items."""
        self.models = Table(files, "models", MODELS)
        """One row per model."""
        self.labelled = Table(files, "labelled", LABELLED)
        """One row per model and labelled item; visible through ``models``."""
        self.ledger = Table(files, "ledger", LEDGER, "shard")
        """One row per item a step touched, and one header row per step."""
        self.fixed = [self.classes, self.models, self.labelled, self.ledger, self.removed]
        """The tables every store has from the start."""

    def items(self, schema: pa.Schema | None = None) -> Table:
        """One row per item; its payload columns are those of the first items added."""
        return Table(self.files, "items", schema or pa.schema([]), "shard")

    def labels(self, schema: pa.Schema | None = None) -> Table:
        """Derived: the current label of each item, for readers without us."""
        return Table(self.files, "labels", schema or pa.schema([]), "shard")
