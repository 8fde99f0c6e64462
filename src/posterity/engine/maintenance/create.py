"""Create: a store comes into being with one commit, that of its classes.

The other tables are empty whatever the store is for, and may have been left behind by an attempt
that was cut short. The commit that makes the classes says what the store is, so that of two
processes one makes it, and whoever opens it can finish what the other did not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from posterity.engine.ledger.commit import discarded, retried
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidParameter, StoreError
from posterity.method.beliefs import priors
from posterity.method.data.classes import Classes
from posterity.storage.delta.schema import CLASSES, DESCRIPTION, Description, Layout
from posterity.storage.files import Files, open_files

MANY = 10_000
"""Files that are looked at: an attempt leaves a few, a whole disk has millions."""


def create(
    files: Files, classes: Classes, weights: Sequence[float] | None, description: Description
) -> bool:
    """Make a store; False if there is one already that was made with the same settings."""
    layout, rows = Layout(files), class_table(classes, weights)
    if Description.find(files) is None:
        _refuse_others_files(files, layout)
        for table in layout.fixed:
            if table.name != layout.classes.name:
                table.create()
        file = layout.classes.write(rows, label="classes")
        told = description.to_json()
        fence = (NUMBER, len(classes))
        if layout.classes.create_with([file], told.decode(), fences=[fence]):
            files.write(DESCRIPTION, told)
            return True
        files.delete(f"{layout.classes.name}/{file.path}")
    found = Description.read(files)
    table = layout.classes.head().read().sort_by("code").slice(0, found.classes)
    given, kept = asdict(description), asdict(found)
    differ = [
        name
        for name in ("beliefs", "confusion", "prior", "adapt", "refuse_unlike", "shard_rows")
        if given[name] != kept[name]
    ]
    if not table.equals(rows.cast(table.schema)):
        differ.insert(0, "classes")
    if differ:
        raise StoreError(
            f"There is a store at '{files.root}' already, made with other settings: "
            f"{', '.join(differ)}.",
            hint="Use that store, or make this one elsewhere.",
        )
    return False


def is_store(path: str) -> bool:
    """Whether there is a store, whole or begun by a call that was cut short."""
    return Description.find(open_files(path)) is not None


def _refuse_others_files(files: Files, layout: Layout) -> None:
    """What an attempt that was cut short has left is ours; anything else is not."""
    own = (DESCRIPTION, *(f"{table.name}/" for table in layout.fixed))
    foreign = [path for path in files.some(MANY) if not path.startswith(own)]
    if foreign:
        raise StoreError(
            f"'{files.root}' is not empty; a store needs a place of its own.",
            hint=f"It holds '{foreign[0]}'.",
        )


NUMBER = "posterity.classes"


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
    return retried(context, lambda now: _append(now, names, weights))


def _append(context: Context, names: Sequence[Any], weights: Mapping[Any, float] | None) -> Classes:
    there = set(context.classes.names)
    if all(name in there for name in names) and len(set(names)) == len(names):
        return context.classes  # done already, perhaps by a call that was cut short
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
    table = context.class_table
    rows = class_table(extended, listed, len(context.classes))
    written = table.table.write(rows, label="classes")
    with discarded(table.table, [written]):
        table.commit([written], fences=[(NUMBER, len(extended))])
    return extended
