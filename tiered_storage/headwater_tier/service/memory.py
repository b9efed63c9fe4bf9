"""Gives memory that the process does not use back to the system: a service is idle for long."""

from __future__ import annotations

import ctypes
import gc
import sys

import pyarrow as pa

_M_ARENA_MAX = -8
ARENAS = 2


def limit_arenas() -> None:
    """Keep glibc from an arena of its own for each thread: freed memory stays in each."""
    if sys.platform == "linux" and hasattr(_libc(), "mallopt"):
        _libc().mallopt(_M_ARENA_MAX, ARENAS)


def release() -> None:
    """Return freed memory of Arrow's pool and of malloc."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux" and hasattr(_libc(), "malloc_trim"):
        _libc().malloc_trim(0)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
