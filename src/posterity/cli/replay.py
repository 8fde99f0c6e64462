"""``posterity replay``: measure what the method would have done on recorded predictions."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.measure import Measurement

from posterity._text import counted
from posterity.cli.output import (
    PIPED_WIDTH,
    console,
    echo,
    in_flags,
    print_json,
    show,
)
from posterity.errors import InvalidParameter, MissingExtra
from posterity.method.adapt.adapt import DIFFICULTY, NONE
from posterity.method.data.spec import split_list
from posterity.method.decide.defaults import DEFAULT_BUDGET, DEFAULT_CONFUSION
from posterity.replay import Recording, run
from posterity.replay.experiment import HARD
from posterity.replay.importers import IMPORTERS, import_recordings
from posterity.replay.table import SHED_FIRST, table
from posterity.storage.output import is_standard, written_whole
from posterity.validation.reliability import Reliability


def print_results(rows: Sequence[dict[str, Any]]) -> None:
    """Replay results as a table, shedding the least important columns on a narrow terminal."""
    out = console()
    unlimited = out.options.update(max_width=PIPED_WIDTH)  # else a table measures as if it fitted
    for shed in range(len(SHED_FIRST) + 1):
        fitted = table(rows, without=SHED_FIRST[:shed])
        needed = Measurement.get(out, unlimited, fitted).maximum
        if needed <= out.width:
            break
    else:
        fitted.width = needed  # better wider than the terminal than cut beyond recognition
    show(fitted)


@click.command("replay")
@click.argument("paths", nargs=-1, required=True, metavar="RECORDING | DIR OUT")
@click.option("--models", metavar="A,B,C", help="Models in their order of arrival. [default: all]")
@click.option(
    "--beliefs",
    help="dependent: models err on the same items, and alike; plain: the paper's product of"
    " likelihoods. [default: dependent; with --confusion plain]",
)
@click.option(
    "--confusion",
    metavar="LIST",
    help=f"With plain beliefs, how confusions are estimated: diagonal, full, shrunk (classes"
    " shrunk towards the model's mean), single (one accuracy)."
    f" [default: {DEFAULT_CONFUSION}]",
)
@click.option(
    "--adapt",
    default=DIFFICULTY,
    show_default=True,
    metavar="LIST",
    help="What dependent beliefs adapt to in the target data: difficulty (harder or"
    " easier than the labelled set), confusions (each model's accuracy), none.",
)
@click.option(
    "--weigh",
    metavar="BY",
    help="Weigh labelled items: by the recordings' groups, to have the target's mix of them, or by"
    " recorded weights.",
)
@click.option("--no-adapt", is_flag=True, help="The same as --adapt none.")
@click.option(
    "--selector",
    metavar="LIST",
    help="Which items a model looks at: value (what its vote could change), contested (few or"
    " contradicting votes), entropy, random[:SEED], everything. [default: value; with plain beliefs"
    " entropy]",
)
@click.option(
    "--budgets",
    default=DEFAULT_BUDGET,
    show_default=True,
    metavar="LIST",
    help="Evaluations per step: a share (10%, 0.1; 1.0 is all) or a count (500; 1 is one)."
    " Of all steps together: total:160%,horizon=16; at a price: price:20 evaluations a correction.",
)
@click.option(
    "--rules",
    metavar="LIST",
    help="replace, majority-vote, max-belief, max-belief-min-entropy,"
    " cost-ratio:C[,neutral=C0][,of.CLASS=C1], balanced[:SHARE] (a cost ratio chosen on the"
    " labelled set), at-most:SHARE[,confidence=P] (a promise, see"
    " docs/howto/promise-a-limit.md), oracle; any but"
    " the last three with +confirm: a flip waits for the item's next vote, and is made without one"
    " by a step that does not select the item, or at the end; with +two-votes only classes with"
    " two votes become labels."
    " [default: balanced; with plain beliefs cost-ratio:10]",
)
@click.option(
    "--tune",
    metavar="LIST",
    help="Goals, for each of which the labelled set chooses selector and rule: as in"
    " `posterity tune --help`.",
)
@click.option(
    "--split",
    metavar="F",
    help="Labelled share of the recording; 1: everything is both; is_source: the recording's own"
    " mask. [default: is_source if recorded, else 0.5]",
)
@click.option("--source", metavar="FILE", help="Take the labelled set from another recording.")
@click.option(
    "--votes",
    default=HARD,
    show_default=True,
    help="hard; soft: class probabilities too, which dependent beliefs calibrate on the labelled"
    " set and plain ones take as recorded; calibrated: plain ones calibrate them too.",
)
@click.option(
    "--prior",
    metavar="P",
    help="uniform, labelled (class frequencies), estimated (from the labelled set and the target's"
    " votes), or a JSON or CSV file of class weights."
    " [default: estimated; with plain beliefs uniform]",
)
@click.option(
    "--order",
    default="given",
    show_default=True,
    metavar="O",
    help="given, improving or adversarial (by accuracy on the labelled set), random:SEED.",
)
@click.option("--seed", default=0, show_default=True, help="Shuffles the split, draws at random.")
@click.option(
    "--seeds", default=1, show_default=True, metavar="N", help="Repeat with N seeds from --seed on."
)
@click.option("--out", metavar="FILE", help="Write rows per run and per step as Parquet.")
@click.option("--json", "as_json", is_flag=True, help="Print rows as JSON instead of a table.")
@click.option(
    "--import",
    "repository",
    metavar="KIND",
    help=f"Instead of replaying, make recordings from a clone at DIR: {', '.join(IMPORTERS)}.",
)
@click.option("--set", "test_set", metavar="NAME", help="With --import: only this test set.")
@click.option(
    "--truth", metavar="FILE", help="With --import: .npy of class codes where the clone has none."
)
@click.pass_context
def replay_command(
    context: click.Context,
    /,
    paths: tuple[str, ...],
    models: str | None,
    source: str | None,
    adapt: str,
    no_adapt: bool,
    out: str | None,
    as_json: bool,
    repository: str | None,
    test_set: str | None,
    truth: str | None,
    **options: Any,
) -> None:
    """Walk a sequence of models over RECORDING and score what the method would have done.

    A recording (.npz) holds the votes of several models on the same items, with the truth. Part
    of it serves as labelled set; on the rest the models arrive one after the other, and the truth
    is used for scoring alone. LISTs are separated by commas; every combination is one run.

    \b
    A full backfill against ten per cent of it:
      posterity replay rec.npz --budgets 10%,100% --rules replace,cost-ratio:10
    A table like the paper's, means of five splits:
      posterity replay rec.npz --split 0.5 --seeds 5 \\
        --confusion diagonal,full --selector entropy,random \\
        --budgets 10%,30%,100% --rules replace,majority-vote,cost-ratio:10
    Recordings from a clone of a public repository:
      posterity replay --import imagenetv2 ImageNetV2/ recordings/
    """
    if repository is not None:
        _refuse_others(context)
        _import(repository, paths, test_set, truth, as_json=as_json)
        return
    if len(paths) != 1:
        raise click.UsageError(f"Expected one RECORDING; got {len(paths)}: {', '.join(paths)}.")
    if test_set or truth:
        raise click.UsageError("--set and --truth go with --import.")
    if out is not None:
        _check_out(Path(out), [paths[0], *([source] if source else [])])
    # The other options are named as the parameters of ``run`` are.
    for name in ("confusion", "selector", "budgets", "rules"):
        options[name] = None if options[name] is None else split_list(options[name])
    options["tune"] = split_list(options["tune"] or "")
    recording = Recording.load(paths[0])
    results = run(
        recording,
        models=None if models is None else _split_models(models),
        source=Recording.load(source) if source else None,
        adapt=NONE if no_adapt else adapt,
        **options,
    )
    if as_json:
        print_json(results.to_dict())
    else:
        print_results(results.rows)
    if out is not None:
        results.write(out)


def _split_models(text: str) -> list[str]:
    """Model names separated by commas; one that holds a comma stands in double quotes."""
    return [name.strip() for line in csv.reader([text]) for name in line if name.strip()]


def _check_out(out: Path, inputs: list[str]) -> None:
    """Told before an hour of walking, not after it."""
    if is_standard(str(out)):
        hint = "To print rows, use --json."
        raise InvalidParameter.of("out", "a Parquet file", str(out), hint=hint)
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise InvalidParameter.of("out", "a file in a folder that exists", str(out))
    if any(out.exists() and Path(path).exists() and out.samefile(path) for path in inputs):
        raise InvalidParameter.of("out", "another file than what is replayed", str(out))


def _refuse_others(context: click.Context) -> None:
    """An import takes no replay options; none is ignored quietly."""
    for name in context.params:
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name not in ("paths", "repository", "test_set", "truth", "as_json"):
            raise click.UsageError(f"--{name.replace('_', '-')} does not go with --import.")


def _import(
    kind: str, paths: tuple[str, ...], test_set: str | None, truth: str | None, *, as_json: bool
) -> None:
    if len(paths) != 2:
        raise click.UsageError("--import takes two paths: the clone's folder, and where to write.")
    imported = import_recordings(kind, paths[0], paths[1], test_set=test_set, truth=truth)
    skipped = {name: in_flags(reason) for name, reason in imported.skipped.items()}
    if as_json:
        written = [
            {
                "path": str(path),
                "items": len(made),
                "classes": len(made.classes),
                "models": list(made.models),
            }
            for path, made in imported.written.items()
        ]
        print_json({"written": written, "skipped": skipped})
        return
    for path, made in imported.written.items():
        echo(
            f"{path}: {counted(len(made), 'item')}, {counted(len(made.classes), 'class')}, "
            f"{counted(len(made.models), 'model')}"
        )
    for name, reason in skipped.items():
        echo(f"{name} left out: {reason}")


SUFFIXES = (".png", ".svg", ".pdf")
FEW = 10
"""Of fewer items a share says nothing that could be drawn."""
BLUE, ORANGE, GREY = "#2166ac", "#e08214", "#8c8c8c"
STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
    "svg.hashsalt": "p",
}


def check_picture(path: Path) -> None:
    """Refuse a file whose name does not say how to draw it."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidParameter.of("plot", "a .png, .svg or .pdf file", str(path))


def reliability(labels: Reliability, best: Reliability, path: Path) -> None:
    """Share right against belief, of stored labels and of most believed classes; how many below."""
    check_picture(path)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra.of("A picture", "plots") from None
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5, 6), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        upper.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
        _draw(upper, best, ORANGE, "most believed class", "s--", 3)
        _draw(upper, labels, BLUE, "stored label", "o-", 5)
        upper.set(ylabel="share that is right", xlim=(0, 1), ylim=(0, 1.02))
        upper.legend(loc="upper left", frameon=False)
        rows = labels.bins
        middles = [(row["from"] + row["to"]) / 2 for row in rows]
        lower.bar(middles, [row["items"] for row in rows], width=0.09, color=BLUE, alpha=0.6)
        lower.set(xlabel="belief", ylabel="labelled items")
        with written_whole(path) as beside:
            figure.savefig(beside, format=path.suffix.lower()[1:], dpi=150)


def _draw(axes: Any, found: Reliability, colour: str, name: str, style: str, size: int) -> None:
    rows = [row for row in found.bins if row["items"] >= FEW]
    axes.errorbar(
        [row["belief"] for row in rows],
        [row["right"] for row in rows],
        yerr=[1.64 * (row["right"] * (1 - row["right"]) / row["items"]) ** 0.5 for row in rows],
        fmt=style,
        color=colour,
        markersize=size,
        linewidth=1.2,
        elinewidth=0.8,
        label=f"{name}: off by {100 * found.error:.1f} points",
    )
