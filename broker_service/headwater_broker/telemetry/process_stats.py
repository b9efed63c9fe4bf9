"""Resident memory of this process."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STATM = Path("/proc/self/statm")
"""In procfs: the kernel answers from memory, without a disk."""
KIB = 1024


def rss_bytes() -> int:
    """Resident memory now; without procfs the peak so far."""
    try:
        return int(STATM.read_bytes().split()[1]) * PAGE_BYTES
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * KIB
