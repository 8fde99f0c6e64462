"""Commands that bring data and models into a store: init, classes, import, add, model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pyarrow.compute as pc

from posterity._text import counted
from posterity.cli.output import (
    as_json_option,
    echo,
    executor_option,
    print_json,
    progress_bar,
    store_argument,
    tell,
    with_options,
)
from posterity.engine.maintenance.create import is_store
from posterity.errors import InvalidData, InvalidParameter
from posterity.method.adapt.adapt import DIFFICULTY
from posterity.method.decide.defaults import DEPENDENT
from posterity.models.class_map import plain_column, typed_name
from posterity.models.model import Model
from posterity.storage.input import SUFFIXES, column, read_rows, truth_types
from posterity.store import Store

_model_options = with_options(
    click.option(
        "--labelled", metavar="FILE", help="Truth and vote on labelled items; or truth by id."
    ),
    click.option("--truth", default="truth", show_default=True, help="Its column of true classes."),
    click.option(
        "--vote", help="Its column of votes. [default: 'vote', or the one named like the model]"
    ),
    click.option("--key", help="Its column that names the item. [default: id, or as --id]"),
    click.option("--weight", help="Its column of weights: how much more frequent such items are."),
    click.option(
        "--match", help="Weigh it to have this column's values as often as the stored items do."
    ),
    click.option(
        "--keep-labels",
        is_flag=True,
        help="With truth by id: leave the labels of these items as they are. [default: the truth"
        " becomes their label]",
    ),
    click.option(
        "--confusion-matrix",
        "confusion",
        metavar="FILE",
        help="Instead: a row for each truth, a column for each vote; counts or probabilities.",
    ),
    click.option("--accuracy", type=float, help="Instead: one accuracy, from 0 to 1."),
    click.option("--model-classes", metavar="FILE", help="The model's own classes, in its order."),
    click.option("--class-map", metavar="FILE", help="Its classes,ours: CSV lines, or JSON."),
    click.option("--other", metavar="CLASS", help="Our class for what only the model knows."),
)
"""How a model errs and what its words mean: the same for `model` and `import`."""


@click.command("init")
@store_argument
@click.option(
    "--classes",
    required=True,
    metavar="FILE",
    help="Class names, one a line; or A,B,C; or a table, with --column.",
)
@click.option("--column", help="The distinct values of this column of the table are the classes.")
@click.option("--type", "kind", default="str", show_default=True, help="Of names: str, int, bool.")
@click.option(
    "--beliefs",
    default=DEPENDENT,
    show_default=True,
    help="dependent: models err on the same items, and alike; plain: the paper's product.",
)
@click.option(
    "--confusion",
    default="full",
    show_default=True,
    help="How plain beliefs estimate confusions: diagonal, full, shrunk or single.",
)
@click.option(
    "--prior",
    metavar="estimated|labelled|uniform|FILE",
    help="How frequent the classes are. estimated: from the labelled set and the items' votes;"
    " labelled: from the labelled set alone; FILE: class weights."
    " [default: estimated; with plain beliefs uniform]",
)
@click.option(
    "--adapt",
    default=DIFFICULTY,
    show_default=True,
    metavar="LIST",
    help="What of the items dependent beliefs follow, as votes tell: difficulty, confusions, none.",
)
@click.option("--shard-rows", type=int, help="Rows a shard. [default: about 4 million]")
@as_json_option
def init_command(
    store: str,
    classes: str,
    column: str | None,
    kind: str,
    beliefs: str,
    confusion: str,
    prior: str | None,
    adapt: str,
    shard_rows: int | None,
    as_json: bool,
) -> None:
    """Make an empty store in a folder (or at an object-store URI) for the given classes.

    \b
      posterity init photos --classes cat,dog,fox
      posterity init photos --classes classes.txt --prior labelled
      posterity init photos --classes predictions.parquet --column pred
    """
    names = read_names(classes, kind, column)
    options: dict[str, Any] = {} if shard_rows is None else {"shard_rows": shard_rows}
    options |= {"beliefs": beliefs, "confusion": confusion, "prior": prior, "adapt": adapt}
    already = is_store(store)
    made = Store.create(store, classes=names, **options)
    if as_json:
        print_json(made.status())
    else:
        done = "Done already: " if already else ""
        echo(f"{done}{store}: a store for {len(names)} classes")


def read_names(given: str, kind: str = "str", column_name: str | None = None) -> list[Any]:
    """Class names from a file, a list, or the values of a table's column."""
    types = {"str": str, "int": int, "bool": bool}
    if kind not in types:
        raise InvalidParameter.of("type", "str, int or bool", kind)
    path = Path(given)
    if column_name is not None:
        if path.suffix.lower() not in SUFFIXES:
            raise InvalidParameter.of("classes", "a table, to go with --column", given)
        read = truth_types(types[kind], column_name)
        rows = read_rows(given, "table", types=read, columns=[column_name])
        values = plain_column(column(rows, column_name, "table"))
        return sorted(pc.drop_null(pc.unique(values)).to_pylist())
    if path.is_file():
        if path.suffix.lower() in SUFFIXES:
            raise InvalidParameter.of("column", "the column of classes, for a table", column_name)
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise InvalidData(f"'{path}' is not UTF-8 text: {error}.") from None
    elif "," in given:
        lines = given.split(",")
    else:
        raise InvalidParameter.of("classes", "a file of names, or names separated by commas", given)
    return [typed_name(line.strip(), types[kind]) for line in lines if line.strip()]


@click.command("classes")
@store_argument
@click.option("--append", metavar="FILE", help="More names, one a line; or A,B; or one name.")
@click.option("--weight", type=float, help="The prior weight of each, where the prior has weights.")
@as_json_option
def classes_command(store: str, append: str | None, weight: float | None, as_json: bool) -> None:
    """The classes of a store in the order of their codes; with --append, more of them.

    Old codes stay, and so does everything decided so far. Models that were registered before say
    nothing about a new class, until another one votes for it.
    """
    held = Store(store)
    if append is None and weight is not None:
        raise InvalidParameter("A weight goes with classes to --append.")
    if append is not None:
        text = append if "," in append or Path(append).is_file() else f"{append},"
        if text != append and (Path(append).suffix or "/" in append):
            hint = f"If that is a class, write '{append},'."
            raise InvalidParameter.of("append", "a file that exists, or names", append, hint=hint)
        names = read_names(text, held.classes.kind.__name__)
        weights = None if weight is None else dict.fromkeys(names, weight)
        held.append_classes(names, weights=weights)
    listed = list(held.classes)
    tell(as_json, {"classes": listed}, "\n".join(str(name) for name in listed))


@click.command("add")
@store_argument
@click.argument("file")
@click.option("--id", "id_column", default="id", show_default=True, help="The column of ids.")
@executor_option
@as_json_option
def add_command(store: str, file: str, id_column: str, executor: str, as_json: bool) -> None:
    """Add the items in FILE; other columns become their payload.

    FILE is a .parquet, .csv or .jsonl file, a folder or glob of them, or an object-store URI; it is
    read a batch at a time.

    Ids are strings or integers. An id that occurs twice, or is in the store already, refuses the
    whole file; only if all items are in the store just as given, there is nothing to do.
    """
    count = Store(store, executor=executor).add(file, id=id_column)
    done = f"{counted(count, 'item')} added"
    tell(
        as_json, {"added": count}, done if count else "Done already: the store has all these items."
    )


@click.command("import")
@store_argument
@click.argument("files", nargs=-1, required=True)
@click.option("--id", "id_column", default="id", show_default=True, help="The column of ids.")
@click.option("--label", "labels", multiple=True, required=True, help="A column of votes.")
@click.option("--model", "models", multiple=True, required=True, help="Whose votes these are.")
@click.option(
    "--soft",
    "softs",
    multiple=True,
    metavar="[MODEL=]COLUMNS",
    help="Class probabilities: a column of lists, 'p_{class}', or CLASSES:SCORES of the top ones.",
)
@click.option("--payload", metavar="A,B", help="Keep only these columns ('': none). [default: all]")
@click.option(
    "--rule",
    help="When labels change, from the second model on; as of `update`.",
)
@_model_options
@click.option("--dry-run", is_flag=True, help="Read and check everything, change nothing.")
@executor_option
@as_json_option
def import_command(
    store: str,
    files: tuple[str, ...],
    id_column: str,
    labels: tuple[str, ...],
    models: tuple[str, ...],
    softs: tuple[str, ...],
    payload: str | None,
    rule: str,
    dry_run: bool,
    executor: str,
    as_json: bool,
    **said: Any,
) -> None:
    """Make items and their labels from predictions that exist; no model is run.

    FILES are Parquet, CSV or JSON lines: files, folders, 'quoted/*.parquet' or s3://bucket/prefix.
    All is read and checked first: if anything is wrong, nothing is imported. The same import given
    twice is done once; killed, it goes on.

    \b
    With the truth of some of the items, by id:
      posterity import photos preds.parquet --id path --label pred --model old \\
          --labelled truth.csv
    Several models, in their order of arrival; registered before, or with a wide labelled file:
      posterity import photos 'preds/*.parquet' --label v1 --model v1 --label v2 --model v2 \\
          --labelled val.csv
    """
    if len(labels) != len(models):
        raise InvalidParameter(
            f"Each --label needs its --model; got {len(labels)} and {len(models)}."
        )
    for option in ("vote", "accuracy", "confusion"):
        if len(models) > 1 and said[option] is not None:
            flag = "confusion-matrix" if option == "confusion" else option
            raise InvalidParameter(
                f"--{flag} tells about one model; got {len(models)}.",
                hint="Register each with `posterity model` first, or give one wide labelled file.",
            )
    held = Store(store, executor=executor)
    known = held._context().models
    told = _read_said(held, said | {"key": said["key"] or id_column})
    votes: dict[str, Model | str] = {}
    for label, name in zip(labels, models, strict=True):
        if label in votes:
            raise InvalidParameter(f"The column '{label}' is given twice.")
        votes[label] = name if name in known and not any(told.values()) else Model(name, **told)
    with progress_bar("Importing", "items") as progress:
        done = held.import_predictions(
            list(files),
            votes,
            id=id_column,
            soft=_softs(softs, models),
            payload=None
            if payload is None
            else [n.strip() for n in payload.split(",") if n.strip()],
            rule=rule,
            dry_run=dry_run,
            progress=progress,
        )
    tell(as_json, done)


def _softs(given: tuple[str, ...], models: tuple[str, ...]) -> dict[str, str]:
    softs = {}
    for text in given:
        name, equals, columns = text.partition("=")
        if not equals and len(models) > 1:
            raise InvalidParameter.of("soft", "MODEL=COLUMNS where there are several models", text)
        softs[name if equals else models[0]] = columns if equals else text
    return softs


def _read_said(held: Store, said: dict[str, Any]) -> dict[str, Any]:
    """The options of a model as its arguments; those left out are left out."""
    own, other = said.pop("model_classes", None), said.pop("other", None)
    told = dict(said)
    if own is not None:
        told["classes"] = _own_names(own, held.classes.kind)
    if other is not None:
        told["other"] = typed_name(other, held.classes.kind)
    if all(told.get(name) is None for name in ("labelled", "confusion")):
        told.pop("truth", None)
        told.pop("key", None)
    return {name: value for name, value in told.items() if value is not None}


def _own_names(given: str, kind: type) -> list[Any]:
    """A model's own classes: of the type of ours, where they all can be."""
    names = read_names(given)
    try:
        return [typed_name(name, kind) for name in names]
    except InvalidData:
        return names


@click.command("model")
@store_argument
@click.argument("name")
@_model_options
@click.option("--predict", metavar="SOURCE", help="MODULE:NAME, or an adapter; see docs/models.md.")
@click.option(
    "--soft",
    type=int,
    metavar="M",
    help="Keep and fold the top M class probabilities. [default: 5]",
)
@click.option(
    "--labelled-soft",
    metavar="COLUMNS",
    help="Class probabilities in the labelled file, as in `import --soft`: they are calibrated on.",
)
@click.option("--cost", type=float, help="The price of one evaluation.")
@as_json_option
def model_command(store: str, name: str, as_json: bool, **said: Any) -> None:
    """Register the model NAME, and say how it errs: one of

    \b
    a labelled file with its votes (alone, or one column among those of other models):
      posterity model photos vit-l --labelled val.parquet --truth y --vote vit_l
    the truth of stored items by id, which becomes their label; it votes on those first:
      posterity model photos vit-l --labelled truth.csv --predict mypackage.models:vit
    the truth an earlier model came with in that way:
      posterity model photos vit-l --predict mypackage.models:vit
    a confusion matrix, or only one accuracy:
      posterity model photos vit-l --confusion-matrix confusion.csv
      posterity model photos vit-l --accuracy 0.83
    """
    held = Store(store)
    done = held.register(Model(name, **_read_said(held, said)))
    tell(as_json, done)
