"""Stored: what a store tells without being changed by it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from posterity import _markup, checks, worth
from posterity.classes import Classes
from posterity.engine import explaining, publishing, queues, reading, trusting
from posterity.engine.context import Context
from posterity.engine.explanations import Explanation
from posterity.engine.reports import percent, shown
from posterity.engine.steps import Header
from posterity.executors import Executor, open_executor
from posterity.expectations import Estimate
from posterity.report.steps import steps_view
from posterity.report.summary import Summary, summary
from posterity.tables.files import open_files

SHOWN = 5
"""Steps a notebook shows."""


class Stored:
    """A store to be read; ``Store`` is one that can be changed too."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: dict[str, str] | None = None,
        executor: Executor | str | None = None,
    ) -> None:
        """``executor``: where shards are worked on, ``"local"`` or ``"ray"``; see ``executors``."""
        self.path = os.fspath(path)
        self.options = options
        self.executor = open_executor(executor)
        self._context()

    def _context(self, *, writing: bool = False) -> Context:
        context = Context(open_files(self.path, self.options), self.executor)
        if writing:
            context.raise_format()
        return context

    @property
    def classes(self) -> Classes:
        """The classes."""
        return self._context().classes

    @property
    def id_type(self) -> type | None:
        """``str`` or ``int``; None while there are no items."""
        kind = self._context().id_kind
        return None if kind is None else int if pa.types.is_integer(kind) else str

    def __len__(self) -> int:
        return self._context().there

    def labels(self, *, since: int | None = None) -> pa.Table:
        """Current labels by row: id, row, label, belief, step of the last change.

        ``since``: only what changed after that step (−1: ever), reverts included, as changes: id,
        row, old and new label, belief, step, reason.
        """
        context = self._context()
        return publishing.all_labels(context) if since is None else reading.changes(context, since)

    def beliefs(self, ids: Any = None, *, top: int = 3) -> pa.Table:
        """The most believed classes of items (all by default) and the beliefs in them."""
        return reading.beliefs(self._context(), ids, top=top)

    def flips(self, step: int | None = None) -> pa.Table:
        """The labels a step (by default the last) changed, as changes, by row."""
        return reading.flips(self._context(), step)

    def history(self, id: str | int) -> list[dict[str, Any]]:  # noqa: A002 the user's word
        """What happened to one item: a row per step that touched it."""
        return reading.history(self._context(), id)

    def explain(self, id: str | int) -> Explanation:  # noqa: A002 the user's word
        """Why an item's label moved or did not, and what would change it; print it."""
        return explaining.explain(self._context(), id)

    def log(self) -> list[Header]:
        """The steps, in order."""
        return self._context().headers

    def status(self) -> dict[str, Any]:
        """The store at a glance."""
        return reading.status(self._context(), self.path)

    def reliability(self) -> trusting.Trusted:
        """Of labels believed so much, how many are right: on the labelled set."""
        return trusting.trusted(self._context())

    def summary(
        self, step: int | None = None, *, pictures: str | os.PathLike[str] | None = None
    ) -> Summary:
        """The store, or what one step changed and how far that can be trusted, as a report.

        Print it, or take ``to_html()``, ``to_markdown()``, ``to_dict()``. ``pictures``: the folder
        where relative paths of pictures in a payload begin; None: no picture is read.
        """
        where = None if pictures is None else Path(pictures)
        return summary(self._context(), self.path, step=step, pictures=where)

    def check(self) -> list[str]:
        """What is wrong with the store; an empty list if nothing is."""
        return checks.check(self._context())

    def review_queue(
        self,
        count: int = queues.NEXT,
        *,
        order: str = worth.WORTH,
        where: str | None = None,
    ) -> queues.Queue:
        """The next items to ask a person about, by what an answer is worth.

        ``order``: ``worth``, ``entropy`` or ``random[:SEED]``; ``where``: only items whose payload
        satisfies this.
        """
        return queues.queue(self._context(), count=count, order=order, where=where)

    def review_items(self, queue: queues.Queue) -> pa.Table:
        """The items of a queue with their payload and an empty column for answers."""
        return queues.items_of(self._context(), queue)

    def _repr_html_(self) -> str:
        """As notebooks show it: at a glance, and the last steps."""
        context = self._context()
        told = reading.status(context, self.path)
        accuracy = told["expected_accuracy"]
        figures = {
            "items": f"{told['items']:,}",
            "classes": f"{told['classes']:,}",
            "models": f"{len(told['models']):,}",
            "step": f"{told['step']}",
            "expected accuracy": "–" if accuracy is None else percent(Estimate(**accuracy)),
            "pending flips": f"{told['pending']:,}",
        }
        last = [
            {
                "step": step["step"],
                "what": step["what"],
                "evaluations": step["evaluations"],
                "flips": step["flips"],
                "fixed": "–" if step["fixed"] is None else shown(Estimate(**step["fixed"])),
                "broken": "–" if step["broke"] is None else shown(Estimate(**step["broke"])),
            }
            for step in steps_view(context)[-SHOWN:]
        ]
        return _markup.page(f"Store {self._name}", figures, _markup.table(last))

    @property
    def _name(self) -> str:
        return self.path if "://" in self.path else Path(self.path).name

    def __repr__(self) -> str:
        told = self.status()
        return f"Store({self._name}: {told['items']:,} items, step {told['step']})"
