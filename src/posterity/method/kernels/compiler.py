"""How kernels are compiled, and how a block of items is spread over threads."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

from posterity.method.kernels import compiling

_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])


def compiled(kernel: _Kernel) -> _Kernel:
    """Plain loops that keep the order of every sum."""
    return _compiled(kernel)


def reordered(kernel: _Kernel) -> _Kernel:
    """Long sums over classes."""
    # Without leave to reorder, sums of floats are not vectorised. The order is fixed when the
    # kernel is compiled and depends on the length alone: no block or thread changes a result.
    return _compiled(kernel, fastmath={"reassoc"})


def _compiled(kernel: _Kernel, **options: Any) -> _Kernel:
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        # Kept on disk: without it every start of the command line would compile for seconds.
        made = njit(cache=True, **options)(kernel)
        return cast(_Kernel, kernel if made is kernel else _forgiving(made))  # NUMBA_DISABLE_JIT
    except RuntimeError:  # no folder that can be written to
        return cast(_Kernel, njit(**options)(kernel))


_STAMP = tuple(
    (path.name, path.stat().st_mtime, path.stat().st_size)
    for path in sorted(Path(__file__).parent.glob("*.py"))
)


def _forgiving(kernel: Any) -> Any:
    """Compile anew where what is kept on disk cannot be read.

    An older version may have left it in the same folder, with types this one no longer has.
    """
    kept, load = kernel._cache, kernel._cache.load_overload
    # Kernels are compiled into each other: a change of one file makes all of them stale.
    kept._cache_file._source_stamp = (kept._cache_file._source_stamp, _STAMP)

    def load_overload(signature: Any, context: Any) -> Any:
        try:
            found = load(signature, context)
        except (AttributeError, ImportError, EOFError, pickle.UnpicklingError):
            kept.flush()
            found = None
        if found is None:
            compiling()
        return found

    kept.load_overload = load_overload
    compile_one = kernel.compile

    def compile_whole(signature: Any) -> Any:
        with uninterrupted():
            return compile_one(signature)

    kernel.compile = compile_whole
    return kernel


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until this is done: raised while LLVM calls Python back, it crashes the process.

    Only the main thread is ever interrupted.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    waiting = []
    signal.signal(signal.SIGINT, lambda number, frame: waiting.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    for number, frame in waiting[:1]:
        usual(number, frame)


LEAST_ITEMS = 2**13
"""Fewer items than this are not worth a thread."""


def threads() -> int:
    """How many threads kernels use: ``POSTERITY_THREADS``, or the cores this process may use."""
    wanted = os.environ.get("POSTERITY_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    # Python threads that let go of the interpreter's lock: no threading layer to require, and
    # nothing that a later fork could trip over.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(
    items: int, work: Callable[..., Any], *arguments: Any, least: int = LEAST_ITEMS
) -> list[Any]:
    """Call ``work(*arguments, start, stop)`` on ranges that cover all items; what it returns.

    On as many threads as allowed.
    """
    number = min(threads(), items // least)
    if number < 2:
        return [work(*arguments, 0, items)]
    # More ranges than threads: items differ in what they cost.
    size = -(-items // (number * 4))
    with ThreadPoolExecutor(number) as pool:
        parts = [
            pool.submit(work, *arguments, start, min(start + size, items))
            for start in range(0, items, size)
        ]
        return [part.result() for part in parts]
