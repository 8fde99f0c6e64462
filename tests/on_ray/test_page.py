"""docs/howto/ray.md: a cluster of its own, for one command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.test_docs import test_a_page_says_what_happens as says_what_happens


@pytest.mark.long
def test_the_page_says_what_happens(tmp_path: Path) -> None:
    says_what_happens(ROOT / "docs" / "howto" / "ray.md", tmp_path)
