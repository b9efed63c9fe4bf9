"""Deletes the files of a log table that no recent version needs (Delta's VACUUM)."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import UsageError
from headwater_tier.compaction import DAY_MS, HOUR_MS
from headwater_tier.delta import LogTable
from headwater_tier.table_names import TableLocation

VACUUM_AGE_MIN_MS = DAY_MS
VACUUM_AGE_DEFAULT_MS = 7 * DAY_MS


def vacuum(
    location: TableLocation,
    *,
    age_ms: int = VACUUM_AGE_DEFAULT_MS,
    pinned_versions: Sequence[int] = (),
) -> list[str]:
    """Delete files that neither a version within `age_ms` nor a pinned version needs; their names.

    Deletes files without any commit too, which killed jobs leave. The age is a day at least, as a
    job or reader may still use younger files. Folders whose names begin with `_` are kept.
    """
    if age_ms < VACUUM_AGE_MIN_MS:
        raise UsageError(f"vacuum of {location.uri}: an age of {age_ms} ms is less than a day")
    return LogTable(location).vacuum(age_ms // HOUR_MS, pinned_versions)
