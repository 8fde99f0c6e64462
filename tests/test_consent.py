"""A store made by somebody else runs nothing on this machine that nobody here has allowed."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from posterity import Model, Store
from posterity.cli import run
from posterity.engine.evaluation import consent
from posterity.errors import InvalidParameter, PosterityWarning, Untrusted
from tests.stores import World, small_store

MODULE = "somebodys_model"
SOURCE = f"{MODULE}:predict"
CODE = """
from pathlib import Path
Path("imported").touch()
def predict(batch):
    return ["owl"] * len(batch)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the code that a store names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{MODULE}.py").write_text(CODE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(consent, "_allowed", set())
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return tmp_path


def another_machine(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", tempfile.mkdtemp(dir=here))
    monkeypatch.setattr(consent, "_allowed", set())


@pytest.fixture
def theirs(here: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store whose model was registered on another machine."""
    world = World()
    store = small_store(here / "store", world)
    told = Model("new", labelled=world.labelled_table("new"), predict=SOURCE)
    store.register(told)
    another_machine(monkeypatch, here)
    return store


def test_an_update_runs_nothing_unasked(
    theirs: Store, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["update", "store", "new", "--budget", "5"]) == 1
    told = capsys.readouterr().err
    assert SOURCE in told
    assert "--trust" in told
    with pytest.raises(Untrusted, match="trust=True"):
        theirs.update("new", budget=5)
    assert not (here / "imported").exists()
    assert len(theirs.steps) == 1


def test_a_decision_is_kept_for_this_store_and_source(
    theirs: Store, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["update", "store", "new", "--budget", "5", "--trust"]) == 0
    monkeypatch.setattr(consent, "_allowed", set())  # as a new process has it
    theirs.update("new", budget=5, more=True)
    assert len(theirs.steps) == 3
    # Elsewhere, or with another source, it is another question.
    shutil.copytree(here / "store", here / "copy")
    with pytest.raises(Untrusted):
        Store("copy").update("new", budget=5, more=True)
    theirs.register(Model("new", predict="os:getcwd"))
    another_machine(monkeypatch, here)
    with pytest.raises(Untrusted, match="os:getcwd"):
        theirs.update("new", budget=5, more=True)
    # By another name for the same place it is the same.
    (here / "linked").symlink_to(here / "store")
    consent.allow(theirs._context().description.store, str(here / "linked"), "os:getcwd")
    assert consent.is_allowed(theirs._context().description.store, str(here / "store"), "os:getcwd")


def test_whoever_names_the_source_has_allowed_it(here: Path) -> None:
    world = World()
    store = small_store(here / "store", world)
    store.register(Model("mid", labelled=world.labelled_table("mid"), predict=SOURCE))
    store.update("mid", budget=5)
    own = Model("new", labelled=world.labelled_table("new"), predict=SOURCE)
    store.update(own, budget=5)
    store.update("new", budget=5, more=True)
    assert len(store.steps) == 4


@pytest.mark.usefixtures("theirs")
def test_whoever_names_a_source_on_the_command_line_has_allowed_it(here: Path) -> None:
    assert run(["update", "store", "new", "--budget", "5", "--predict", SOURCE]) == 0
    assert (here / "imported").exists()


def test_a_callable_is_the_callers_own(theirs: Store, here: Path) -> None:
    theirs.update(Model("new", predict=lambda batch: ["owl"] * len(batch)), budget=5)
    assert not (here / "imported").exists()


@pytest.mark.usefixtures("theirs")
def test_a_person_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def answer(yes: bool) -> None:
        def confirm(text: str, **_: object) -> bool:
            asked.append(text)
            return yes

        monkeypatch.setattr("click.confirm", confirm)

    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    answer(False)
    assert run(["update", "store", "new", "--budget", "5"]) == 1
    assert SOURCE in capsys.readouterr().err.split("Error:")[0]  # shown before the question
    assert run(["update", "store", "new", "--budget", "5", "--json"]) == 1
    assert len(asked) == 1
    answer(True)
    assert run(["update", "store", "new", "--budget", "5"]) == 0
    assert run(["update", "store", "new", "--budget", "5", "--more"]) == 0
    assert len(asked) == 2


@pytest.mark.parametrize("config", ["file/below", "readonly", "relative"])
def test_a_decision_that_cannot_be_kept_holds_for_now(
    theirs: Store, here: Path, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    (here / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", config if config == "relative" else str(here / config))
    monkeypatch.setenv("HOME", str(here / "file"))
    if config == "readonly":
        monkeypatch.setattr(Path, "write_text", _refuse)
    with pytest.warns(PosterityWarning, match="cannot be kept"):
        theirs.update("new", budget=5, trust=True)
    theirs.update("new", budget=5, trust=True, more=True)  # a second warning would be an error
    assert not (here / "relative").exists()


def _refuse(*_: object, **__: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_looking_runs_nothing(theirs: Store, here: Path) -> None:
    theirs.update(World().model("mid"), budget=30, rule="max-belief")
    item = theirs.labels().column("id")[0].as_py()
    for command in (
        *(["status", "store"], ["log", "store"], ["flips", "store"], ["labels", "store"]),
        *(["history", "store", item], ["explain", "store", item], ["check", "store"]),
        *(["plan", "store", "new"], ["plan", "store", "new", "--out", "items.csv"]),
        *(["review", "store"], ["report", "store", "-o", "report.html"]),
        *(["compact", "store"], ["vacuum", "store"], ["revert", "store", "1"]),
    ):
        assert run(command) == 0, command
    assert not (here / "imported").exists()


def test_items_are_not_sent_to_a_server_nobody_has_allowed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.path)
            self.send_error(500)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        world = World()
        store = small_store(here / "store", world)
        source = f"http://127.0.0.1:{server.server_address[1]}/predict,retries=0"
        store.register(Model("new", labelled=world.labelled_table("new"), predict=source))
        another_machine(monkeypatch, here)
        with pytest.raises(Untrusted, match=r"127\.0\.0\.1"):
            store.update("new", budget=5)
        server.shutdown()
        thread.join()
    assert not seen


@pytest.mark.parametrize(
    "query",
    *[
        [
            *("api_key=1", "apikey=1", "key=1", "token=1", "access_token=1", "sig=1", "a=1&KEY=2"),
            *("X-Amz-Signature=1", "subscription-key=1", "code=1", "client_secret=1", "%6bey=1"),
            *("password=1", "auth=1", "a=1;b=2&sv=1&sig=3", "key"),
        ]
    ],
)
def test_a_key_in_an_address_is_refused(query: str) -> None:
    with pytest.raises(InvalidParameter, match="environment variable") as told:
        Model("m", predict=f"https://host/predict?{query}")
    assert "=1" not in str(told.value)
    Model("m", predict="https://host/predict?version=2&keyboard=de&monkey=1&decode=x")
