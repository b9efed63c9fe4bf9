"""Gives memory that the process does not use back to the system: a service is idle for long."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

import pyarrow as pa

_M_ARENA_MAX = -8
_MADV_DONTNEED = 4
COMPILER = "libllvmlite"
ARENAS = 2


def limit_arenas() -> None:
    """Keep glibc from an arena of its own for each thread: freed memory stays in each."""
    if sys.platform == "linux" and hasattr(_libc(), "mallopt"):
        _libc().mallopt(_M_ARENA_MAX, ARENAS)


def release() -> None:
    """Return freed memory of Arrow's pool and of malloc, and the pages of the compiler, which is
    needed only when a kernel is loaded: the kernel reads them again from its file then."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform != "linux":
        return
    if hasattr(_libc(), "malloc_trim"):
        _libc().malloc_trim(0)
    for start, size in compiler_pages(Path("/proc/self/maps").read_text()):
        _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_DONTNEED)


def compiler_pages(maps: str) -> list[tuple[int, int]]:
    """(address, bytes) of LLVM's code, in the text of /proc/self/maps. Code is as in its file;
    read-only data is not, after relocation. Pure."""
    found = []
    for line in maps.splitlines():
        place, permissions, *rest = line.split()
        if rest and COMPILER in rest[-1] and permissions == "r-xp":
            start, end = (int(part, 16) for part in place.split("-"))
            found.append((start, end - start))
    return found


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
