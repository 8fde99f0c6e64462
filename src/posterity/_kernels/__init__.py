"""Compiled kernels: Numba lives only here.

Kernels get bare arrays and fill others; they never validate and never raise. All are compiled by
the two policies of ``_kernels.policy``, and have a slow twin in ``tests/naive.py``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Numba takes half a second to import: not before a kernel is needed."""
    if name not in (
        "casts",
        "cells",
        "dependence",
        "finish",
        "folding",
        "hardness",
        "hashing",
        "joints",
        "leaning",
        "learning",
        "policy",
        "rightness",
        "sets",
        "singles",
        "worth",
    ):
        raise AttributeError(name)
    return import_module(f"{__name__}.{name}")
