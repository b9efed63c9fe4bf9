"""The record batches of a slice of the log, for share fetches: their headers, read where they lie.

A share fetch answers with whole record batches as they are stored, and names the offsets in them
that its member may process. So it must know where batches begin and end; records stay unread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from headwater.records.batch import HEADER_BYTES, BatchHeader, read_header

CHUNK_BYTES = 8 * 1024
"""How much is read at once: many small batches, or the header of a large one."""

ReadAt = Callable[[int, int], bytes]
"""(position, size) -> bytes of the file."""


class StoredBatch(NamedTuple):
    """One record batch: offsets `first` to `last`, both inclusive, at bytes from `position` on."""

    first: int
    last: int
    position: int
    size_bytes: int
    producer_id: int
    is_control: bool
    is_transactional: bool
    is_empty: bool
    """It has offsets and no records: of a compacted log, or a gap that a table was given."""


def stored_batches(read_at: ReadAt, position: int, size: int) -> Iterator[StoredBatch]:
    """The whole batches within these bytes. Raises OSError when they cannot be read."""
    end = position + size
    chunk, chunk_at = b"", position
    while position + HEADER_BYTES <= end:
        if position + HEADER_BYTES > chunk_at + len(chunk):
            chunk, chunk_at = read_at(position, min(CHUNK_BYTES, end - position)), position
            if len(chunk) < HEADER_BYTES:
                raise OSError(f"{len(chunk)} bytes at {position}, where a batch begins")
        header = read_header(chunk, position - chunk_at)
        if header.size_bytes < HEADER_BYTES:
            raise OSError(f"the batch at {position} has {header.size_bytes} bytes")
        if position + header.size_bytes > end:
            return
        yield _of(header, position)
        position += header.size_bytes


def _of(header: BatchHeader, position: int) -> StoredBatch:
    return StoredBatch(
        header.base_offset,
        header.last_offset,
        position,
        header.size_bytes,
        header.producer_id,
        header.is_control,
        header.is_transactional,
        header.record_count == 0,
    )


def up_to(batches: Iterable[StoredBatch], last_offset: int) -> list[StoredBatch]:
    """The batches up to the one with records that holds `last_offset` or ends behind it."""
    taken = []
    for batch in batches:
        taken.append(batch)
        if batch.last >= last_offset and not batch.is_empty:
            break
    return taken


def deliverable(
    batches: Sequence[StoredBatch], aborted: Sequence[tuple[int, int]]
) -> list[StoredBatch]:
    """The batches with records for a member: no transaction markers, no empty ones, and nothing of
    the transactions `aborted`: (producer id, first offset), by first offset."""
    found: list[StoredBatch] = []
    open_aborted: set[int] = set()
    waiting = list(reversed(aborted))
    for batch in batches:
        while waiting and waiting[-1][1] <= batch.last:
            open_aborted.add(waiting.pop()[0])
        if batch.is_control:
            open_aborted.discard(batch.producer_id)
        elif not batch.is_empty and not (
            batch.is_transactional and batch.producer_id in open_aborted
        ):
            found.append(batch)
    return found
