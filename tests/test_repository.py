"""Promises the repository makes about itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import posterity
from posterity.cli import cli
from tests.conftest import ROOT

SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_the_public_names() -> None:
    assert sorted(posterity.__all__) == sorted(
        [
            *(
                "Beliefs",
                "Budget",
                "ClassMap",
                "Classes",
                "Confusion",
                "CostRatio",
                "Model",
                "Store",
            ),
            *("PosterityError", "Recording", "SoftVotes", "Spending", "__version__"),
            *("beliefs", "confusion", "metrics", "priors", "replay", "rules", "selectors", "votes"),
        ]
    )
    for name in posterity.__all__:
        assert hasattr(posterity, name)
    assert sorted(posterity.replay.__all__) == sorted(
        ["Recording", "Results", "Step", "fit", "run", "take_apart", "walk"]
    )


def test_imports_only_go_down_the_layers() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_modules_stay_small() -> None:
    measured = [*SOURCES, *(ROOT / "benchmarks").rglob("*.py")]
    long = {
        path.name: lines
        for path in measured
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long


def test_heavy_dependencies_are_imported_in_one_module_only() -> None:
    for package, home in {
        "joblib": "scikit_learn.py",
        "transformers": "hugging_face.py",
        "onnxruntime": "onnx_runtime.py",
        "urllib3": "http_endpoint.py",
        "PIL": "payload.py",
        "deltalake": "delta.py",
        "obstore": "files.py",
        "babel": "texts.py",
        "matplotlib": "plots.py",
        "starlette": "app.py",
        "uvicorn": "serving.py",
        "jinja2": "pages.py",
    }.items():
        line = re.compile(rf"^\s*(from|import) {package}\b", flags=re.MULTILINE)
        users = [path.name for path in SOURCES if line.search(path.read_text(encoding="utf-8"))]
        assert users == [home], package


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
    for name in cli.commands:
        assert f"## posterity {name}" in documented


def test_the_changelog_knows_the_version() -> None:
    assert f"## {posterity.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
