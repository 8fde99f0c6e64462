"""What is kept of results and stores: digests with a few figures, without what time changes."""

from __future__ import annotations

import hashlib
import io
import json
import re
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

Frozen = dict[str, Any]

VOLATILE = frozenset(
    {
        *("time", "created", "started", "made", "seconds"),
        *("run", "plan", "request", "path", "store"),
        *("software", "format", "kernel"),
    }
)
"""Fields that differ between two runs of the same, or that say which software wrote them."""
_RUN = re.compile(r"\b[0-9a-f]{12}-[0-9a-f]{8}\b")
_ADDRESS = re.compile(r"\b(?:[0-9a-f]{12}|[0-9a-f]{16,64})\b")
"""Names made of a content's digest; that of a store is kept apart, see ``contents``."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.]\d+)?(?:\+00:00| UTC|Z)?")
LEAVES = 4000
"""JSON longer than this is kept as a digest."""


def clean(value: Any, folder: Path | None = None) -> Any:
    """The same without times, ids of runs, places and versions."""
    if isinstance(value, dict):
        return {
            str(key): clean(each, folder)
            for key, each in value.items()
            if key not in VOLATILE or isinstance(each, (dict, list))
        }
    if isinstance(value, (list, tuple)):
        return [clean(each, folder) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, str):
        return value
    if folder is not None:
        value = value.replace(str(folder), "FOLDER")
    return _MOMENT.sub("TIME", _ADDRESS.sub("ADDRESS", _RUN.sub("RUN", value)))


def text(value: Any) -> str:
    """As JSON, numbers to the last bit: Python writes the shortest text that is read the same."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def digest(value: Any) -> str:
    """A fingerprint."""
    return hashlib.sha256(text(value).encode()).hexdigest()[:32]


def short(value: Any) -> Any:
    """The value itself, or the parts of it that are too long as digests."""
    if len(text(value)) <= LEAVES:
        return value
    if isinstance(value, dict):
        return {key: short(each) for key, each in value.items()}
    return {"length": len(value), "digest": digest(value)}


def table(rows: pa.Table) -> Frozen:
    """Rows whatever their order: a digest, and figures that help to see what differs."""
    listed = sorted(text(row) for row in rows.to_pylist())
    sums = {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            values = sorted(value for value in column.to_pylist() if value is not None)
            sums[name] = {"count": len(values), "sum": sum(values)}
    return {
        "rows": rows.num_rows,
        "schema": {field.name: str(field.type) for field in rows.schema},
        "sums": sums,
        "digest": digest(listed),
    }


def contents(folder: str | Path) -> Frozen:
    """All a store on this machine holds, read without Posterity."""
    where = Path(folder)
    found: Frozen = {"description": clean(json.loads((where / "posterity.json").read_text()))}
    addresses: Frozen = {}
    for log in sorted(where.glob("*/_delta_log")):
        name = log.parent.name
        rows = pa.table(DeltaTable(str(log.parent)).to_pyarrow_table())
        if name == "ledger":
            told = rows.filter(pc.is_valid(rows["header"])).sort_by("step")["header"].to_pylist()
            headers = [clean(json.loads(header)) for header in told]
            found["headers"] = {str(header["step"]): short(header) for header in headers}
            rows = rows.filter(pc.is_null(rows["header"])).drop_columns(["header"])
        if name == "models":
            settings = [json.loads(each) for each in rows["settings"].to_pylist()]
            addresses["labelled"] = sorted(
                f"{model}: {each['digest']}"
                for model, each in zip(rows["name"].to_pylist(), settings, strict=True)
            )
            at = rows.column_names.index("settings")
            rows = rows.set_column(at, "settings", [[text(clean(each)) for each in settings]])
        if name == "labelled":
            rows = rows.drop_columns(["digest"])
        found[name] = table(rows)
    fits = sorted(where.glob("fits/*.npz"))
    addresses["fits"] = [fit.name for fit in fits]
    found["fits"] = sorted(_arrays(fit) for fit in fits)
    return {**found, "addresses": addresses}


def _arrays(path: Path) -> str:
    with np.load(path) as archive:
        parts = {key: archive[key] for key in sorted(archive.files)}
    told = {key: [str(each.dtype), each.shape, each.tolist()] for key, each in parts.items()}
    return digest(told)


def command(folder: Path, *arguments: str) -> Frozen:
    """What ``python -m posterity`` prints, and its exit code; JSON is read."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", ["posterity", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            runpy.run_module("posterity", run_name="__main__")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(bool(end.code))
    printed: Any = out.getvalue()
    if "--json" in arguments and printed.strip():
        printed = json.loads(printed)
    told: Frozen = {"exit": code, "out": short(clean(printed, folder))}
    if err.getvalue().strip():
        told["err"] = clean(err.getvalue(), folder)
    return told
