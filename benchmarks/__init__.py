"""What is measured rather than tested: the paper's experiments, speed and memory."""

from pathlib import Path

PAGES = Path("docs/measurements")
"""Where pages are written."""
