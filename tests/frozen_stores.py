"""Stores that are frozen, one for each setting: beliefs, priors, rules, budgets, kinds of votes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from posterity import CostRatio, PosterityError, Spending, Store, VoteFile, rules
from tests.frozen_digests import Frozen, clean, contents, short, table
from tests.frozen_world import CLASSES, World

WORLD = World(420, 420, seed=3)
LATER = ("m1", "m3", "m4")

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "plain full": {"beliefs": "plain"},
    "plain diagonal": {"beliefs": "plain", "confusion": "diagonal", "step": {"rule": "max-belief"}},
    "plain shrunk": {"beliefs": "plain", "confusion": "shrunk", "prior": "labelled"},
    "plain single": {"beliefs": "plain", "confusion": "single", "step": {"selector": "random:4"}},
    "plain soft": {"beliefs": "plain", "soft": True, "step": {"rule": "cost-ratio:3"}},
    "plain given prior": {"beliefs": "plain", "prior": [6, 5, 4, 3, 2, 1]},
    "labelled prior": {"prior": "labelled", "step": {"rule": "cost-ratio:2,neutral=0.5"}},
    "estimated prior": {"prior": "estimated", "step": {"budget": "60%"}},
    "given prior": {"prior": [6, 5, 4, 3, 2, 1], "step": {"rule": "max-belief-min-entropy"}},
    "no adaptation": {"adapt": False, "step": {"selector": "entropy"}},
    "adapt confusions": {"adapt": "confusions", "step": {"budget": "60%"}},
    "adapt both": {"adapt": "difficulty,confusions", "prior": "estimated", "soft": True},
    "soft": {"soft": True, "step": {"rule": "cost-ratio:3"}},
    "small shards": {"shard_rows": 37, "step": {"rule": "cost-ratio:2+confirm"}},
    "replace": {"step": {"rule": "replace", "selector": "random", "seed": 5}},
    "majority": {"step": {"rule": "majority-vote+confirm", "selector": "everything"}},
    "confirm": {"step": {"rule": "max-belief+confirm", "budget": 150}},
    "dearer class": {"step": {"rule": CostRatio(2, of={"ant": 30}), "budget": 0.5}},
    "dearer class, confirm": {"step": {"rule": "cost-ratio:2,of.bee=9+confirm"}},
    "promise": {"step": {"rule": rules.AtMost(0.05, 0.8), "budget": "50%"}},
    "promise, soft": {"soft": True, "step": {"rule": "at-most:4%", "budget": "50%"}},
    "total": {"step": {"budget": "total:150,horizon=4"}},
    "total share": {
        "model": {"cost": None},
        "step": {"budget": Spending(share=0.9, horizon=4, price=8.0)},
    },
    "open total": {"step": {"budget": "total:200", "selector": "entropy"}},
    "price": {"step": {"budget": "price:4", "rule": "max-belief"}},
    "filter": {"step": {"where": "light = 'night' and number < 300", "budget": "50%"}},
    "weights": {"model": {"weight": "weight"}},
    "match": {"model": {"match": "light"}, "soft": True},
    "accuracies": {"beliefs": "plain", "accuracies": True},
    "accuracies, dependent": {"accuracies": True, "step": {"rule": "cost-ratio:3"}},
}


def seen(store: Store, folder: Path) -> Frozen:
    """What a store says in Python, and what is on disk."""
    ids = store.labels()["id"].to_pylist()
    told = [str(store.explain(one)) for one in ids[:40:13]]
    asked = [store.explain(one).to_dict() for one in ids[:60:7]]
    try:
        reliability = store.reliability().to_dict()
    except PosterityError as error:  # not every store can tell
        reliability = refused(error)
    return {
        "check": store.check(),
        "status": clean(store.status(), folder),
        "labels": table(store.labels()),
        "beliefs": table(store.beliefs(top=6)),
        "changes": table(store.labels(since=0)),
        "flips": table(store.flips()),
        "queue": short(clean(store.review_queue(25).to_dict())),
        "explained": short(clean(told, folder)),
        "explanations": short(clean(asked, folder)),
        "reliability": short(clean(reliability, folder)),
        "contents": contents(store.path),
    }


def made(folder: Path, settings: dict[str, Any], executor: str | None = None) -> Frozen:
    """A store with these settings: the first model labels all, three more arrive."""
    options = dict(settings)
    step = {"budget": "25%", **options.pop("step", {})}
    soft = options.pop("soft", False)
    own = options.pop("model", {})
    accuracies = options.pop("accuracies", False)
    options = {"shard_rows": 150, "classes": CLASSES, "executor": executor, **options}
    store = Store.create(folder / "store", **options)
    added = store.add(WORLD.item_table())
    frozen: Frozen = {"added": added}
    for at, name in enumerate(("m0", *LATER)):
        known = dict(own)
        if soft:
            known |= {"soft": 4, "labelled_soft": "probs"}
        if accuracies:
            known = {"accuracy": 0.5 + 0.1 * at}
        model = WORLD.model(name, **known)
        registered = store.register(model)
        how = {} if at == 0 else step
        plan = store.plan(name, **how)
        from_file = at % 2 == 1 or soft
        votes = VoteFile(WORLD.cast(name), soft="probs" if soft else None) if from_file else None
        report = store.update(name if from_file else model, **how, votes=votes)
        frozen[name] = {
            "registered": clean(registered.to_dict(), folder),
            "plan": clean(plan.to_dict(), folder),
            "planned": table(pa.table(store.planned_items(plan))) if plan.id and at else None,
            "report": clean(report.to_dict(), folder),
            "printed": clean(f"{plan}\n{report}", folder),
        }
    frozen["compared"] = clean(_compared(store), folder)
    return {**frozen, **seen(store, folder)}


def _compared(store: Store) -> list[Frozen]:
    try:
        store.register(WORLD.model("m2", cost=0.1))
        return [each.to_dict() for each in store.compare(["m2", "m4"], 20.0, rule="cost-ratio:3")]
    except PosterityError as error:  # beliefs that know nothing of labelled items
        return [refused(error)]


def refused(error: PosterityError) -> Frozen:
    """An error, as something to keep."""
    return {"error": type(error).__name__, "message": str(error)}


def one(settings: dict[str, Any], folder: Path) -> Frozen:
    """A store on this machine."""
    return made(folder, settings)


CASES: dict[str, Callable[[Path], Frozen]] = {
    f"store/{name}": partial(one, settings) for name, settings in SETTINGS.items()
}
