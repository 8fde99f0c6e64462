"""``python -m posterity``."""

from __future__ import annotations

from posterity.cli import main

main()
