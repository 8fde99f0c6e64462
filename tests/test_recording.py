from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posterity import Recording
from posterity.errors import InvalidRecording, UnknownName
from posterity.replay.recording import MISSING_IN_FILE

GOOD: dict[str, Any] = {
    "classes": np.array(["a", "b", "c"]),
    "models": np.array(["old", "new"]),
    "y_true": np.array([0, 1, 2], dtype=np.uint16),
    "y_pred": np.array([[0, 1, MISSING_IN_FILE], [2, 1, 2]], dtype=np.uint16),
}


def saved(folder: Path, **changes: Any) -> Path:
    path = folder / "rec.npz"
    fields = {key: value for key, value in (GOOD | changes).items() if value is not None}
    np.savez(path, **fields)
    return path


def test_files_read_back(tmp_path: Path) -> None:
    probs = np.full((2, 3, 3), 1 / 3, dtype=np.float16)
    mask = np.array([True, False, False])
    recording = Recording.load(saved(tmp_path, probs=probs, is_source=mask))
    assert recording.name == "rec"
    assert recording.votes.tolist() == [[0, 1, -1], [2, 1, 2]]
    recording.save(tmp_path / "again.npz")
    again = Recording.load(tmp_path / "again.npz")
    for field in ("truth", "votes", "probabilities", "is_source"):
        assert (getattr(again, field) == getattr(recording, field)).all()
    assert (again.classes, again.models) == (recording.classes, recording.models)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_true": None}, "has no array y_true"),
        ({"y_true": np.array([0, 1])}, r"'votes \(y_pred\)' must have shape \(2, 2\)"),
        (
            {"y_true": np.array([0, 1, 3])},
            r"'truth \(y_true\)' must be between 0 and 2; got 3 in row 2",
        ),
        (
            {"y_pred": np.array([[0, 1, 7], [0, 0, 0]])},
            r"'votes \(y_pred\) of old' must be between",
        ),
        ({"y_true": np.array([0.0, 1.0, 2.0])}, "y_true must hold integers; got dtype float64"),
        ({"classes": np.array([0, 1, 2])}, "classes must hold text"),
        ({"classes": np.array(["a", "b", "a"])}, "names some of its classes twice"),
        ({"models": np.array(["old", "old"])}, "names some of its models twice"),
        ({"models": np.array(["old"])}, r"'votes \(y_pred\)' must have shape"),
        ({"classes": np.array(["a"]), "y_true": np.zeros(3, int)}, "two classes"),
        ({"is_source": np.array([0, 1, 1])}, "is_source must hold booleans"),
        ({"is_source": np.array([True])}, "'is_source' must have shape"),
        ({"probs": np.zeros((2, 3, 2), np.float16)}, r"'probabilities \(probs\)' must have shape"),
        ({"classes": np.array(["a", "b", "c"], dtype=object)}, "pickled objects"),
        ({"classes": np.array("abc")}, "classes must have one dimension"),
        ({"models": np.array([["old", "new"]])}, "models must have one dimension"),
        ({"y_true": np.array(0)}, "one dimension"),
        ({"y_true": np.array([0, 1, 2**32])}, "got 4294967296 in row 2"),
        ({"y_pred": np.array([[0, 1, 2**40], [0, 0, 0]])}, "got 1099511627776 in row 2"),
    ],
)
def test_broken_recordings_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRecording, match=message):
        Recording.load(saved(tmp_path, **changes))


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 truncated"])
def test_unreadable_files_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.npz"
    path.write_bytes(content)
    with pytest.raises(InvalidRecording, match=r"broken\.npz"):
        Recording.load(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(InvalidRecording, match=r"no \.npz archive"):
        Recording.load(tmp_path / "one.npy")
    with pytest.raises(InvalidRecording, match="no recording at"):
        Recording.load(tmp_path / "none.npz")
    with pytest.raises(InvalidRecording, match="not a readable recording"):
        Recording.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": (0, 1, 2)}, "classes must be texts"),
        ({"models": "on"}, "one model at least"),
        ({"is_source": [0, 1, 1]}, "'is_source' must hold booleans"),
        ({"probabilities": np.zeros((2, 3, 3), int)}, "must hold floats"),
        ({"truth": ["a", "b", "c"]}, "integer class codes"),
        ({"votes": [[0, 1], [0]]}, "no array"),
        ({"votes": np.zeros((2, 3))}, "must hold integers"),
    ],
)
def test_recordings_made_in_python_are_checked_alike(changes: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"classes": ["a", "b", "c"], "models": ["old", "new"]}
    arrays: dict[str, Any] = {"truth": [0, 1, 2], "votes": [[0, 1, -1], [2, 1, 2]]}
    assert len(Recording(**good, **arrays)) == 3
    with pytest.raises(InvalidRecording, match=message):
        Recording(**(good | arrays | changes))


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidRecording, match="not a readable recording"):
        Recording.load(path)


def test_models_are_picked_by_name(tmp_path: Path) -> None:
    recording = Recording.load(saved(tmp_path))
    assert recording.pick(["new"]).votes.tolist() == [[2, 1, 2]]
    with pytest.raises(UnknownName, match=r"'nwe'.*Did you mean 'new'"):
        recording.pick(["nwe"])


def test_classes_are_matched_by_name(tmp_path: Path) -> None:
    recording = Recording.load(saved(tmp_path, probs=np.tile([0.5, 0.3, 0.2], (2, 3, 1))))
    other = Recording(("c", "a", "b"), ("old",), np.array([0]), np.array([[0]]))
    moved = recording.in_classes_of(other)
    assert moved.truth.tolist() == [1, 2, 0]
    assert moved.votes.tolist() == [[1, 2, -1], [0, 2, 0]]
    assert moved.probabilities is not None
    assert moved.probabilities[0, 0] == pytest.approx([0.2, 0.5, 0.3])
    strange = Recording(("x", "a", "b"), ("old",), np.array([0]), np.array([[0]]))
    with pytest.raises(InvalidRecording, match="2 are in one alone, such as 'c'"):
        recording.in_classes_of(strange)


def test_soft_votes_are_missing_where_votes_are(tmp_path: Path) -> None:
    probs = np.tile(np.array([0.5, 0.3, 0.2]), (2, 3, 1))
    probs[0, 2] = np.nan  # nothing is recorded there
    soft = Recording.load(saved(tmp_path, probs=probs)).soft_votes(0)
    assert soft.codes[:, 0].tolist() == [0, 0, -1]
    assert soft.hard.tolist() == [0, 1, -1]  # the vote is what was recorded, not the top class
    probs[0, 1] = 0
    with pytest.raises(InvalidRecording, match="all 0 for an item with a vote"):
        Recording.load(saved(tmp_path, probs=probs)).soft_votes(0)
    with pytest.raises(InvalidRecording, match="no class probabilities"):
        Recording.load(saved(tmp_path)).soft_votes(0)


@pytest.mark.parametrize("bad", [np.nan, -0.1, 0.9])
def test_bad_probabilities_are_named(tmp_path: Path, bad: float) -> None:
    probs = np.tile(np.array([0.5, 0.3, 0.2]), (2, 3, 1))
    probs[1, 0, 0] = bad
    recording = Recording.load(saved(tmp_path, probs=probs))
    with pytest.raises(ValueError, match=r"'probabilities \(probs\) of new'"):
        recording.soft_votes(1)
