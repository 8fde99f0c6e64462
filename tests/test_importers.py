from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from posterity import Recording
from posterity.errors import InvalidData, InvalidParameter, InvalidRecording, UnknownName
from posterity.replay.importers import import_recordings


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    """A clone of ImageNetV2 in small: three classes, two test sets, top-2 predictions."""
    root = tmp_path / "ImageNetV2"
    data = root / "data"
    (data / "metadata").mkdir(parents=True)
    (data / "datasets").mkdir()
    classes = [
        {"cid": 1, "wnid": "n02", "synset": ["goldfish", "Carassius auratus"], "gloss": ""},
        {"cid": 0, "wnid": "n01", "synset": ["tench", "Tinca tinca"], "gloss": ""},
        {"cid": 2, "wnid": "n03", "synset": ["great white shark"], "gloss": ""},
    ]
    (data / "metadata" / "class_info.json").write_text(json.dumps(classes))
    for name in ("val", "new"):
        images = [["1.jpeg", "n01"], ["2.jpeg", "n03"], ["3.jpeg", "n02"]]
        (data / "datasets" / f"{name}.json").write_text(json.dumps({"image_filenames": images}))
        folder = data / "predictions" / name
        folder.mkdir(parents=True)
        np.save(folder / "alexnet.npy", np.array([[0, 1], [1, 2], [0, 1]]))
        np.save(folder / "a_better_net.npy", np.array([[0, 1], [2, 1], [1, 0]]))
    return root


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    """A clone of CIFAR-10.1 in small: labels for v6, none for the original test set."""
    root = tmp_path / "CIFAR-10.1"
    (root / "datasets").mkdir(parents=True)
    np.save(root / "datasets" / "cifar10.1_v6_labels.npy", np.array([0, 9, 3], dtype=np.uint8))
    for name in ("v6", "original"):
        folder = root / "model_predictions" / f"{name}_predictions"
        folder.mkdir(parents=True)
        (folder / "nas_predictions.json").write_text("[0, 9, 5]")
        (folder / "darc_predictions.json").write_text("[1, 9, 5]")
    return root


def test_imagenetv2(imagenet: Path, tmp_path: Path) -> None:
    imported = import_recordings("imagenetv2", imagenet, tmp_path / "out")
    assert sorted(path.name for path in imported.written) == ["new.npz", "val.npz"]
    recording = Recording.load(tmp_path / "out" / "val.npz")
    assert recording.classes == ("n01 tench", "n02 goldfish", "n03 great white shark")
    assert recording.models == ("alexnet", "a_better_net")  # weakest first
    assert recording.truth.tolist() == [0, 2, 1]
    assert recording.votes.tolist() == [[0, 1, 0], [0, 2, 1]]


def test_one_test_set_into_one_file(imagenet: Path, tmp_path: Path) -> None:
    import_recordings("imagenetv2", imagenet, tmp_path / "one.npz", test_set="val")
    assert len(Recording.load(tmp_path / "one.npz")) == 3
    with pytest.raises(InvalidParameter, match=r"several test sets: new, val.*`test_set=`"):
        import_recordings("imagenetv2", imagenet, tmp_path / "two.npz")
    with pytest.raises(UnknownName, match="Did you mean 'val'"):
        import_recordings("imagenetv2", imagenet, tmp_path / "two.npz", test_set="vall")
    np.save(tmp_path / "truth.npy", np.array([0, 1, 2]))
    truth = tmp_path / "truth.npy"
    with pytest.raises(InvalidParameter, match="leave out `truth=`"):
        import_recordings("imagenetv2", imagenet, tmp_path, test_set="val", truth=truth)
    assert not (tmp_path / "two.npz").exists()


def test_cifar(cifar: Path, tmp_path: Path) -> None:
    imported = import_recordings("cifar10.1", cifar, tmp_path / "out")
    assert [path.name for path in imported.written] == ["v6.npz"]
    assert "give `truth=`" in imported.skipped["original"]
    recording = Recording.load(tmp_path / "out" / "v6.npz")
    assert recording.models == ("darc", "nas")
    assert recording.classes[9] == "truck"
    assert recording.truth.tolist() == [0, 9, 3]


def test_truth_from_elsewhere(cifar: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "truth.npy", np.array([1, 2, 3]))
    out = tmp_path / "original.npz"
    with pytest.raises(InvalidData, match="original: its labels are not in the repository"):
        import_recordings("cifar10.1", cifar, out, test_set="original")
    import_recordings("cifar10.1", cifar, out, test_set="original", truth=tmp_path / "truth.npy")
    assert Recording.load(out).truth.tolist() == [1, 2, 3]
    with pytest.raises(InvalidParameter, match="name it with `test_set=`"):
        import_recordings("cifar10.1", cifar, tmp_path, truth=tmp_path / "truth.npy")
    with pytest.raises(InvalidParameter, match="'v6' has its own labels"):
        import_recordings("cifar10.1", cifar, out, test_set="v6", truth=tmp_path / "truth.npy")


def test_broken_clones_leave_nothing_behind(imagenet: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    votes = imagenet / "data" / "predictions" / "val" / "alexnet.npy"
    np.save(votes, np.zeros((2, 5), dtype=int))
    with pytest.raises(InvalidRecording, match="'alexnet' has 2 votes for 3 items"):
        import_recordings("imagenetv2", imagenet, out)
    np.save(votes, np.zeros((3, 5)))
    with pytest.raises(InvalidData, match="one class code an item; got float64"):
        import_recordings("imagenetv2", imagenet, out)
    votes.write_bytes(b"")
    with pytest.raises(InvalidData, match="not a NumPy array"):
        import_recordings("imagenetv2", imagenet, out)
    (imagenet / "data" / "datasets" / "val.json").write_text('{"image_filenames": [["a", "n9"]]}')
    with pytest.raises(InvalidData, match="a name and a known wnid: KeyError"):
        import_recordings("imagenetv2", imagenet, out)
    (imagenet / "data" / "datasets" / "val.json").write_text("{")
    with pytest.raises(InvalidData, match=r"val\.json' is not JSON"):
        import_recordings("imagenetv2", imagenet, out)
    (imagenet / "data" / "datasets" / "val.json").unlink()
    with pytest.raises(InvalidData, match="has no file"):
        import_recordings("imagenetv2", imagenet, out)
    assert not out.exists()


def test_wrong_folders_and_kinds_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="There is no folder"):
        import_recordings("cifar10.1", tmp_path, tmp_path / "out")
    with pytest.raises(InvalidData, match="has no file"):
        import_recordings("imagenetv2", tmp_path, tmp_path / "out")
    with pytest.raises(UnknownName, match=r"known are: imagenetv2, cifar10\.1"):
        import_recordings("imagenet", tmp_path, tmp_path / "out")
