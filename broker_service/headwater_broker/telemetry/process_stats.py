"""What this process takes of the machine: memory and when it started."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STATM = Path("/proc/self/statm")
"""procfs: read from the kernel's memory, never from a disk."""
KIB = 1024


def rss_bytes() -> int:
    """Resident memory now; where the kernel has no procfs, the most there ever was."""
    try:
        return int(STATM.read_bytes().split()[1]) * PAGE_BYTES
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * KIB
