"""Recordings from public repositories of model predictions, read from a clone on disk.

``imagenetv2``: github.com/modestyachts/ImageNetV2, predictions of 67 models on the ImageNet
validation set and on new test sets. ``cifar10.1``: github.com/modestyachts/CIFAR-10.1,
predictions of 30 models on CIFAR-10 and CIFAR-10.1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posterity.errors import InvalidData, InvalidParameter, InvalidRecording, UnknownName
from posterity.method.data.arrays import Codes
from posterity.replay.recording import Recording
from posterity.replay.split import arrange

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class RecordingReport:
    """What an import wrote, and what it had to leave out."""

    written: Mapping[Path, Recording]
    skipped: Mapping[str, str]
    """Test set → why it was left out."""


def import_recordings(
    kind: str,
    folder: str | Path,
    out: str | Path,
    *,
    test_set: str | None = None,
    truth: str | Path | None = None,
) -> RecordingReport:
    """Read a clone at ``folder`` and write its recordings.

    ``out`` is a folder that gets one recording per test set, or one ``.npz`` file for a single
    test set. ``truth`` is an ``.npy`` file of class codes for a test set that comes without.
    """
    if kind not in IMPORTERS:
        raise UnknownName.among("repository to import", kind, IMPORTERS)
    if truth is not None and test_set is None:
        raise InvalidParameter("`truth=` belongs to one test set; name it with `test_set=`.")
    root, target = Path(folder), Path(out)
    one_file = target.suffix == ".npz"
    sets, read = IMPORTERS[kind](root, None if truth is None else _codes(Path(truth)))
    if test_set is not None and test_set not in sets:
        raise UnknownName.among("test set", test_set, sets)
    wanted = sets if test_set is None else [test_set]
    if one_file and len(wanted) > 1:
        raise InvalidParameter(
            f"'{target}' is one file, but '{root}' has several test sets: {', '.join(wanted)}.",
            hint="Choose one with `test_set=`, or give a folder.",
        )
    skipped: dict[str, str] = {}
    recordings: dict[Path, Recording] = {}
    for name in wanted:
        try:
            recording = read(name)
        except _NoTruthError as reason:
            skipped[name] = str(reason)
            continue
        # From weakest to strongest, the order in which a user would meet them.
        ordered = recording.pick(arrange(recording, "improving"))
        recordings[target if one_file else target / f"{name}.npz"] = ordered
    if not recordings:
        told = "; ".join(f"{name}: {reason}" for name, reason in skipped.items())
        raise InvalidData(f"Nothing could be imported from '{root}': {told}.")
    # Written only when all could be read, so that a broken clone leaves nothing half-imported.
    for path, recording in recordings.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        recording.save(path)
    return RecordingReport(recordings, skipped)


class _NoTruthError(Exception):
    pass


Reader = Callable[[str], Recording]
Importer = Callable[[Path, "Codes | None"], tuple[list[str], Reader]]


def _imagenetv2(root: Path, truth: Codes | None) -> tuple[list[str], Reader]:
    """data/predictions/SET/MODEL.npy (items × 5, best first) and data/datasets/SET.json."""
    if truth is not None:
        raise InvalidParameter("ImageNetV2 brings its own truth; leave out `truth=`.")
    data = root / "data"
    about = data / "metadata" / "class_info.json"
    with _expecting(about, "a list of cid, wnid and synset"):
        classes = sorted(_json(about), key=lambda info: int(info["cid"]))
        names = tuple(f"{info['wnid']} {_word(info)}" for info in classes)
        code_of = {info["wnid"]: code for code, info in enumerate(classes)}

    def read(test_set: str) -> Recording:
        listing = data / "datasets" / f"{test_set}.json"
        with _expecting(listing, "image_filenames: pairs of a name and a known wnid"):
            images = _json(listing)["image_filenames"]
            known = np.array([code_of[wnid] for _, wnid in images], dtype=np.int32)
        votes = {
            path.stem: _first_choice(path)
            for path in sorted((data / "predictions" / test_set).glob("*.npy"))
        }
        return _recording(test_set, names, known, votes)

    return _folders(data / "predictions"), read


def _cifar10_1(root: Path, truth: Codes | None) -> tuple[list[str], Reader]:
    """model_predictions/SET_predictions/MODEL_predictions.json, datasets/…_SET_labels.npy."""
    folder = root / "model_predictions"
    sets = [name.removesuffix("_predictions") for name in _folders(folder)]

    def read(test_set: str) -> Recording:
        labels = root / "datasets" / f"cifar10.1_{test_set}_labels.npy"
        if labels.exists() and truth is not None:
            raise InvalidParameter(f"'{test_set}' has its own labels; leave out `truth=`.")
        if not labels.exists() and truth is None:
            raise _NoTruthError(
                f"its labels are not in the repository (no {labels.name}); give `truth=`"
            )
        votes = {
            path.stem.removesuffix("_predictions"): _listed(path)
            for path in sorted((folder / f"{test_set}_predictions").glob("*.json"))
        }
        return _recording(test_set, CIFAR10, _codes(labels) if truth is None else truth, votes)

    return sets, read


IMPORTERS: dict[str, Importer] = {"imagenetv2": _imagenetv2, "cifar10.1": _cifar10_1}


def _recording(
    name: str, classes: tuple[str, ...], truth: Codes, votes: Mapping[str, Codes]
) -> Recording:
    for model, cast in votes.items():
        if cast.shape != truth.shape:
            raise InvalidRecording(
                f"In '{name}' the model '{model}' has {len(cast)} votes for {len(truth)} items."
            )
    stacked = np.array(list(votes.values()), dtype=np.int32).reshape(len(votes), len(truth))
    return Recording(classes=classes, models=tuple(votes), truth=truth, votes=stacked, name=name)


def _word(info: Mapping[str, Any]) -> str:
    words = info.get("synset") or [info["wnid"]]
    return str(words if isinstance(words, str) else words[0])


def _first_choice(path: Path) -> Codes:
    predictions = _npy(path)
    return _check(predictions[:, 0] if predictions.ndim == 2 else predictions, path)


def _listed(path: Path) -> Codes:
    with _expecting(path, "a list of class codes"):
        return _check(np.array(_json(path)), path)


def _codes(path: Path) -> Codes:
    return _check(_npy(path), path)


def _check(codes: NDArray[Any], path: Path) -> Codes:
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise InvalidData(
            f"'{path}' must hold one class code an item; got {codes.dtype} {codes.shape}."
        )
    return codes.astype(np.int32)


@contextmanager
def _expecting(path: Path, what: str) -> Iterator[None]:
    """Reading foreign files: whatever does not fit is the file's fault, and said so."""
    try:
        yield
    except InvalidData:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InvalidData(f"'{path}' does not hold {what}: {error!r}.") from None


def _folders(parent: Path) -> list[str]:
    if not parent.is_dir():
        raise InvalidData(
            f"There is no folder '{parent}'.",
            hint="Give the top folder of a clone of the repository.",
        )
    return sorted(path.name for path in parent.iterdir() if path.is_dir())


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidData(f"The clone has no file '{path}'.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"'{path}' is not JSON: {error}.") from None


def _npy(path: Path) -> NDArray[Any]:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except FileNotFoundError:
        raise InvalidData(f"There is no file '{path}'.") from None
    except (ValueError, EOFError, OSError) as error:
        raise InvalidData(f"'{path}' is not a NumPy array: {error}.") from None
