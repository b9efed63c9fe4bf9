"""Splitting a batch that is too large for the broker into two, as Java's producer does. Pure."""

from __future__ import annotations

from headwater.client.core.partition_queue import ProducerBatch
from headwater.records.batch import read_header
from headwater.records.builder import RECORD_OVERHEAD_MAX_BYTES
from headwater.records.columns import BatchColumns
from headwater.records.compression import UNPACKED_BYTES_HIGHEST
from headwater.records.record import Record, decode_batch


def split_batch(batch: ProducerBatch) -> list[ProducerBatch]:
    """Two batches of about half the bytes each, linked to `batch`, which has several records.

    A half that is still too large is split again when the broker refuses it.
    """
    records = _records(batch)
    sizes = [_size(record) for record in records]
    half, left = sum(sizes) / 2, 0
    cut = 0
    while cut < len(records) - 1 and (cut == 0 or left + sizes[cut] <= half):
        left += sizes[cut]
        cut += 1
    parts = [_part(batch, records[:cut], left), _part(batch, records[cut:], sum(sizes) - left)]
    batch.parts, batch.parts_left = parts, len(parts)
    batch.columns = batch.data = None
    return parts


def _records(batch: ProducerBatch) -> list[Record]:
    data = batch.data
    if data is None:
        raise ValueError("only a batch that was built, and sent, can be split")
    view = memoryview(data)
    return decode_batch(view, 0, read_header(view), unpacked_bytes_max=UNPACKED_BYTES_HIGHEST)


def _size(record: Record) -> int:
    size = RECORD_OVERHEAD_MAX_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") + 10 for name, value in record.headers)


def _part(parent: ProducerBatch, records: list[Record], size: int) -> ProducerBatch:
    part = ProducerBatch(parent.queue, parent.completion, parent.created)
    part.parent = parent
    part.columns = BatchColumns()
    for record in records:
        part.columns.append(record.timestamp, record.key, record.value, tuple(record.headers))
    part.count, part.bytes_held = len(records), size
    return part
