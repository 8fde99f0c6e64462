"""How much memory a process has held."""

from __future__ import annotations

import resource
from pathlib import Path


def peak_mib() -> float:
    """Of this process alone, in MiB: ``ru_maxrss`` may be that of the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
