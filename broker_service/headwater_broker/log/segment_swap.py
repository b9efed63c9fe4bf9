"""Replaces old segments by a compacted one, so that a crash leaves the old ones or the new one.

Files are renamed in this order:

1. the new files from `.cleaned` to `.swap`, the `.log` last: that is the commit;
2. the old files to `.deleted`: the highest segment first and its `.log` last, so that the `.log`
   with the new segment's own name comes last of all;
3. the new files from `.swap` to their names, the `.log` last.

At start the `.log.swap` shows what was interrupted (`judge_swap`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from headwater.ports.files import Files
from headwater_broker.log.compaction_job import CleanedSegment, names_of
from headwater_broker.log.log_segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    DamagedLogError,
    LogSegment,
    file_name,
)


class SwapFacts(NamedTuple):
    """The files of one base offset that has `.swap` files."""

    has_log_swap: bool
    has_old_log: bool


class SwapCase(Enum):
    """The lettered cases of a swap found at start, with the action."""

    T_UNDO = "T: not committed; remove its .swap files"
    U_REPLACE = "U: committed, old files may be left; remove these, then rename"
    V_RENAME = "V: committed, old files removed; rename the rest"


def judge_swap(facts: SwapFacts) -> SwapCase:
    """
    | .log.swap | old .log | case |
    |     0     |    -     |  T   |
    |     1     |    1     |  U   |
    |     1     |    0     |  V   |
    """
    if not facts.has_log_swap:
        return SwapCase.T_UNDO
    return SwapCase.U_REPLACE if facts.has_old_log else SwapCase.V_RENAME


def put_in_place(files: Files, folder: str, new: CleanedSegment) -> list[str]:
    """Run steps 1 to 3; returns the `.deleted` paths, which are to be removed later."""
    for name in names_of(new.base_offset):
        _rename(files, f"{folder}/{name}{CLEANED_SUFFIX}", f"{folder}/{name}{SWAP_SUFFIX}")
    renamed = []
    for base in reversed(new.replaces):
        names = names_of(base)
        if base != new.base_offset:
            names = [file_name(base, SNAPSHOT_SUFFIX), *names]
        for name in names:
            if _rename(files, f"{folder}/{name}", f"{folder}/{name}{DELETED_SUFFIX}"):
                renamed.append(f"{folder}/{name}{DELETED_SUFFIX}")
    _finish(files, folder, new.base_offset)
    return renamed


def finish_swaps(files: Files, folder: str, names: Iterable[str]) -> list[str]:
    """At start, undo or complete interrupted swaps; returns a sentence on each."""
    present = set(names)
    bases = {int(name.partition(".")[0]) for name in present if name.endswith(SWAP_SUFFIX)}
    notes = []
    for base in sorted(bases):
        log_name = file_name(base, LOG_SUFFIX)
        case = judge_swap(SwapFacts(log_name + SWAP_SUFFIX in present, log_name in present))
        notes.append(f"segment {base} was being swapped in; {case.value}")
        if case is SwapCase.T_UNDO:
            for name in names_of(base):
                files.remove(f"{folder}/{name}{SWAP_SUFFIX}")
            continue
        if case is SwapCase.U_REPLACE:
            notes += _remove_replaced(files, folder, base, present)
        _finish(files, folder, base)
    return notes


def _finish(files: Files, folder: str, base: int) -> None:
    for name in names_of(base):
        _rename(files, f"{folder}/{name}{SWAP_SUFFIX}", f"{folder}/{name}")


def _remove_replaced(files: Files, folder: str, base: int, present: set[str]) -> list[str]:
    """Remove every old segment that the new one covers, up to the end of its last batch, which
    compaction keeps for this. The new one's own name comes last, as in step 2."""
    end, notes = _end_of_swap(files, folder, base)
    stems = {int(name[: -len(LOG_SUFFIX)]) for name in present if name.endswith(LOG_SUFFIX)}
    for old in sorted((stem for stem in stems if base <= stem < end), reverse=True):
        for name in names_of(old):
            files.remove(f"{folder}/{name}")
    return notes


def _end_of_swap(files: Files, folder: str, base: int) -> tuple[int, list[str]]:
    """The new segment's end offset, and sentences for the log. A damaged one covers the offsets
    before the damage, so that old segments with the later ones stay."""
    swap = LogSegment(files, folder, base, has_txn_index=False, now_ms=0, mark=SWAP_SUFFIX)
    end, notes = base + 1, []
    try:
        for _, header in swap.headers(0):
            end = header.next_offset
    except DamagedLogError as e:
        notes.append(f"{e.detail}: old segments from offset {end} on stay")
    swap.file.close()
    return end, notes


def _rename(files: Files, source: str, target: str) -> bool:
    try:
        files.rename(source, target)
    except FileNotFoundError:
        return False
    return True


def swapped_in(
    files: Files, folder: str, new: CleanedSegment, now_ms: int, written_ms: int
) -> LogSegment:
    """Open the `.cleaned` segment, without reading it.

    Called before `put_in_place`, so that nothing is renamed when the process is out of descriptors;
    the caller relocates the segment afterwards. `written_ms`: when the newest of the old segments
    was written, which is the segment's age when its records have no timestamps.
    """
    segment = LogSegment(
        files, folder, new.base_offset,
        has_txn_index=new.has_txn_index, now_ms=now_ms, mark=CLEANED_SUFFIX,
    )  # fmt: skip
    segment.first_timestamp = new.first_timestamp
    segment.max_timestamp = new.max_timestamp
    segment.max_timestamp_offset = new.max_timestamp_offset
    segment.last_write_ms = written_ms
    if new.max_timestamp < 0:  # a start reads the age from the file
        path = f"{folder}/{file_name(new.base_offset, LOG_SUFFIX)}{CLEANED_SUFFIX}"
        files.set_modified(path, written_ms)
    return segment
