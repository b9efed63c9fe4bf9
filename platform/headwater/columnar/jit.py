"""Compiles kernels with numba: nopython mode, without the GIL, cached in a writable folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def _writable_cache_folder() -> str:
    """NUMBA_CACHE_DIR if set, else the user's cache folder, else a folder of the user in the
    temporary one.

    numba's default, beside the source, is read-only in container images and packed venvs. Without a
    cache every Spark task process would compile for seconds.
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
            continue  # read-only: try the next folder
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return fallback


if not numba.config.CACHE_DIR:
    numba.config.CACHE_DIR = _writable_cache_folder()


def kernel(function: F) -> F:
    """Compile on first call, or load from the cache."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))
