"""Checks of appends as leader that only some batches need (Kafka's LogValidator)."""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from headwater.records.batch import (
    AT_ATTRIBUTES,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    patch_append_time,
    read_header,
)
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.producer_snapshots import read_marker
from headwater_broker.log.producer_state_manager import ProducerBatch, Producers
from headwater_broker.log.record_validation import (
    check_client_header,
    check_magic,
    check_not_transactional,
    check_records,
    check_timestamp_type,
    check_timestamps,
    corrupt,
    invalid,
    recompress,
    too_large,
)
from headwater_broker.log.results import AppendOrigin


def split(view: memoryview, where: str) -> list[memoryview]:
    """The batches in `view`, which must have nothing else. Raises KafkaError."""
    parts, at, end = [], 0, len(view)
    while at < end:
        length = read_header(view, at).batch_length if end - at >= HEADER_BYTES else 0
        size = length + LOG_OVERHEAD_BYTES
        if size < HEADER_BYTES or at + size > end:
            raise corrupt(where, f"batch length {length} at byte {at} of {end}")
        parts.append(view[at : at + size])
        at += size
    return parts


def check_several(
    producers: Producers, parts: Sequence[memoryview], origin: AppendOrigin, where: str
) -> list[BatchHeader]:
    """Check a coordinator's batches before any of them is written; their headers. Raises
    KafkaError. Markers are checked against the log alone: each is of another producer."""
    headers = []
    for part in parts:
        header = read_header(part)
        check_magic(header.magic, where)
        if crc32c(part[AT_ATTRIBUTES:]) != header.crc:
            raise corrupt(where, "the CRC does not match")
        if header.last_offset_delta < 0:
            raise invalid(where, f"last offset delta {header.last_offset_delta}")
        if header.producer_id >= 0:
            check_producer(producers, header, part, origin, where)
        headers.append(header)
    return headers


def check_header(header: BatchHeader, origin: AppendOrigin, where: str) -> None:
    """Check a header that the hot path does not know to be valid. Raises KafkaError."""
    if origin is not AppendOrigin.COORDINATOR:
        check_client_header(header, where)
        check_timestamp_type(header, where)
        if origin is AppendOrigin.TRANSACTION and header.is_transactional:
            return
        check_not_transactional(header, where)
    raise invalid(where, f"header {header} is not valid")


def check_by_config(
    config: LogConfig,
    view: memoryview,
    header: BatchHeader,
    now_ms: int,
    origin: AppendOrigin,
    where: str,
) -> tuple[memoryview, int]:
    """Apply the checks and changes that only some topics' configs need; the batch to write and its
    append time (-1: CreateTime).

    Raises KafkaError, also when the topic's codec makes the batch too large.
    """
    if header.is_control:
        return view, -1
    if origin is not AppendOrigin.COORDINATOR and (config.is_compacted or config.bounds_age):
        check_records(view, header, config, now_ms, where)
    if config.compression_type != "producer":
        view = recompress(view, header, config) or view
        if len(view) > config.batch_bytes_max:
            raise too_large(len(view), config, where)
    if config.is_log_append_time:
        patch_append_time(view, 0, len(view), now_ms)
        return view, now_ms
    if origin is not AppendOrigin.COORDINATOR:
        check_timestamps(view, read_header(view), config, now_ms, where)
    return view, -1


def check_producer(
    producers: Producers, header: BatchHeader, view: memoryview, origin: AppendOrigin, where: str
) -> ProducerBatch | None:
    """The batch that this one duplicates, or None when it may be appended. Raises KafkaError."""
    if header.is_control:
        marker = read_marker(view, header)
        if marker is not None:
            producers.check_marker(
                header.producer_id, header.producer_epoch, marker.coordinator_epoch, where
            )
        return None
    if origin is AppendOrigin.COORDINATOR:
        return None
    pid, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
    entry = producers.entries.get(pid)
    if entry is not None:
        last = (first + header.last_offset_delta) & 0x7FFFFFFF
        known = entry.find_duplicate(epoch, first, last)
        if known is not None:
            return known
    producers.check_batch(pid, epoch, first, transactional=header.is_transactional, where=where)
    return None
