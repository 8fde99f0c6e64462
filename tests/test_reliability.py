"""Reliability beside a slow twin, and its picture."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity.cli import replay
from posterity.errors import InvalidParameter, MissingExtra
from posterity.validation.reliability import BINS, Reliability

drawn_labels = st.lists(
    st.tuples(st.booleans(), st.floats(0, 1, allow_subnormal=False)), min_size=1, max_size=80
)


def naive_error(drawn: list[tuple[bool, float]]) -> float:
    """|share right − mean belief| of each bin, weighed by its items."""
    bins: dict[int, list[tuple[bool, float]]] = {}
    for hit, belief in drawn:
        bins.setdefault(min(int(belief * BINS), BINS - 1), []).append((hit, belief))
    total = 0.0
    for each in bins.values():
        share = sum(hit for hit, _ in each) / len(each)
        mean = sum(belief for _, belief in each) / len(each)
        total += abs(share - mean) * len(each)
    return total / len(drawn)


@given(drawn_labels, st.integers(0, 80))
def test_the_error_is_that_of_the_bins(drawn: list[tuple[bool, float]], at: int) -> None:
    right, belief = [hit for hit, _ in drawn], [each for _, each in drawn]
    found = Reliability.of(right[:at], belief[:at]) + Reliability.of(right[at:], belief[at:])
    assert found.error == pytest.approx(naive_error(drawn), abs=1e-9)
    told = found.to_dict()
    assert told["items"] == len(drawn) == sum(row["items"] for row in told["bins"])
    assert all(row["from"] <= row["belief"] <= row["to"] for row in told["bins"])


def test_beliefs_that_are_right_err_by_chance_alone() -> None:
    rng = np.random.default_rng(3)
    found = []
    for _ in range(200):
        belief = rng.beta(3, 1, 500)
        found.append(Reliability.of(rng.random(500) < belief, belief))
    errors, chances = [one.error for one in found], [one.chance for one in found]
    assert np.mean(errors) == pytest.approx(np.mean(chances), rel=0.05)
    sure = Reliability.of(rng.random(500) < 0.5, np.full(500, 0.9))
    assert sure.error > 5 * sure.chance


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_it_can_be_drawn(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(3)
    belief = rng.beta(3, 1, 500)
    found = Reliability.of(rng.random(500) < belief, belief)
    path = tmp_path / f"drawn.{suffix}"
    replay.reliability(found, found, path)
    assert path.stat().st_size > 5000
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_what_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidParameter, match=r"\.png"):
        replay.reliability(Reliability(), Reliability(), tmp_path / "drawn.txt")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra) as refused:
        replay.reliability(Reliability(), Reliability(), tmp_path / "drawn.png")
    assert "posterity[plots]" in str(refused.value.to_dict()["hint"])
