"""``posterity demo``: the main job on real texts and real detectors, in plain words."""

from __future__ import annotations

import shlex
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from posterity.cli.demo.job import BUDGET, RULE, Job, run_job, score, write_files
from posterity.cli.output import plain_table, print_json, show, tell
from posterity.errors import InvalidParameter
from posterity.method.data.spec import MOST_SEED
from posterity.replay import run
from posterity.store import Store

WAYS: tuple[tuple[str, str | int, str], ...] = (
    ("never update", 0, "replace"),
    ("full backfill, always replace", "100%", "replace"),
    ("full backfill, majority vote", "100%", "majority-vote"),
    ("Posterity, 10% of the texts", "10%", RULE),
    ("Posterity, every text", "100%", RULE),
)
THIS_RUN = "Posterity, 20%: this store"
SHOWN = 5
WIDEST = 56


@click.command("demo")
@click.option(
    "--seed",
    type=click.IntRange(0, MOST_SEED),
    default=0,
    show_default=True,
    help="Which texts are labelled.",
)
@click.option("--items", type=int, help="Use so many texts, for a quick look. [default: all]")
@click.option("--store", metavar="FOLDER", help="Keep the store there. [default: a temporary one]")
@click.option(
    "--recording", metavar="FILE", help="Also keep every vote, for `posterity replay` (.npz)."
)
@click.option(
    "--files", metavar="FOLDER", help="Only write the files that docs/first-hour.md begins with."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def demo_command(
    seed: int,
    items: int | None,
    store: str | None,
    recording: str | None,
    files: str | None,
    as_json: bool,
) -> None:
    """Keep the language labels of interface texts up to date as better detectors arrive.

    The texts are translations inside installed packages; the folder tells the true language, which
    serves for a small labelled set and for the final score alone. The first detector's labels are
    imported. Then better ones arrive, and each may look at a fifth of the texts. What does that
    bring, what does it break, and what would running each of them on everything have done?
    """
    if store is not None and Path(store).exists() and any(Path(store).iterdir()):
        raise InvalidParameter.of("store", "an empty or a new folder", store)
    if recording is not None and not Path(recording).absolute().parent.is_dir():
        raise InvalidParameter.of("recording", "a file in a folder that exists", recording)
    job = Job.prepare(seed=seed, items=items)
    if files is not None:
        written = write_files(job, Path(files))
        tell(as_json, {"folder": files, "files": written}, f"{files}: {', '.join(written)}")
        return
    told: list[dict[str, Any]] = []
    if not as_json:
        show(_story(job))
    place = nullcontext(store) if store is not None else tempfile.TemporaryDirectory()
    with place as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        held = run_job(job, Path(folder), told.append)
        done = score(job, held)
        if not as_json:
            show(_steps(job, told))
            if held.flips().num_rows:
                item = _examined(held)
                show("Some flips of the last step:")
                show(_flips(job, held))
                show(f"What happened to {item}:")
                show(_history(held, item))
            show("Every detector now reads every text, to see what a backfill would have done …")
    votes = job.record()
    if recording is not None:
        votes.save(recording)
    rows = [
        run(votes, order="given", budgets=budget, rules=rule, split="is_source").rows[0]
        for _, budget, rule in WAYS
    ]
    named = [(way, row) for (way, _, _), row in zip(WAYS, rows, strict=True)]
    named.insert(4, (THIS_RUN, done))
    if as_json:
        print_json({"steps": told, "missing": job.missing, "ways": [_plain(*row) for row in named]})
        return
    show(_table(named))
    show(_moral(rows[1], done))
    if store is not None:
        kept = shlex.quote(str(Path(store) / "store"))
        show(f"The store is kept; try: posterity serve {kept}")
        show(f"                    or: posterity log {kept}")
    if recording is not None:
        show(Text(f"The votes are kept; try: posterity replay {shlex.quote(recording)}"))


def _story(job: Job) -> str:
    missing = "".join(
        f"\n{name} cannot be used here and is left out: {why}" for name, why in job.missing.items()
    )
    packages = " and ".join(sorted(name.capitalize() for name in set(job.texts.package)))
    return (
        f"{len(job.stored):,} interface texts of {packages} carry a label that "
        f"'{job.detectors[0].name}' gave them.\n"
        f"Better detectors arrive; each may look at {BUDGET} of the texts.\n"
        f"{len(job.labelled):,} other texts with known language tell how each of them errs."
        f"{missing}"
    )


def _steps(job: Job, told: list[dict[str, Any]]) -> Table:
    rows = []
    for detector, report in zip(job.detectors, told, strict=True):
        first = report["step"] == 0
        rows.append(
            {
                "step": report["step"],
                "detector": detector.name,
                "accuracy": f"{100 * job.accuracy(detector):.1f} %",
                "evaluations": "imported" if first else f"{report['evaluations']:,}",
                "flips": "–" if first else f"{report['flips']:,}",
                "fixed": "–" if first else f"{report['expected_positive_flips']:,.0f}",
                "broken": "–" if first else f"{report['expected_negative_flips']:,.0f}",
            }
        )
    caption = "accuracy: on the labelled texts; fixed, broken: estimated"
    figures = ("accuracy", "evaluations", "flips", "fixed", "broken")
    return plain_table(rows, right=figures, caption=caption)


def _flips(job: Job, store: Store) -> Table:
    """Some labels the last step changed, one for each pair of languages."""
    by_id = dict(zip(job.texts.id, job.texts.text, strict=True))
    rows = [
        {
            "item": flip["id"],
            "text": _short(by_id[flip["id"]]),
            "old": flip["old"],
            "new": flip["new"],
            "belief": f"{flip['belief']:.2f}",
        }
        for flip in _different(store.flips().to_pylist())[:SHOWN]
    ]
    return plain_table(rows, right=("belief",))


def _different(flips: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kinds: dict[tuple[str, str], dict[str, Any]] = {}
    for flip in sorted(flips, key=lambda flip: -flip["belief"]):
        kinds.setdefault((flip["old"], flip["new"]), flip)
    return list(kinds.values())


def _examined(store: Store) -> str:
    """The item of the last step's flips that most detectors have looked at."""
    kept: list[str] = [flip["id"] for flip in _different(store.flips().to_pylist())[:SHOWN]]
    return max(kept, key=lambda item: len(store.history(item)))


def _history(store: Store, item: str) -> Table:
    rows = [
        {
            "step": row["step"],
            "detector": row["model"],
            "vote": row["vote"],
            "label": row["label"],
            "belief": f"{row['belief']:.2f}",
        }
        for row in store.history(item)
    ]
    return plain_table(rows, right=("label", "belief"))


def _short(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _plain(way: str, row: dict[str, Any]) -> dict[str, Any]:
    figures = ("evaluations", "positive_flips", "negative_flips", "accuracy")
    return {"way": way, **{name: row[name] for name in figures}}


def _table(rows: list[tuple[str, dict[str, Any]]]) -> Table:
    caption = (
        "fixed: positive flips, wrong → right; broken: negative flips, right → wrong\n"
        "Posterity with its defaults: the cost ratio is chosen on the labelled texts"
    )
    listed = [
        {
            "way of updating": way,
            "evaluations": f"{row['evaluations']:,}",
            "fixed": f"{row['positive_flips']:,}",
            "broken": f"{row['negative_flips']:,}",
            "accuracy": f"{row['accuracy']:.1f} %",
        }
        for way, row in rows
    ]
    return plain_table(
        listed, right=("evaluations", "fixed", "broken", "accuracy"), caption=caption
    )


def _moral(backfill: dict[str, Any], done: dict[str, Any]) -> str:
    return (
        f"With {done['evaluations'] / backfill['evaluations']:.0%} of the backfill's evaluations "
        f"Posterity broke {done['negative_flips']:,} labels that were right, where the backfill "
        f"broke {backfill['negative_flips']:,} on its way."
    )
