"""A path means the same wherever it is used: for stores, for files that are read and written."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

from posterity import Store
from posterity.cli import cli
from posterity.errors import InvalidParameter, StoreError
from posterity.storage.files import open_files
from tests.s3 import serving_s3
from tests.stores import NAMES, World

GOOD = [
    "a b",
    "a#b",
    "a?b",
    "100%",
    "a%zz",
    "ä日本🙂",
    "a+b&c=d",
    "a{b}",
    "a'b\"c`",
    "a*b;:~,@$<>",
    " ",
]
ONLY_FILES = ["a%20b", "%25", "a%2Fb", "a\\b", "a[b]", "a^b", "a|b", "a\tb", "a\nb", "\udce4"]
"""Paths that Delta Lake cannot use; files of other kinds can have them."""


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with serving_s3("paths") as options:
        yield options


def use(store: Store, world: World) -> None:
    """Everything that reads or writes: tables, files beside them, filters, runs."""
    store.add(world.table())
    store.update(world.model("old"))
    store.update(world.model("new"), budget="50%", where="lang = 'en'")
    assert len(store.steps) == 2
    assert len(store.history("item-7")) > 0
    store.compact()
    store.vacuum(hours=0)
    assert store.check() == []


@pytest.mark.parametrize("name", GOOD)
def test_a_store_is_where_its_path_says(tmp_path: Path, name: str) -> None:
    root = tmp_path / name / "store"
    world = World()
    use(Store.create(root, classes=NAMES, shard_rows=25), world)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert [path.name for path in (tmp_path / name).iterdir()] == ["store"]
    assert {"posterity.json", "items", "ledger"} <= {path.name for path in root.iterdir()}
    assert Store(root.as_uri()).labels() == Store(root).labels()


@pytest.mark.parametrize("name", ONLY_FILES)
def test_a_path_that_delta_lake_cannot_use_is_refused(tmp_path: Path, name: str) -> None:
    for root in (tmp_path / name, tmp_path / name / "store"):
        with pytest.raises(StoreError, match="cannot hold a store: Delta Lake cannot use paths"):
            Store.create(root, classes=NAMES)
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / name)  # Delta Lake looks behind links
    with pytest.raises(StoreError, match="cannot hold a store"):
        Store.create(tmp_path / "link", classes=NAMES)
    assert {path.name for path in tmp_path.rglob("*")} == {"real", name, "link"}


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Store.create("../a b", classes=NAMES)
    assert {path.name for path in tmp_path.iterdir()} == {"here", "a b"}
    assert len(Store(tmp_path / "a b")) == 0


@pytest.mark.parametrize("name", [*GOOD, *ONLY_FILES[:-1]])
def test_files_are_read_and_written_where_their_path_says(tmp_path: Path, name: str) -> None:
    world = World()
    folder = tmp_path / "inputs" / name
    folder.mkdir(parents=True)
    pa_csv.write_csv(world.table()[:20], folder / f"{name}.csv")
    pa_csv.write_csv(world.table()[20:40], folder / "more.csv")
    store = Store.create(tmp_path / "store", classes=NAMES)
    assert store.add(folder / f"{name}.csv") == 20
    assert store.add((folder / "more.csv").as_uri()) == 20
    out = tmp_path / "out"
    out.mkdir()
    for target in (out / f"{name}.csv", (out / "uri.csv").as_uri()):
        arguments = ["labels", str(tmp_path / "store"), "--out", str(target)]
        with pytest.raises(SystemExit) as ended:
            cli(arguments)
        assert ended.value.code == 0
    assert {path.name for path in out.iterdir()} == {f"{name}.csv", "uri.csv"}


@pytest.mark.parametrize("uri", ["file://elsewhere/data/a.csv", "file://a.csv"])
def test_a_file_uri_of_another_machine_is_refused(uri: str) -> None:
    with pytest.raises(InvalidParameter, match="a file URI names no other host"):
        open_files(uri)


@pytest.mark.long
@pytest.mark.parametrize("name", ["a b", "a%20b", "a#b", "a?b", "ä日本", "100%", "a\\b", "a[b]^|"])
def test_keys_are_taken_as_they_are_written(server: dict[str, str], name: str) -> None:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=server["AWS_ENDPOINT_URL"],
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )
    world, prefix = World(), uuid.uuid4().hex
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(world.table(), sink)
    content = sink.getvalue().to_pybytes()
    client.put_object(Bucket="paths", Key=f"{prefix}/{name}/in/{name}.csv", Body=content)
    root = f"s3://paths/{prefix}/{name}/store"
    if name == "a%20b":
        with pytest.raises(StoreError, match="cannot hold a store: Delta Lake cannot use paths"):
            Store.create(root, classes=NAMES, options=server)
        root = f"s3://paths/{prefix}/store"
    store = Store.create(root, classes=NAMES, shard_rows=25, options=server)
    assert store.add(f"s3://paths/{prefix}/{name}/in/{name}.csv") == 60
    store.update(world.model("old"))
    store.update(world.model("new"), budget="50%", where="lang = 'en'")
    assert Store(root, server).check() == []
    listed = client.list_objects_v2(Bucket="paths")["Contents"]
    own = [one["Key"] for one in listed if prefix in one["Key"]]
    place = root.removeprefix("s3://paths/")
    assert all(key.startswith((f"{prefix}/{name}/in/", f"{place}/")) for key in own)
    assert f"{place}/posterity.json" in own
    other = Store.create(f"{root}-2", classes=NAMES, options=server)
    assert other.add(f"s3://paths/{prefix}/{name}/in/") == 60
    client.close()
