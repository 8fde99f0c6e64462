from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from posterity.replay import Recording

settings.register_profile("default", deadline=None, max_examples=50)
# The same examples on every run of CI: a failure there is the change's, not the draw's.
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests leave nothing in the cache and the settings of whoever runs them."""
    os.environ["POSTERITY_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have counted, summed up."""
    counted: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        if report.when == "call":
            counted.update(dict(report.user_properties))
    if counted:
        terminalreporter.section("counted")
        for name, value in sorted(counted.items()):
            terminalreporter.write_line(f"{value:,} {name}")


ROOT = Path(__file__).parent.parent
RECORDINGS = Path(os.environ.get("POSTERITY_RECORDINGS", ROOT.parent / "shared" / "bench"))


def real_recording(name: str) -> Recording:
    """A recording of real classifiers; the test is skipped, or fails in CI, where it is absent."""
    path = RECORDINGS / f"{name}.npz"
    if not path.exists():
        reason = f"no recording at {path} (set POSTERITY_RECORDINGS; see docs/reference/replay.md)"
        if os.environ.get("POSTERITY_REQUIRE_RECORDINGS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return Recording.load(path)
