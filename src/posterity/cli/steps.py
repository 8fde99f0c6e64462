"""Commands that change a store, or would: remove, plan, compare, update, revert, settle, …"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posterity._text import counted
from posterity.cli.output import (
    as_json_option,
    confirmed,
    exact_option,
    executor_option,
    plain_table,
    progress_bar,
    store_argument,
    tell,
    with_options,
)
from posterity.engine.evaluation.evaluate import BATCH, MAX_ERRORS, Evaluation
from posterity.engine.evaluation.vote_file import VoteFile
from posterity.engine.maintenance import RETENTION_HOURS
from posterity.errors import UnknownName, Untrusted
from posterity.models.model import Model
from posterity.storage.files import local_path
from posterity.storage.output import write_batches
from posterity.store import Store

if TYPE_CHECKING:
    from posterity.engine.ledger.reports import Report


@click.command("remove")
@store_argument
@click.argument("items", nargs=-1, required=True)
@as_json_option
def remove_command(store: str, items: tuple[str, ...], as_json: bool) -> None:
    """Remove items by id: gone at once, purged from every table at the next `compact`."""
    held = Store(store)
    read_id = held._context().read_id
    count = held.remove([read_id(item) for item in items])
    done = counted(count, "item") if count else "Done already: all of these items were"
    tell(as_json, {"removed": count}, f"{done} removed; `posterity compact {store}` purges them")


_step_options = with_options(
    click.option("--more", is_flag=True, help="Go on with a model where its last step stopped."),
    click.option(
        "--budget",
        help="Of this step: a share (10% or 0.1) of the items that have a label, besides all items"
        " without one (0%: these alone); or a count (500), which limits both. Of all steps that are"
        " given the same words: total:AMOUNT[,horizon=STEPS][,price=P], the amount in what"
        " evaluations cost, or total:160% of the items. At a price: price:P, what a net correction"
        " is worth. [default: 10%]",
    ),
    click.option(
        "--selector",
        help="value (what a vote could change), contested (few or contradicting votes), entropy,"
        " random[:SEED], everything. [default: the store's policy, at first value; with plain"
        " beliefs entropy]",
    ),
    click.option(
        "--rule",
        help="When a label changes. balanced: chosen on the labelled set, most corrections with few"
        " broken labels; cost-ratio:C if one broken label costs C fixed ones; at-most:0.5% to"
        " promise a limit; other names as in `replay --help`. With +confirm a flip waits for the"
        " item's next vote, or the next update without one; with +two-votes only classes with two"
        " votes become labels. [default: the store's policy, at first balanced; with plain beliefs"
        " cost-ratio:10]",
    ),
    click.option("--where", metavar="SQL", help="Only items whose payload satisfies this."),
    click.option("--seed", default=0, show_default=True, help="For random selection."),
)
"""What plan and update have in common."""


@click.command("plan")
@store_argument
@click.argument("model")
@_step_options
@click.option("--out", metavar="FILE", help="Write the planned items with their payload.")
@exact_option
@executor_option
@as_json_option
def plan_command(
    store: str,
    model: str,
    out: str | None,
    exact: bool,
    executor: str,
    as_json: bool,
    **step: Any,
) -> None:
    """Choose items for MODEL within the budget; nothing is spent.

    The plan is kept under its id; `update --plan ID` carries out exactly this plan.
    """
    held = Store(store, executor=executor)
    plan = held.plan(model, **step)
    if out is not None:
        write_batches(held.planned_batches(plan), Path(local_path(out)), exact=exact)
    tell(as_json, plan, str(plan) + (f"\nitems in {out}" if out else ""))


@click.command("compare")
@store_argument
@click.argument("models", nargs=-1, required=True)
@click.option("--money", type=float, required=True, help="What may be spent, as --cost is given.")
@click.option("--rule", help="As of `plan`.")
@click.option("--selector", help="As of `plan`.")
@executor_option
@as_json_option
def compare_command(
    store: str,
    models: tuple[str, ...],
    money: float,
    rule: str | None,
    selector: str | None,
    executor: str,
    as_json: bool,
) -> None:
    """What the same money would bring with each of MODELS: a cheap one on many items, or a dear
    one on few. Nothing is spent.

    Each has to be registered with what an evaluation costs (`model --cost`). The labelled items go
    through the step each model would make; net corrections are corrections less new errors.

    \b
      posterity compare photos vit-l clip-large --money 250
    """
    found = Store(store, executor=executor).compare(models, money, rule=rule, selector=selector)
    rows = [choice.to_row() for choice in found]
    tell(as_json, {"choices": [choice.to_dict() for choice in found]}, plain_table(rows))


@click.command("update")
@store_argument
@click.argument("model")
@_step_options
@click.option("--votes", metavar="FILE", help="Votes made elsewhere, instead of asking the model.")
@click.option("--id", "id_column", default="id", show_default=True, help="Its column of ids.")
@click.option("--vote", default="vote", show_default=True, help="Its column of votes.")
@click.option("--soft", metavar="COLUMNS", help="Its soft votes, as in `import --help`.")
@click.option("--strict", is_flag=True, help="Refuse a file that lacks planned items.")
@click.option("--keep-unplanned", is_flag=True, help="Fold a file's votes on other items too.")
@click.option("--plan", metavar="ID", help="Carry out exactly this plan.")
@click.option("--resume", "run", metavar="RUN", help="Go on with this unfinished run.")
@click.option("--rebase", is_flag=True, help="Fold votes planned at an older step.")
@click.option("--predict", metavar="SOURCE", help="Ask this: MODULE:NAME, or an adapter.")
@click.option("--trust", is_flag=True, help="Run the source the store names; asked once per store.")
@click.option(
    "--batch",
    default=BATCH,
    show_default=True,
    help="Items per call of the model, or fewer if they exceed 64 MiB.",
)
@click.option("--max-errors", default=MAX_ERRORS, show_default=True, help="Stop after more.")
@click.option(
    "--retry-errors",
    is_flag=True,
    help="Try all items again the model failed on, not only those without a label.",
)
@click.option(
    "--replicas",
    metavar="COUNT[,NEEDS]",
    help="On a cluster: copies of the model, and what each needs, as 4,cpus=2,gpus=1,memory=8GiB."
    " One that holds more memory is replaced. [default: as many as there are CPUs]",
)
@executor_option
@as_json_option
def update_command(
    store: str,
    model: str,
    votes: str | None,
    id_column: str,
    predict: str | None,
    plan: str | None,
    run: str | None,
    executor: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Let MODEL vote on the most uncertain items within the budget, and decide their labels.

    Items without a label come first. Killed at any moment, the same command goes on where it was:
    no finished batch is evaluated again. Given twice, it does the work once; items added since, and
    all that have no label, are new work.

    \b
    Ask the model:
      posterity update photos vit-l --budget 10% --predict mypackage.models:vit
    Evaluate elsewhere:
      posterity plan photos vit-l --budget 10% --out todo.parquet
      posterity update photos vit-l --budget 10% --votes votes.parquet --id path --vote pred
    On a Ray cluster, with four copies of the model on a GPU each:
      posterity update photos vit-l --executor ray --replicas 4,gpus=1
    """
    columns = {name: options.pop(name) for name in ("vote", "soft", "strict", "keep_unplanned")}
    how = Evaluation(
        **{name: options.pop(name) for name in ("batch", "max_errors", "retry_errors", "replicas")}
    )
    asked: Model | str = model if predict is None else Model(model, predict=predict)
    held = Store(store, executor=executor)
    known = held._context().models
    if model not in known:  # a slip of the finger must not make a model
        raise UnknownName.among("model", model, known)

    def carry_out(**trust: bool) -> Report:
        with progress_bar("Evaluating", "items") as progress:
            told = options | {"plan": plan or run, "progress": progress}
            file = None if votes is None else VoteFile(votes, id=id_column, **columns)
            return held.update(asked, votes=file, evaluation=how, **told | trust)

    try:
        report = carry_out()
    except Untrusted as refused:
        if as_json or not confirmed(refused.message, "Run it?"):
            raise
        report = carry_out(trust=True)
    tell(as_json, report)


@click.command("revert")
@store_argument
@click.argument("step", type=int)
@executor_option
@as_json_option
def revert_command(store: str, step: int, executor: str, as_json: bool) -> None:
    """Undo STEP by a new step: its votes no longer count, and the labels they touched are decided
    anew. Nothing is deleted, and a revert can be reverted.
    """
    done = Store(store, executor=executor).revert(step)
    tell(as_json, done)


@click.command("redecide")
@store_argument
@click.option(
    "--rule",
    help="balanced, cost-ratio:C or max-belief. [default: the store's policy; see `tune`]",
)
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
@executor_option
@as_json_option
def redecide_command(
    store: str, rule: str | None, dry_run: bool, executor: str, as_json: bool
) -> None:
    """Decide every label again from votes already paid for, under another rule.

    No model is evaluated. Use it after changing your mind about the rule: with a lower cost ratio
    more labels follow the votes. Changes made before stay, also under a higher ratio: `revert`
    takes a step back. Labels that people decided stay. It is one step, and `revert` undoes it.

    \b
      posterity redecide photos --dry-run
      posterity redecide photos --rule cost-ratio:2
    """
    tell(as_json, Store(store, executor=executor).redecide(rule, dry_run=dry_run))


@click.command("tune")
@store_argument
@click.argument("model", required=False)
@click.option(
    "--goal",
    help="balance:SHARE (fewest broken labels with at least this share of the highest gain in"
    " accuracy, over the history and at its end), soon:SHARE or final:SHARE (only one of the two),"
    " ratio:C (a broken label costs C fixed ones), at-most:SHARE (a promise for each step)."
    " [default: balance:90%]",
)
@click.option("--budget", help="Of the next step, as 10% or 500. [default: 10%]")
@click.option("--apply", is_flag=True, help="Let later plans and updates follow the choice.")
@executor_option
@as_json_option
def tune_command(store: str, executor: str, as_json: bool, **asked: Any) -> None:
    """Find the selector and rule that serve your goal best, on your own labelled items.

    The labelled items go through the store's steps and the next one, of MODEL, under some 50
    policies. No model is evaluated, and nothing is spent. The table shows the policies that no
    other beats in every respect; accuracy over the history counts how soon labels get better. The
    choice is checked: it is made on one half of the items and scored on the other.

    \b
      posterity tune photos
      posterity tune photos vit-l --goal ratio:5 --budget 20%
      posterity tune photos --goal final:95% --apply
    """
    with progress_bar("Trying policies") as progress:
        found = Store(store, executor=executor).tune(**asked, progress=progress)
    tell(as_json, found)


@click.command("settle")
@store_argument
@executor_option
@as_json_option
def settle_command(store: str, executor: str, as_json: bool) -> None:
    """Make all flips that a rule with +confirm has left pending, by a step of its own.

    Without it they wait for the item's next vote, which makes or drops them; an update that does
    not look at the item makes them too. Can be undone with `revert`.
    """
    done = Store(store, executor=executor).settle()
    tell(as_json, done)


@click.command("compact")
@store_argument
@executor_option
@as_json_option
def compact_command(store: str, executor: str, as_json: bool) -> None:
    """Rewrite the tables as one file a shard, and purge removed items from every table.

    The old files stay on disk until `vacuum`.
    """
    done = Store(store, executor=executor).compact()
    tell(as_json, done)


@click.command("vacuum")
@store_argument
@click.option(
    "--hours",
    type=float,
    default=float(RETENTION_HOURS),
    show_default=True,
    help="Only those older than this; for replaced files rounded up to whole hours.",
)
@click.option("--dry-run", is_flag=True, help="Count them, delete nothing.")
@as_json_option
def vacuum_command(store: str, hours: float, dry_run: bool, as_json: bool) -> None:
    """Delete files that nothing refers to: replaced by a compaction, or left by a killed command.

    Safe beside running commands: one whose files were deleted before it could commit them writes
    them again. A command that reads files which were replaced longer ago than --hours may have to
    be run again.
    """
    count = Store(store).vacuum(hours=hours, dry_run=dry_run)
    files = f"{counted(count, 'file')} would be" if dry_run else counted(count, "file", "were")
    tell(as_json, {"files": count, "deleted": not dry_run}, f"{files} deleted")
