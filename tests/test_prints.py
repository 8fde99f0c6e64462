"""What Python prints of a store: its models, steps and items, and what calls give back."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

import posterity
from posterity import Model, Store
from posterity._text import Result
from posterity.errors import InvalidData, UnknownItem, UnknownName
from tests.stores import World, small_store

HOSTILE = "red \x1b[31m text\nof two lines " + "x" * 100


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.create(tmp_path / "desk", classes=["bug", "praise", "question"])
    made.add({"id": ["t1", "t2", "t3"], "text": ["it broke", "how?", HOSTILE], "pages": [1, 2, 3]})
    truth = ["bug", "praise", "question"] * 30
    old = Model("keywords", labelled=(truth, ["bug", "praise", "bug"] * 30))
    made.update(old, votes={"t1": "bug", "t2": "bug", "t3": "bug"})
    made.register(Model("reader", labelled=(truth, truth), cost=0.001))
    return made


def test_models(store: Store) -> None:
    models = store.models
    assert list(models) == ["keywords", "reader"]
    assert (models["reader"].arrival, models["reader"].accuracy) == (1, 1.0)
    assert "reader" in models
    assert "raeder" not in models
    assert models.get("raeder") is None
    with pytest.raises(UnknownName, match="Did you mean 'reader'"):
        models["raeder"]
    assert repr(models).splitlines() == [
        "model     arrival  accuracy                 labelled  votes   cost  source",
        "keywords        0  66.7 % (56.4 to 75.5)          90      3      –       –",
        "reader          1  100.0 % (95.9 to 100.0)        90      0  0.001       –",
    ]
    assert "<td" in models._repr_html_()
    assert repr(Store.create(f"{store.path}-2", classes=["a", "b"]).models) == "no models yet"


def test_steps(store: Store) -> None:
    steps = store.steps
    assert (len(steps), steps[0].model, steps[-1] is steps[0]) == (1, "keywords", True)
    assert repr(steps[0]) == "<step 0: update, keywords, 3 evaluations, 0 flips>"
    head, row = repr(steps).splitlines()
    assert head.split()[:3] == ["step", "kind", "model"]
    assert row.split()[:3] == ["0", "update", "keywords"]
    assert repr(steps[:0]) == "no steps yet"
    assert steps[:1] == steps
    assert "<td" in steps._repr_html_()


def test_an_item(store: Store) -> None:
    store.update("reader", votes={"t2": "question"}, budget=1.0, rule="max-belief")
    item = store["t2"]
    assert (item.label, item.payload) == ("question", {"text": "how?", "pages": 2})
    assert item.belief == pytest.approx(max(item.beliefs.values()), abs=1e-4)
    assert item.history == store.history("t2")
    assert str(item.explanation) == str(store.explain("t2"))
    told = repr(item).splitlines()
    assert told[0].startswith("t2 is labelled question, believed 1.00")
    assert told[1:4] == [
        "  text: how?",
        "  pages: 2",
        "step  kind    model     vote      label     belief",
    ]
    assert told[5].split()[:5] == ["1", "update", "reader", "question", "question"]
    assert "how?" in item._repr_html_()
    (text, *_) = [line for line in repr(store["t3"]).splitlines() if "text:" in line]
    assert text.startswith("  text: red ␛[31m text of two lines xxx")
    assert text.endswith("x…")


def test_an_item_nobody_has_voted_on(store: Store) -> None:
    store.add({"id": ["t4"], "text": ["new"], "pages": [None]})
    item = store["t4"]
    assert (item.label, item.belief, item.history) == (None, None, [])
    assert repr(item).splitlines() == ["t4 has no label yet", "  text: new", "  pages: None"]
    report = store.update("reader", votes={"t1": "question"}, budget=1.0, rule="max-belief+confirm")
    assert report.pending == 1
    assert store["t1"].proposed == "question"
    assert "a flip to question is pending" in repr(store["t1"])


def test_a_store_is_no_sequence(store: Store) -> None:
    assert "t1" in store
    assert "t9" not in store
    assert 7 not in store
    with pytest.raises(KeyError, match="1 id is not in the store: 't9'"):
        store["t9"]
    assert issubclass(UnknownItem, InvalidData)
    with pytest.raises(TypeError, match="not iterable"):
        list(store)  # type: ignore[call-overload]


def test_results_read_well_in_a_console(tmp_path: Path) -> None:
    world = World()
    store = small_store(tmp_path / "store", world)
    new = world.model("new")
    found = [store.register(new), store.plan("new", budget="50%"), store.update(new, budget="50%")]
    found += [store.explain("item-3"), store.review_queue(3), store.reliability()]
    found += [
        store.redecide(dry_run=True),
        store.settle(),
        store.compact(),
        *store.compare(["new"], 5.0),
    ]
    found += [
        store.review({"item-1": "cat"}),
        store.revert(1),
        store.tune(),
        posterity.summary(store),
    ]
    for one in found:
        assert isinstance(one, Result)
        assert repr(one) == str(one)
        assert "object at 0x" not in repr(one)
        assert f"{type(one).__name__}(" not in repr(one)
    figures = "60 items, 4 classes, 2 models, step 3, expected accuracy"
    assert repr(store).startswith(f"Store(store: {figures}")


def test_a_model_without_its_data() -> None:
    labelled = World().labelled_table("new")
    model = Model("new", labelled=labelled, predict=len, cost=0.5, truth="truth")
    assert repr(model) == "Model('new', labelled=<Table>, predict=<len>, cost=0.5)"
    assert {each.name for each in fields(model)} >= {"labelled", "predict"}
