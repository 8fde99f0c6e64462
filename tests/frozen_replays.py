"""Replays that are frozen: every kind of belief, rule, selector, budget, prior and adaptation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from posterity import Beliefs, Budget, Confusion, SoftVotes, priors, replay, rules, selectors, votes
from posterity.replay import Recording
from tests.frozen_digests import Frozen, command, digest, table
from tests.frozen_world import CLASSES, World

ANY_BELIEFS = [
    *("replace", "majority-vote", "max-belief", "max-belief-min-entropy", "oracle"),
    *("cost-ratio:2", "cost-ratio:10", "cost-ratio:10,neutral=0.5", "cost-ratio:3,of.ant=40"),
    *("cost-ratio:2+confirm", "max-belief+confirm", "majority-vote+confirm", "replace+confirm"),
    "cost-ratio:3,neutral=1,of.bee=20+confirm",
]
PROMISES = ["at-most:5%", "at-most:2%,confidence=0.8"]
OVER_TIME = [
    *("total:60%,horizon=4", "total:800,horizon=6", "total:500", "price:3", "price:20"),
    "total:120%,horizon=4,price=5",
]
BUDGETS = ["0%", "10%", 0.3, 100, 1.0]
SELECTORS = ["entropy", "random", "random:7", "everything"]

SETTINGS: dict[str, dict[str, Any]] = {
    "plain/confusions": {
        "confusion": ["diagonal", "full", "shrunk", "single"],
        "budgets": ["10%", 1.0],
        "rules": ["cost-ratio:10", "max-belief", "max-belief-min-entropy"],
    },
    "plain/rules": {"beliefs": "plain", "rules": ANY_BELIEFS, "budgets": "25%"},
    "plain/selectors": {"beliefs": "plain", "selector": SELECTORS, "budgets": "20%"},
    "plain/budgets": {"beliefs": "plain", "budgets": BUDGETS, "rules": "cost-ratio:2"},
    "plain/soft": {"beliefs": "plain", "votes": "soft", "rules": ["max-belief", "cost-ratio:3"]},
    "plain/calibrated": {"confusion": ["full", "shrunk"], "votes": "calibrated", "budgets": 0.3},
    "plain/labelled prior": {"beliefs": "plain", "prior": "labelled", "rules": "max-belief"},
    "plain/given prior": {"beliefs": "plain", "prior": np.arange(1.0, 7.0), "budgets": "40%"},
    "plain/seeds": {"beliefs": "plain", "split": 0.4, "seed": 3, "seeds": 3, "selector": "random"},
    "plain/weigh": {"beliefs": "plain", "weigh": "groups", "rules": "max-belief"},
    "dependent/rules": {"rules": ANY_BELIEFS, "budgets": "25%"},
    "dependent/promises": {"rules": PROMISES, "budgets": "25%"},
    "dependent/selectors": {"selector": ["value", *SELECTORS], "budgets": "20%"},
    "dependent/budgets": {"budgets": BUDGETS, "rules": "cost-ratio:2"},
    "dependent/over time": {"budgets": OVER_TIME, "rules": "cost-ratio:3"},
    "dependent/over time, other rules": {
        "budgets": ["total:60%,horizon=4", "price:10"],
        "rules": ["max-belief", "at-most:5%", "cost-ratio:2+confirm"],
        "selector": ["value", "entropy"],
    },
    "dependent/soft": {"votes": "soft", "rules": ["max-belief", "cost-ratio:3", "at-most:5%"]},
    "dependent/soft over time": {"votes": "soft", "budgets": "total:60%,horizon=4"},
    "dependent/labelled prior": {"prior": "labelled", "rules": "max-belief", "budgets": "30%"},
    "dependent/estimated prior": {"prior": "estimated", "budgets": ["30%", 1.0]},
    "dependent/estimated prior, soft": {"prior": "estimated", "votes": "soft", "budgets": "50%"},
    "dependent/given prior": {"prior": np.arange(1.0, 7.0), "budgets": "40%"},
    "dependent/no adaptation": {"adapt": False, "budgets": "30%"},
    "dependent/adapt confusions": {"adapt": "confusions", "budgets": ["30%", 1.0]},
    "dependent/adapt both": {"adapt": "difficulty,confusions", "budgets": "50%", "votes": "soft"},
    "dependent/adapt all three": {
        "adapt": ["difficulty", "confusions"],
        "prior": "estimated",
        "budgets": "50%",
    },
    "dependent/weigh groups": {"weigh": "groups", "budgets": "30%"},
    "dependent/weigh weights": {"weigh": "weights", "budgets": "30%", "votes": "soft"},
    "dependent/seeds": {"split": 0.4, "seed": 3, "seeds": 2, "selector": ["value", "random"]},
    "dependent/all is labelled": {"split": 1, "rules": "cost-ratio:3"},
    "dependent/improving": {"order": "improving", "rules": "max-belief"},
    "dependent/adversarial": {"order": "adversarial", "rules": "cost-ratio:2"},
    "dependent/random order": {"order": "random:3", "rules": "replace"},
    "dependent/some models": {"models": ["m3", "m0", "m4"], "budgets": "30%"},
}


@cache
def recorded() -> Recording:
    """What all of them replay."""
    return World(900, 600).recording()


def told(results: replay.Results) -> Frozen:
    """Runs as they are; their steps as a digest with sums."""
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in results.rows]
    steps = results.to_arrow().drop_columns(["seconds"])
    return {"runs": rows, "steps": table(steps)}


def one(settings: dict[str, Any], _: Path) -> Frozen:
    """A replay with some settings."""
    return told(replay.run(recorded(), **settings))


def another_source(_: Path) -> Frozen:
    """The labelled set is another recording, with classes in another order."""
    other = World(10, 500, seed=5).recording("other")
    turned = Recording(
        classes=CLASSES[::-1],
        models=other.models[::-1],
        truth=5 - other.truth,
        votes=np.where(other.votes == -1, -1, 5 - other.votes)[::-1],
        probabilities=np.asarray(other.probabilities)[::-1, :, ::-1],
        name="other",
    )
    results = replay.run(recorded(), source=turned, budgets="30%", votes="soft")
    results.extend(replay.run(recorded(), source=turned, confusion="full"))
    return told(results)


def walks(_: Path) -> Frozen:
    """Step by step: which items were chosen, what their labels became, and every belief."""
    parts = replay.take_apart(recorded(), 0.5, seed=2)
    steps = replay.walk(
        parts.target,
        replay.fit(parts.labelled, "shrunk"),
        prior=priors.labelled(parts.labelled.truth, classes=6),
        selector=selectors.parse("entropy"),
        budget=Budget.of("20%"),
        rules=[rules.parse("cost-ratio:3"), rules.parse("max-belief+confirm")],
    )
    frozen: Frozen = {}
    for step in steps:
        flipped = [np.flatnonzero(decision.flipped) for decision in step.decisions]
        frozen[str(step.number)] = {
            "model": step.model,
            "rows": digest(np.sort(step.rows).tolist()),
            "flips": [len(each) for each in flipped],
            "flipped": digest([each.tolist() for each in flipped]),
        }
    return frozen


def pieces(_: Path) -> Frozen:
    """Confusions, beliefs, majorities and soft votes by themselves, to the last bit."""
    known = recorded().take(np.flatnonzero(np.asarray(recorded().is_source)))
    target = recorded().take(np.flatnonzero(~np.asarray(recorded().is_source)))
    frozen: Frozen = {"majority": digest(votes.majority(target.votes).tolist())}
    for kind in ("diagonal", "full", "shrunk", "single"):
        beliefs = Beliefs(priors.uniform(6), len(target))
        made = []
        for at, cast in enumerate(known.votes):
            confusion = Confusion.from_pairs(known.truth, cast, classes=6, estimator=kind)
            made.append(confusion.probabilities.tolist())
            rows = np.flatnonzero(target.votes[at] != -1)
            soft = SoftVotes.top(np.asarray(target.probabilities)[at][rows])
            cast_on = soft if kind == "shrunk" else target.votes[at][rows]
            beliefs.fold(cast_on, confusion, rows=rows)
        best = beliefs.most_believed()
        frozen[kind] = {
            "confusions": digest(made),
            "sure": float(np.sum(beliefs.of_best())),
            "entropy": digest(beliefs.entropy().tolist()),
            "beliefs": digest(beliefs.probabilities().tolist()),
            "best": digest(np.asarray(best).tolist()),
        }
    frozen["stated"] = Confusion.from_accuracy(0.83, classes=6).probabilities.tolist()
    return frozen


def by_command(folder: Path) -> Frozen:
    """The same from a file on the command line, as JSON, as a table and as a file."""
    recorded().save(folder / "made-up.npz")
    (folder / "prior.csv").write_text(
        "".join(f"{name},{at + 1}\n" for at, name in enumerate(CLASSES))
    )
    given = ["replay", str(folder / "made-up.npz")]
    plain = ["--confusion", "full,single", "--selector", "entropy,random", "--prior"]
    command(folder, *given, "--budgets", "10%", "--out", str(folder / "rows.parquet"))
    return {
        "default": command(folder, *given, "--json"),
        "plain": command(folder, *given, *plain, str(folder / "prior.csv"), "--json"),
        "soft": command(folder, *given, "--votes", "soft", "--adapt", "none", "--json"),
        "shown": command(folder, *given, "--rules", "replace,cost-ratio:10", "--split", "0.5"),
        "written": table(pq.read_table(folder / "rows.parquet").drop_columns(["seconds"])),
    }


CASES: dict[str, Callable[[Path], Frozen]] = {
    **{f"replay/{name}": partial(one, settings) for name, settings in SETTINGS.items()},
    "replay/another source": another_source,
    "replay/walks": walks,
    "replay/pieces": pieces,
    "replay/command": by_command,
}
