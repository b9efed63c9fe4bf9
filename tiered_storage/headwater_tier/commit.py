"""One commit of planned ranges: check, commit, and resolve an unknown outcome."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.clock import Clock
from headwater_tier.plan import CommitResult, FileFacts, TableLocation, TierRange


def commit_facts(
    location: TableLocation,
    ranges: Sequence[TierRange],
    files: Sequence[FileFacts],
    *,
    clock: Clock,
    attempts_max: int = 5,
) -> CommitResult:
    """Commit the tasks' files and the ranges' ends atomically; driver side, no record passes here.

    Checks every file (size, schema, rows, ranges) first. Ranges may be all there is (no rows).
    A refusal or error is an unknown outcome: the table is reopened; `end` ours -> DONE; still our
    start -> the same files again; else DISCARDED. Raises TableStateError or TableAccessError.
    """
    raise NotImplementedError


def ensure_table(location: TableLocation, partitions: int) -> dict[int, int]:
    """Create the log table if need be; the checked `end` per partition that has one."""
    raise NotImplementedError
