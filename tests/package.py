"""The package as others get it: built, installed into an environment of its own, and used there.

``python -m tests.package dist`` leaves a source distribution and a wheel in that folder. The
environment borrows its dependencies from this one: only what is in the wheel is new.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

from posterity._version import __version__

ROOT = Path(__file__).parent.parent
SOURCE, BESIDE = ROOT / "src", ("pyproject.toml", "README.md", "LICENSE")


def build(target: Path) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it."""
    for old in target.glob("posterity-*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        # Of a copy: what an earlier build has left in the tree would be packed as well.
        left = shutil.ignore_patterns("*.egg-info", "__pycache__")
        shutil.copytree(SOURCE, Path(scratch) / "src", ignore=left)
        for name in BESIDE:
            shutil.copy(ROOT / name, scratch)
        _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), scratch])
    (sdist,) = target.glob("posterity-*.tar.gz")
    (wheel,) = target.glob("posterity-*.whl")
    return sdist, wheel


def refuse_gaps(sdist: Path, wheel: Path) -> None:
    """Every file of the package is in both, templates and scripts of the pages too."""
    files = (path for path in (SOURCE / "posterity").rglob("*") if path.is_file())
    wanted = {str(path.relative_to(SOURCE)) for path in files if "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as packed:
        there = set(packed.namelist())
    with tarfile.open(sdist) as packed_source:
        names = {name.partition("/")[2] for name in packed_source.getnames()}
    for where, lacking in (
        (wheel, wanted - there),
        (sdist, ({f"src/{name}" for name in wanted} | set(BESIDE)) - names),
    ):
        if lacking:
            raise SystemExit(f"{where.name} lacks {', '.join(sorted(lacking))}.")
    others = {name for name in there - wanted if ".dist-info/" not in name}
    if others:
        raise SystemExit(f"{wheel.name} has what the package has not: {', '.join(sorted(others))}.")


def install(wheel: Path, folder: Path) -> Path:
    """A new environment with the wheel, and the dependencies of this one; its commands."""
    venv.create(folder, with_pip=False)
    commands = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(commands / "python")]
    _run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)])
    # Only now: pip would take the posterity that is there for the one it is to install.
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return commands


def use(commands: Path, folder: Path) -> None:
    """Its command, away from the checkout, and a report: that needs templates and scripts."""

    def posterity(*arguments: str) -> str:
        return _run([str(commands / "posterity"), *arguments], folder)

    script = "import posterity; print(posterity.__file__)"
    where = _run([str(commands / "python"), "-c", script], folder)
    if not where.startswith(str(commands.parent)):
        raise SystemExit(f"Not the installed package was used, but {where}")
    if __version__ not in (told := posterity("--version")):
        raise SystemExit(f"`posterity --version` prints {told!r}, not {__version__}")
    if "update" not in posterity("--help"):
        raise SystemExit("`posterity --help` lists no commands.")
    posterity("init", "store", "--classes", "cat,dog")
    posterity("report", "store", "-o", "report.html")
    page = (folder / "report.html").read_text(encoding="utf-8")
    for part in ("<style", "Plotly", "store"):
        if part not in page:
            raise SystemExit(f"The report lacks {part!r}.")


def _run(command: Sequence[str], folder: Path | None = None) -> str:
    """What a command prints; where it fails, what it said."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def main(target: Path) -> None:
    """Build, install and use it."""
    target.mkdir(exist_ok=True)
    sdist, wheel = build(target)
    refuse_gaps(sdist, wheel)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "work"
        folder.mkdir()
        use(install(wheel, Path(scratch) / "environment"), folder)
    print(f"{sdist}\n{wheel}\nThe wheel installs, and its command and report work.")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
