"""Promises the repository makes about itself."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import posterity
from posterity.cli import cli
from tests import bounds
from tests.conftest import ROOT
from tests.house import House

SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_the_public_names() -> None:
    assert dir(posterity) == posterity.__all__ == sorted(posterity.__all__)
    nouns = "Beliefs Budget ClassMap Classes Confusion CostRatio Evaluation Explanation Model Plan"
    nouns += " PosterityError Recording Registration Report SoftVotes Spending Store VoteFile"
    families = "adapters beliefs confusion errors executors fit metrics priors replay rules"
    families += " selectors votes"
    assert set(posterity.__all__) == {*nouns.split(), *families.split(), "summary", "__version__"}
    for name in posterity.__all__:
        assert hasattr(posterity, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = posterity.nothing
    assert sorted(posterity.replay.__all__) == sorted(
        ["Recording", "Results", "Step", "fit", "run", "take_apart", "walk"]
    )


def test_imports_only_go_down_the_layers() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("what", "there", "most"), list(House().measures()), ids=lambda value: str(value)
)
def test_the_house_keeps_its_measures(what: str, there: int, most: int) -> None:
    assert there <= most, what


def test_benchmarks_stay_small() -> None:
    long = {
        path.name: lines
        for path in (ROOT / "benchmarks").rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long


def test_a_house_is_measured_right(tmp_path: Path) -> None:
    """Floors, classes and names of a small package whose measures are known."""
    package = tmp_path / "small"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text('"""Small."""\n')
    (package / "inner" / "__init__.py").write_text('"""Inner."""\n')
    (package / "inner" / "base.py").write_text("class One:\n    pass\n")
    (package / "inner" / "folding.py").write_text(
        "from small.inner.base import One\nclass Two(One):\n    class One: ...\n"
    )
    (package / "top.py").write_text(
        "def late():\n    from small.inner import folding\n    return folding\nx = 1\n"
    )
    house = House(package)
    assert house.floors["small.top"] == 3
    assert house.floors["small.inner.base"] == 1
    assert house.verbal == ["small.inner.folding"]
    assert house.classes["One"] == 2
    assert len(house.files) == 5
    assert len(house.with_code) == 2
    assert "small.top" in house.with_code


def test_heavy_dependencies_are_imported_in_one_module_only() -> None:
    for package, home in {
        "joblib": "scikit_learn.py",
        "transformers": "hugging_face.py",
        "onnxruntime": "onnx_runtime.py",
        "urllib3": "http.py",
        "PIL": "payload.py",
        "deltalake": "commits.py table.py",
        "obstore": "files.py",
        "babel": "texts.py",
        "matplotlib": "replay.py",
        "starlette": "app.py",
        "uvicorn": "serve.py",
        "jinja2": "pages.py",
    }.items():
        line = re.compile(rf"^\s*(from|import) {package}\b", flags=re.MULTILINE)
        users = [path.name for path in SOURCES if line.search(path.read_text(encoding="utf-8"))]
        assert sorted(users) == home.split(), package


def test_importing_posterity_is_light() -> None:
    script = "import sys, posterity; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    heavy = {"sklearn", "matplotlib", "scipy", "pandas", "torch", "transformers", "onnxruntime"}
    heavy |= {"urllib3", "PIL", "babel", "django", "obstore", "starlette", "jinja2", "plotly"}
    assert not heavy & set(done.stdout.split())


def test_every_command_is_documented() -> None:
    documented = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name in cli.every():
        assert f"## posterity {name}" in documented


def test_the_changelog_knows_the_version() -> None:
    assert f"## {posterity.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_extra_is_in_the_readme() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.partition("\n## Extras\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
    found = [name for cell in listed for name in re.findall(r"`([a-z-]+)`", cell)]
    assert sorted(found) == sorted(project["optional-dependencies"])
    named = {re.split("[>=]", one)[0] for one in project["dependencies"]}
    sentence = table.replace("\n", " ").partition("needs ")[2].partition(".")[0].lower()
    assert set(re.findall(r"[a-z]+", sentence)) - {"and"} == named


def test_the_oldest_dependencies_are_the_lower_bounds() -> None:
    oldest, newest = bounds.requirements("oldest"), bounds.requirements("newest")
    assert [one.replace("==", ">=") for one in oldest] == newest
    assert all(re.fullmatch(r"[a-z]+==[0-9.]+", one) for one in oldest)
    make = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    core = re.search(r"^CORE := (.*)$", make, flags=re.MULTILINE)
    assert core is not None
    for name in core[1].split():
        assert (ROOT / "tests" / f"test_{name}.py").is_file(), name


def test_the_map_names_what_there_is() -> None:
    """Every file and function docs/architecture.md names is in the source."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    for name in re.findall(r"`([a-z_/]+\.py)`", text):
        here = [*SOURCES, *(ROOT / "tests").rglob("*.py")]
        assert any(str(path).endswith(f"/{name}") for path in here), name
    for name in re.findall(r"`([A-Za-z_]+)`", text):
        assert re.search(rf"\b{name}\b", source), name
