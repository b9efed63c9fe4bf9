"""Which small files of a log table are folded into one. Pure.

L0 files are those of commits; a fold writes an L1 file of at most L1_BYTES_TARGET. A trickling
topic would leave thousands of tiny files: once 64 L0 files are there they are folded, together with
the undersized L1 files before them that are not larger than twice what follows; so the sizes of
undersized files fall by half from each to the next, and each row is rewritten a few times only.
Once a day, and when a topic is quiet, all undersized files are folded.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater_tier.delta import LiveFile
from headwater_tier.live_files import first_within
from headwater_tier.table_maintenance import (
    COMPACT_FILES_MIN,
    DAY_MS,
    HOUR_MS,
    L0_PREFIX,
    L1_BYTES_TARGET,
)
from headwater_tier.table_names import is_own_file

QUIET_MS = HOUR_MS


def plan_fold(
    files: Sequence[LiveFile],
    now_ms: int,
    *,
    files_min: int = COMPACT_FILES_MIN,
    bytes_target: int = L1_BYTES_TARGET,
) -> tuple[LiveFile, ...]:
    """The files to rewrite as one, oldest first; empty if none are due. Files of others stay."""
    small = sorted(
        (f for f in files if f.size_bytes < bytes_target // 2 and is_own_file(f.path)),
        key=lambda f: (f.modified_ms, f.path),
    )
    if len(small) < 2:
        return ()
    if _is_day_over(small, now_ms) or now_ms - small[-1].modified_ms >= QUIET_MS:
        return first_within(small, bytes_target)
    level0 = [f for f in small if f.path.startswith(L0_PREFIX)]
    batch = first_within(level0, bytes_target)
    if len(batch) < files_min and len(batch) == len(level0):
        return ()
    older = [f for f in small if not f.path.startswith(L0_PREFIX)]
    chosen, size = list(batch), sum(f.size_bytes for f in batch)
    for before in reversed(older):
        if before.size_bytes > 2 * size or size + before.size_bytes > bytes_target:
            break
        chosen.insert(0, before)
        size += before.size_bytes
    return tuple(chosen) if len(chosen) > 1 else ()


def _is_day_over(small: Sequence[LiveFile], now_ms: int) -> bool:
    """True when the oldest undersized file is of an earlier day (UTC)."""
    return small[0].modified_ms // DAY_MS < now_ms // DAY_MS
