"""Reader: what a store tells without being changed by it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from posterity import _text
from posterity._text import percent, shown
from posterity.engine.executors import Executor, open_executor
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.steps import Header
from posterity.engine.steps import NEXT, WORTH
from posterity.method.data.classes import Classes
from posterity.storage.files import open_files

if TYPE_CHECKING:
    from posterity.engine.evaluation.durable_votes import OpenRun
    from posterity.engine.inspect.explanation import Explanation
    from posterity.engine.inspect.reliability import Trusted
    from posterity.engine.steps.review_queue import Queue

SHOWN = 5
"""Steps a notebook shows."""


class StoreReader:
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

    def _context(self) -> Context:
        return Context(open_files(self.path, self.options), self.executor)

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
        from posterity.engine.inspect import queries
        from posterity.engine.ledger.publish import labels_by_shard

        context = self._context()
        if since is None:
            return labels_by_shard(context).table()
        return queries.changes_by_shard(context, since).table()

    def beliefs(self, ids: Any = None, *, top: int = 3) -> pa.Table:
        """The most believed classes of items (all by default) and the beliefs in them."""
        from posterity.engine.inspect import queries

        return queries.beliefs(self._context(), ids, top=top)

    def flips(self, step: int | None = None) -> pa.Table:
        """The labels a step (by default the last) changed, as changes, by row."""
        from posterity.engine.inspect import queries

        return queries.flips_by_shard(self._context(), step).table()

    def history(self, id: str | int) -> list[dict[str, Any]]:  # noqa: A002 the user's word
        """What happened to one item: a row per step that touched it."""
        from posterity.engine.inspect import queries

        return queries.history(self._context(), id)

    def explain(self, id: str | int) -> Explanation:  # noqa: A002 the user's word
        """Why an item's label moved or did not, and what would change it; print it."""
        from posterity.engine.inspect.explain import explain

        return explain(self._context(), id)

    def log(self) -> list[Header]:
        """The steps, in order."""
        return self._context().headers

    def status(self) -> dict[str, Any]:
        """The store at a glance."""
        from posterity.engine.inspect import queries

        return queries.status(self._context(), self.path)

    def reliability(self) -> Trusted:
        """Of labels believed so much, how many are right: on the labelled set."""
        from posterity.engine.inspect.reliability import trusted

        return trusted(self._context())

    def check(self) -> list[str]:
        """What is wrong with the store; an empty list if nothing is."""
        from posterity.engine.maintenance.check import check

        return check(self._context())

    def runs(self) -> list[OpenRun]:
        """Plans and runs that are not a step yet."""
        from posterity.engine.evaluation.durable_votes import open_runs

        return open_runs(self._context())

    def review_queue(
        self,
        count: int = NEXT,
        *,
        order: str = WORTH,
        where: str | None = None,
    ) -> Queue:
        """The next items to ask a person about: without a label, then by what an answer is worth.

        ``order``: ``worth``, ``entropy`` or ``random[:SEED]``; ``where``: only items whose payload
        satisfies this.
        """
        from posterity.engine.steps.review_queue import queue

        return queue(self._context(), count=count, order=order, where=where)

    def review_items(self, queue: Queue) -> pa.Table:
        """The items of a queue with their payload and an empty column for answers."""
        from posterity.engine.steps.review_queue import items_of

        return items_of(self._context(), queue)

    def review_batches(self, queue: Queue) -> Iterator[pa.Table]:
        """By batches."""
        from posterity.engine.steps.review_queue import item_batches

        return item_batches(self._context(), queue)

    def _repr_html_(self) -> str:
        """As notebooks show it: at a glance, and the last steps."""
        from posterity.engine.inspect import queries
        from posterity.engine.inspect.step_views import steps_view

        context = self._context()
        told = queries.status(context, self.path)
        accuracy = told["expected_accuracy"]
        figures = {
            "items": f"{told['items']:,}",
            "without a label": f"{told['unlabelled']:,}",
            "classes": f"{told['classes']:,}",
            "models": f"{len(told['models']):,}",
            "step": f"{told['step']}",
            "expected accuracy": "–" if accuracy is None else percent(**accuracy),
            "pending flips": f"{told['pending']:,}",
        }
        last = [
            {
                "step": step["step"],
                "what": step["what"],
                "evaluations": step["evaluations"],
                "flips": step["flips"],
                "fixed": "–" if step["fixed"] is None else shown(**step["fixed"]),
                "broken": "–" if step["broke"] is None else shown(**step["broke"]),
            }
            for step in steps_view(context)[-SHOWN:]
        ]
        return _text.html_page(f"Store {self._name}", figures, _text.html_table(last))

    @property
    def _name(self) -> str:
        return self.path if "://" in self.path else Path(self.path).name

    def __repr__(self) -> str:
        told = self.status()
        waiting = f", {told['unlabelled']:,} without a label" if told["unlabelled"] else ""
        return f"Store({self._name}: {told['items']:,} items{waiting}, step {told['step']})"
