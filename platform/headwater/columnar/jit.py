"""Compiles kernels with numba: nopython mode, without the GIL, cached in a writable folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

from headwater.columnar.kernel_folder import kernel_folder

F = TypeVar("F", bound=Callable[..., object])


if not numba.config.CACHE_DIR:
    numba.config.CACHE_DIR = kernel_folder()


def kernel(function: F) -> F:
    """Compile on first call, or load from the cache."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))
