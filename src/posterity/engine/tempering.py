"""Tempering: how soft votes of a store's models are to be read, learnt on labelled ones."""

from __future__ import annotations

from collections.abc import Sequence

from posterity import temperatures
from posterity.engine.context import Context
from posterity.engine.registering import labelled_rows
from posterity.tables import softvotes
from posterity.temperatures import Temperature


def temperatures_of(context: Context, models: Sequence[str]) -> dict[str, Temperature]:
    """Of the models that have labelled soft votes; those of the others count as they are."""
    found = {}
    for name in models:
        own = labelled_rows(context, context.models[name])
        soft = softvotes.from_columns(own, own.column("vote").to_numpy())
        if soft is not None:
            truth = own.column("truth").to_numpy()
            found[name] = temperatures.fit(soft, truth, classes=len(context.classes))
    return found
