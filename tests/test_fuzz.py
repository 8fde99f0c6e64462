"""Whatever a file holds: no traceback, and the store is intact."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posterity import Store, cli
from tests.stores import World, contents, small_store, write_table

CASES = int(os.environ.get("POSTERITY_FUZZ", "120"))

value = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(
        ["cat", "dog", "item-1", "item-2", "", "\ufeff", "id", "vote", "é\n", '"', "'"]
    ),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
    st.lists(st.sampled_from(["cat", "dog", 0.5, 0.1]), max_size=2),
)
name = st.sampled_from(["id", "truth", "vote", "row", "shard", "x", "", "ID"])


@st.composite
def contents_of_files(draw: st.DrawFn) -> tuple[str, bytes]:
    suffix = draw(st.sampled_from([".csv", ".jsonl", ".parquet", ".ndjson", ".txt", ""]))
    kind = draw(st.sampled_from(["bytes", "text", "rows", "table", "cut"]))
    if kind == "bytes":
        return suffix, draw(st.binary(max_size=200))
    if kind == "text":
        return suffix, draw(st.text(max_size=200)).encode(
            "utf-16" if draw(st.booleans()) else "utf-8"
        )
    columns = draw(st.lists(name, min_size=1, max_size=4, unique=True))
    rows = [{column: draw(value) for column in columns} for _ in range(draw(st.integers(0, 4)))]
    if kind == "rows" or not rows:
        lines = [json.dumps(row) for row in rows]
        if suffix == ".csv":
            lines = [",".join(columns)] + [",".join(str(cell) for cell in r.values()) for r in rows]
        return suffix, "\n".join(lines).encode("utf-8", "surrogatepass")
    try:
        table = pa.table({column: [row[column] for row in rows] for column in columns})
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return suffix, b""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    whole = sink.getvalue().to_pybytes()
    return ".parquet", whole[: len(whole) // 2] if kind == "cut" else whole


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz") / "store"
    world = World()
    store = small_store(path, world)
    store.register(world.model("new"))
    return path


@pytest.mark.long
@given(
    content=contents_of_files(),
    command=st.sampled_from(["add", "model", "update", "prior", "import", "soft import", "review"]),
)
@settings(max_examples=CASES, suppress_health_check=list(HealthCheck))
def test_no_file_breaks_a_store(
    content: tuple[str, bytes],
    command: str,
    pristine: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("case", numbered=True)
    file = folder / f"given{content[0]}"
    file.write_bytes(content[1])
    # Beside the folder, which is imported as a whole.
    path = tmp_path_factory.mktemp("store", numbered=True) / "store"
    shutil.copytree(pristine, path)
    before = contents(Store(path))
    arguments = {
        "add": ["add", str(path), str(file)],
        "model": ["model", str(path), "third", "--labelled", str(file)],
        "update": ["update", str(path), "new", "--votes", str(file), "--budget", "100%"],
        "import": ["import", str(path), str(file), "--label", "vote", "--model", "new"],
        "soft import": [
            *("import", str(path), str(folder), "--label", "vote", "--model", "third"),
            *("--accuracy", "0.7", "--soft", "truth:x", "--payload", ""),
        ],
        "review": ["review", str(path), "--answers", str(file), "--answer", "vote"],
        "prior": ["init", str(folder / "other"), "--classes", str(file)],
    }[command]
    os.environ[cli.TRACEBACK] = ""
    told = Told()
    code = told.run([*arguments, "--json"])
    assert code in (0, 1, 2)
    if code:
        assert told.kind != "bug", told.text
        assert contents(Store(path)) == before
        assert Store(path).status()["models"] == ["old", "new"]
    assert Store(path).check() == []
    shutil.rmtree(folder)
    shutil.rmtree(path.parent)


class Told:
    """What a command prints on stderr, read as the error object it must be."""

    kind = ""
    text = ""

    def run(self, arguments: list[str]) -> int:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.run(arguments)
        self.text = err.getvalue()
        if code:
            self.kind = json.loads(self.text)["error"]["kind"]
        return code


def test_files_are_written_in_every_form(tmp_path: Path) -> None:
    for suffix in ("csv", "jsonl", "parquet"):
        write_table(World().table(), tmp_path / f"items.{suffix}")
        assert (tmp_path / f"items.{suffix}").stat().st_size > 100
