"""Commands that show a store to people: serve, report."""

from __future__ import annotations

import json
from pathlib import Path

import click

from posterity.cli.output import as_json_option, columns_option, listed, store_argument, tell
from posterity.errors import InvalidParameter
from posterity.storage.output import written_whole
from posterity.store import Store
from posterity.web.server.serve import HOST, PORT, serve

SUFFIXES = (".html", ".md", ".json")


@click.command("serve")
@store_argument
@click.option("--host", default=HOST, show_default=True, help="The address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="0: any that is free.",
)
@click.option("--allow-writes", is_flag=True, help="Let people plan, revert and review, too.")
@click.option(
    "--token",
    envvar="POSTERITY_TOKEN",
    help="What a visitor must have; better in the environment as POSTERITY_TOKEN. [default: none"
    " on this machine alone, a new one elsewhere]",
)
@click.option(
    "--pictures",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    help="Folder of the pictures that payloads name; nothing outside it is read. [default: here]",
)
@columns_option
@click.option("--open", "open_it", is_flag=True, help="Open it in a browser.")
@as_json_option
def serve_command(
    store: str,
    host: str,
    port: int,
    allow_writes: bool,
    token: str | None,
    pictures: str,
    columns: str | None,
    open_it: bool,
    as_json: bool,
) -> None:
    """Pages over STORE: its history, a planner, the flips of each step, the story of each item,
    how models err, and a queue for review. Each has a JSON twin: /flips.json beside /flips.

    Only this machine can reach it, and nothing can be changed, unless told otherwise. At another
    --host a token is needed; it is printed once, as part of the address. There is no encryption:
    put a proxy with TLS before it, or come through ssh.

    \b
      posterity serve photos
      posterity serve photos --allow-writes --open
      posterity serve photos --host 0.0.0.0 --port 8080
    """
    held = Store(store)

    def announce(address: str) -> None:
        kind = "changes are allowed" if allow_writes else "read-only"
        about = {"url": address, "store": store, "writes": allow_writes}
        tell(as_json, about, f"{store} at {address} ({kind}); stop with Ctrl+C")
        if open_it:
            click.launch(address)

    serve(
        held,
        host=host,
        port=port,
        writes=allow_writes,
        token=token,
        pictures=Path(pictures),
        columns=listed(columns),
        tell=announce,
    )


@click.command("report")
@store_argument
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    help="Where to write it: .html (one file with pictures, needs the extra 'web'), .md or .json."
    " [default: -, which is Markdown, printed]",
)
@click.option("--step", type=int, help="Only this step: what it changed, and can it be trusted.")
@click.option(
    "--pictures",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False),
    help="Include pictures that payloads name, from this folder; nothing outside it is read.",
)
@columns_option
@as_json_option
def report_command(
    store: str,
    out: str | None,
    step: int | None,
    pictures: str | None,
    columns: str | None,
    as_json: bool,
) -> None:
    """STORE as a report for a colleague without Python: its steps, what they fixed and broke, how
    sure beliefs are and how far they can be trusted, and what the next step would bring.

    \b
      posterity report photos -o report.html
      posterity report photos --step 7 -o last-night.html
      posterity report photos --step 7 -o last-night.md
    """
    from posterity.web.report.summary import summary

    target = None if out in (None, "-") else Path(out)
    if target is not None and target.suffix.lower() not in SUFFIXES:
        raise InvalidParameter.of("out", "a .html, .md or .json file", out)
    if target is not None and not target.absolute().parent.is_dir():
        raise InvalidParameter.of("out", "a file in a folder that exists", out)
    found = summary(Store(store), step, pictures=pictures, columns=listed(columns))
    if target is None:
        tell(as_json, found.to_dict(), found.to_markdown().removesuffix("\n"))
        return
    suffix = target.suffix.lower()
    if suffix == ".json":
        content = json.dumps(found.to_dict(), ensure_ascii=False, allow_nan=False, indent=1)
    else:
        content = found.to_markdown() if suffix == ".md" else found.to_html()
    with written_whole(target) as beside:
        beside.write_text(content, encoding="utf-8")
    size = len(content.encode())
    tell(
        as_json,
        {"file": out, "bytes": size},
        f"{out}: {size / 1e6:.1f} MB" if size > 1e5 else f"{out}: {size:,} bytes",
    )
