"""Extend: classes that appear later. They are appended; the codes of the old ones stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from posterity import priors
from posterity.classes import Classes
from posterity.engine.context import Context
from posterity.errors import CommitConflict, InvalidParameter
from posterity.tables.files import Files
from posterity.tables.layout import CLASSES, Layout

NUMBER = "posterity.classes"


def make_tables(files: Files, classes: Classes, weights: Sequence[float] | None) -> None:
    """The tables every store has, with its first classes."""
    layout = Layout(files)
    for table in layout.fixed:
        table.create()
    rows = class_table(classes, weights)
    layout.classes.head().commit([layout.classes.write(rows, label="classes")])


def class_table(classes: Classes, weights: Sequence[float] | None, start: int = 0) -> pa.Table:
    """Classes from one code on as rows of their table."""
    names = classes.names[start:]
    count = len(names)
    rows = {
        "code": list(range(start, start + count)),
        "name": [str(name) for name in names],
        "kind": [classes.kind.__name__] * count,
        "weight": list(weights) if weights is not None else [None] * count,
    }
    return pa.table(rows, schema=CLASSES)


def append_classes(
    context: Context, names: Sequence[Any], weights: Mapping[Any, float] | None = None
) -> Classes:
    """Make classes known; no vote, label or belief that exists changes."""
    if not names:
        raise InvalidParameter.of("names", "at least one class to append", list(names))
    extended = context.classes.extend(names)
    new = extended.names[len(context.classes) :]
    weighted = context.description.prior not in (None, *priors.NAMES)
    if weighted != (weights is not None):
        raise InvalidParameter(
            f"The store's prior gives each class a weight; say those of {list(new)} too."
            if weighted
            else "The store's prior has no weights; leave out those of the new classes."
        )
    listed = None
    if weights is not None:
        if set(weights) != set(new):
            raise InvalidParameter.of("weights", f"one for each of {list(new)}", dict(weights))
        listed = [float(weights[name]) for name in new]
        priors.given([1.0, *listed], classes=len(listed) + 1)
    table = context.layout.classes
    written = table.write(class_table(extended, listed, len(context.classes)), label="classes")
    snapshot = table.head()
    if snapshot.read(["code"]).num_rows != len(context.classes):
        raise CommitConflict(
            "Somebody else appended classes in the meantime.",
            hint="Nothing was changed; run it again.",
        )
    snapshot.commit([written], fences=[(NUMBER, len(extended))])
    return extended
