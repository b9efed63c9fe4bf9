"""Where numba keeps compiled kernels. Needs no numba: a process may ask before it loads any."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def kernel_folder() -> str:
    """NUMBA_CACHE_DIR if set, else the user's cache folder, else a folder of the user in the
    temporary one; made if need be.

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


def is_empty() -> bool:
    """True in a new installation: no kernel was compiled yet."""
    try:
        with os.scandir(kernel_folder()) as found:
            return next(found, None) is None
    except FileNotFoundError:
        return True
