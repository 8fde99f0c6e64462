"""Longer lives of stores that are frozen: imports, reviews, reverts, and the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from posterity import Evaluation, Store, VoteFile, summary
from tests.frozen_digests import Frozen, clean, command, contents, short, table
from tests.frozen_stores import SETTINGS, WORLD, made, seen
from tests.frozen_world import CLASSES, MODELS, Memory, World


def wide(world: World = WORLD) -> pa.Table:
    """Predictions of two models beside their items, as they are imported."""
    rows = world.item_table()
    for name in ("m0", "m1"):
        cast = world.cast(name)
        rows = rows.append_column(name, cast["vote"])
        rows = rows.append_column(f"{name}_probs", cast["probs"])
    return rows


def imported(folder: Path, executor: str | None = None) -> Frozen:
    """Items and the votes of two models from Parquet files, with soft votes; then one more."""
    rows = wide()
    for at in range(3):
        pq.write_table(rows.slice(at * 140, 140), folder / f"predictions-{at}.parquet")
    store = Store.create(folder / "store", classes=CLASSES, shard_rows=100, executor=executor)
    models = {
        name: WORLD.model(name, soft=3, labelled_soft="p_{class}", predict=None)
        for name in ("m0", "m1")
    }
    how: dict[str, Any] = {
        "soft": {"m0": "m0_probs", "m1": "m1_probs"},
        "payload": ["number", "light"],
        "rule": "cost-ratio:3",
    }
    source = str(folder / "predictions-*.parquet")
    tried = store.import_predictions(source, models, dry_run=True, **how)
    done = store.import_predictions(source, models, **how)
    again = store.import_predictions(source, models, **how)
    later = store.update(WORLD.model("m4"), budget="30%")
    reports = [each.to_dict() for each in (tried, done, again, later)]
    return {"reports": clean(reports, folder), **seen(store, folder)}


def stated(folder: Path) -> Frozen:
    """Accuracies, confusion matrices, classes of a model's own, whole numbers as ids."""
    store = Store.create(folder / "store", classes=CLASSES, beliefs="plain", shard_rows=100)
    rows = WORLD.item_table()
    store.add(rows.set_column(0, "id", rows["number"]))
    matrix = np.full((6, 6), 3) + 60 * np.eye(6, dtype=int)
    votes = {
        name: pa.table({"id": rows["number"], "said": WORLD.cast(name)["vote"]})
        for name in ("m0", "m1", "m2")
    }
    big = pa.array([str(each).upper() for each in votes["m2"]["said"].to_pylist()])
    votes["m2"] = votes["m2"].set_column(1, "said", big)
    own = {
        "classes": [*(name.upper() for name in CLASSES[::-1]), "GNU"],
        "class_map": {name.upper(): name for name in CLASSES},
        "other": "fox",
    }
    models = [
        WORLD.model("m0", accuracy=0.6, predict=None),
        WORLD.model("m1", confusion=matrix, predict=None),
        WORLD.model("m2", accuracy=0.7, predict=None, **own),
    ]
    told = []
    for at, model in enumerate(models):
        told.append(store.register(model).to_dict())
        said = VoteFile(votes[model.name], vote="said")
        budget = None if at == 0 else "50%"
        report = store.update(model.name, budget=budget, votes=said, rule="cost-ratio:2")
        told.append(report.to_dict())
    frozen = {"labels": table(store.labels()), "check": store.check()}
    return {"told": clean(told), **frozen, "contents": contents(folder / "store")}


def asked_first(folder: Path) -> Frozen:
    """The truth of some stored items by id: models are asked about those first, some fail."""
    store = Store.create(folder / "store", classes=CLASSES, shard_rows=100)
    store.add(WORLD.item_table())
    told: list[Any] = [
        store.update(WORLD.model("m0", labelled=WORLD.truths(150)), evaluation=Evaluation(batch=64))
    ]
    failing = Memory(WORLD, "m3", fails=(200, 333))
    model = WORLD.model("m3", labelled=WORLD.truths(150), predict=failing)
    told.append(
        store.update(model, budget="100%", rule="cost-ratio:3", evaluation=Evaluation(batch=16))
    )
    soft = Memory(WORLD, "m4", soft=True)
    model = WORLD.model("m4", labelled=WORLD.truths(150), predict=soft, soft=3)
    told.append(store.update(model, budget="30%", rule="cost-ratio:3"))
    told.append(
        store.update("m4", budget="20%", more=True, votes=VoteFile(WORLD.cast("m4"), soft="probs"))
    )
    return {"told": clean([each.to_dict() for each in told]), **seen(store, folder)}


def long_life(folder: Path, executor: str | None = None) -> Frozen:
    """Pending flips, answers, reverts, classes that come later, items that come and go."""
    store = Store.create(folder / "store", classes=CLASSES, shard_rows=100, executor=executor)
    store.add(WORLD.item_table(0, 350))
    frozen: Frozen = {}

    def keep(name: str, said: Any) -> None:
        told = said.to_dict() if hasattr(said, "to_dict") else said
        frozen[name] = {"told": clean(told, folder), "labels": table(store.labels())}

    keep("first", store.update(WORLD.model("m0")))
    keep("pending", store.update(WORLD.model("m1"), budget="50%", rule="max-belief+confirm"))
    keep("confirmed", store.update(WORLD.model("m2"), budget="40%", rule="cost-ratio:2+confirm"))
    keep("settled", store.settle())
    keep("reverted", store.revert(1))
    for order in ("worth", "entropy", "random:3"):
        queue = store.review_queue(20, order=order, where="number > 20")
        frozen[f"queue by {order}"] = table(store.review_items(queue))
        ids = queue.items["id"].to_pylist()
        answers = {"id": ids, "answer": [truth_of(one) for one in ids]}
        keep(f"tried {order}", store.review(answers, dry_run=True))
        keep(f"answered {order}", store.review(answers, learn=order.startswith("random")))
    keep("revert of a review", store.revert(5))
    keep("added", store.add(WORLD.item_table(350)))
    keep("appended", list(store.append_classes(["gnu", "hen"]).names))
    keep("removed", store.remove(WORLD.ids()[10:30]))
    store.register(WORLD.model("m3"))
    plan = store.plan("m3", budget=120, rule="cost-ratio:3")
    keep("planned", plan)
    frozen["planned"]["items"] = table(pa.table(store.planned_items(plan)))
    keep("by plan", store.update("m3", plan=plan.id, votes=WORLD.cast("m3")))
    keep("more", store.update("m3", budget=60, more=True, votes=WORLD.cast("m3")))
    unplanned = WORLD.cast("m4").slice(100, 200)
    keep(
        "unplanned", store.update(WORLD.model("m4"), votes=VoteFile(unplanned, keep_unplanned=True))
    )
    keep("revert of a revert", store.revert(4))
    frozen["before it is compact"] = contents(folder / "store")
    keep("compacted", {k: v for k, v in store.compact().to_dict().items() if "file" not in k})
    store.vacuum(hours=200)
    frozen["history"] = clean([store.history(one) for one in WORLD.ids()[:10]])
    frozen["summary"] = short(
        clean(
            summary(store).to_dict(),
            folder,
        )
    )
    return {**frozen, **seen(store, folder)}


def truth_of(one: str) -> str:
    """What a person would say."""
    return CLASSES[WORLD.truth[int(one.split("-")[1])]]


def by_command(folder: Path) -> Frozen:
    """A whole life on the command line, with everything it prints."""
    files, place = folder / "files", str(folder / "store")
    WORLD.write(files)
    frozen: Frozen = {}

    def run(what: str, *given: str, shown: bool = False) -> None:
        many = f"{len(frozen):02d} {' '.join([what, *given])}".replace(str(folder), "FOLDER")
        ending = () if shown else ("--json",)
        frozen[many] = command(folder, what, place, *given, *ending)

    run("init", "--classes", ",".join(CLASSES), "--shard-rows", "150", "--prior", "estimated")
    run("add", str(files / "items.csv"))
    for name, cost in zip(MODELS, ("0.1", "0.2", "0.3", "0.5", "1"), strict=True):
        how = ["--labelled", str(files / f"labelled-{name}.csv"), "--cost", cost]
        run("model", name, *how, *(["--weight", "weight"] if name == "m2" else []))
    run("update", "m0", "--votes", str(files / "m0.csv"))
    run("compare", "m1", "m3", "m4", "--money", "40")
    run("plan", "m1", "--budget", "50%", "--rule", "cost-ratio:2+confirm", shown=True)
    run("plan", "m1", "--budget", "50%", "--rule", "cost-ratio:2+confirm")
    voting = ["--rule", "cost-ratio:2+confirm", "--votes"]
    run("update", "m1", "--budget", "50%", *voting, str(files / "m1.csv"))
    run("status", shown=True)
    run("settle")
    run("update", "m3", "--budget", "30%", "--votes", str(files / "m3.parquet"), shown=True)
    run("update", "m3", "--budget", "30%", "--votes", str(files / "m3.parquet"))
    run("review", "--next", "12", "--out", str(folder / "todo.csv"))
    asked = pa_csv.read_csv(folder / "todo.csv")
    said = pa.array([truth_of(one) for one in asked["id"].to_pylist()])
    answered = asked.set_column(asked.column_names.index("answer"), "answer", said)
    frozen["todo"] = table(asked)
    pa_csv.write_csv(answered, folder / "answers.csv")
    run("review", "--answers", str(folder / "answers.csv"), "--learn")
    run("flips")
    run("flips", "--step", "2", shown=True)
    run("revert", "2")
    run("classes", "--append", "gnu")
    run("remove", WORLD.ids()[3], WORLD.ids()[4])
    promise = ["--rule", "at-most:6%,confidence=0.8", "--budget", "40%"]
    run("update", "m4", *promise, "--votes", str(files / "m4.csv"))
    run("update", "m2", "--budget", "price:3", "--votes", str(files / "m2.csv"))
    for each in ("log", "status", "runs", "reliability", "report", "classes"):
        run(each)
        run(each, shown=True)
    for one in WORLD.ids()[7:12]:
        run("explain", one)
        run("explain", one, shown=True)
        run("history", one)
    run("labels", "--since", "1")
    run("labels", "--out", str(folder / "labels.parquet"), shown=True)
    frozen["labels"] = table(pq.read_table(folder / "labels.parquet"))
    run("labels", "--out", f"{folder / 'labels'}/", shown=True)
    exported = sorted((folder / "labels").glob("*.parquet"))
    frozen["labels in parts"] = [table(pq.read_table(each)) for each in exported]
    frozen["labels done"] = sorted(json.loads((folder / "labels/_SUCCESS").read_text()))
    run("labels", "--out", str(folder / "labels.csv"), shown=True)
    frozen["labels as text"] = table(pa_csv.read_csv(folder / "labels.csv"))
    run("update", "m9", "--budget", "10%")
    run("check")
    run("compact", shown=True)
    run("check", shown=True)
    return {**frozen, "contents": contents(place)}


CASES: dict[str, Callable[[Path], Frozen]] = {
    "life/imported": imported,
    "life/stated": stated,
    "life/asked first": asked_first,
    "life/long": long_life,
    "life/command": by_command,
}

RAY = "ray://local"


def _on_ray(settings: dict[str, Any], folder: Path) -> Frozen:
    return made(folder, settings, RAY)


ON_RAY: dict[str, Callable[[Path], Frozen]] = {
    "ray/store/small shards": partial(_on_ray, SETTINGS["small shards"]),
    "ray/life/imported": partial(imported, executor=RAY),
    "ray/life/long": partial(long_life, executor=RAY),
}


def unlike_local(found: Frozen) -> list[str]:
    """Entries of stores on Ray that are not what they are on this machine alone."""
    local = {key: found.get(key.removeprefix("ray/")) for key in found if key.startswith("ray/")}
    return [key for key, value in local.items() if found[key] != value]
