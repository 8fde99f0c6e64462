"""Kept plans: a plan under its id, until it is carried out or dropped."""

from __future__ import annotations

import json
from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq

from posterity.engine.context import Context
from posterity.engine.planning import Plan, Request
from posterity.engine.rowsets import STRETCH, RowSet
from posterity.errors import StoreError


def save_plan(context: Context, plan: Plan) -> None:
    """Keep a plan under its id: first its rows, then the small file that makes it count."""
    context.files.write(f"runs/{plan.id}/rows.parquet", _packed(plan.chosen))
    plain = ["id", "head", "items", "eligible", "affected", "cost", "rehearsed", "forecast"]
    plain += ["beliefs", "pending", "reconsidered", "spending"]
    told = {key: getattr(plan, key) for key in plain} | {"request": asdict(plan.request)}
    context.files.write(f"runs/{plan.id}/plan.json", json.dumps(told).encode())


def load_plan(context: Context, plan_id: str) -> Plan | None:
    """A kept plan; None if there is none of that id."""
    path = f"runs/{plan_id}/plan.json"
    if context.files.size(path) is None:
        return None
    try:
        told = json.loads(context.files.read(path).to_pybytes())
        kept = pa.BufferReader(context.files.read(f"runs/{plan_id}/rows.parquet"))
        rows = RowSet(told["items"])
        for part in pq.ParquetFile(kept).iter_batches(STRETCH, columns=["row"]):
            rows.mark(part.column("row").to_numpy())
    except (ValueError, KeyError, IndexError, OSError) as error:
        raise StoreError(f"The plan '{plan_id}' is damaged: {error}.") from None
    request = Request(**told.pop("request"))
    return Plan(request=request, chosen=rows, **told)


def _packed(rows: RowSet) -> pa.Buffer:
    """Rows as Parquet, of which no more than a part is held in any other form."""
    sink, schema = pa.BufferOutputStream(), pa.schema([("row", pa.int64())])
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=False,
        column_encoding={"row": "DELTA_BINARY_PACKED"},
    ) as writer:
        for part in rows.stretches():
            if len(part):
                writer.write_table(pa.table({"row": part}, schema))
    return sink.getvalue()
