"""How kernels are compiled: nopython, without the GIL, cached on disk in a folder we can write."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def _writable_cache_folder() -> str:
    """NUMBA_CACHE_DIR if set, else the user's cache folder, else one of this user in the temp one.

    Beside the source, numba's default, is read-only in images and packed venvs; without a cache
    every Spark task process would compile for seconds.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return chosen
    home_cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    fallback = str(Path(tempfile.gettempdir()) / f"headwater-numba-{os.getuid()}")
    for folder in (str(Path(home_cache) / "headwater" / "numba"), fallback):
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError:
            continue  # a read-only home: the next candidate
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return fallback


if not numba.config.CACHE_DIR:
    numba.config.CACHE_DIR = _writable_cache_folder()


def kernel(function: F) -> F:
    """Compile on first call, or load from the cache."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))
