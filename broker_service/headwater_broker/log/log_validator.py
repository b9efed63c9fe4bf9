"""Checks of a client's batches before a leader appends them (Kafka's LogValidator). Pure.

Beyond the arithmetic of a header, which the hot path checks by itself. `check_client_header` finds
the error of a header that the hot path has not accepted. The other checks apply to some topics
only: keys in compacted topics, another codec, bounds of timestamps.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import (
    AT_ATTRIBUTES,
    AT_BATCH_LENGTH,
    AT_CRC,
    COMPRESSION_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    NO_PRODUCER_ID,
    BatchHeader,
    compute_crc,
    patch_append_time,
    patch_max_timestamp,
    read_header,
)
from headwater.records.compression import Compression, compress, decompress
from headwater.records.record import decode_batch
from headwater.records.varint import as_int64
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.producer_snapshots import read_marker
from headwater_broker.log.producer_state_manager import ProducerBatch, Producers
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


NO_TIMESTAMP = -1


UNPACKED_BYTES_MAX = 64 * 1024 * 1024
"""Limit of a client's batch that must be unpacked here (compacted topics, another codec)."""


RECORD_ERRORS_MAX = 1000
"""Limit of the invalid records of a batch that a response names."""


RECORDS_IN_MESSAGE = 3


class RecordValidationError(KafkaError):
    """A batch is rejected for some of its records (Kafka's RecordValidationException).

    `record_errors`: (index in the batch, message) of each of these records (KIP-467).
    """

    def __init__(self, code: ErrorCode, where: str, errors: list[tuple[int, str]]) -> None:
        self.record_errors = tuple(errors[:RECORD_ERRORS_MAX])
        shown = "; ".join(f"record {index}: {text}" for index, text in errors[:RECORDS_IN_MESSAGE])
        count = f"{len(errors)} invalid records" if len(errors) > 1 else "an invalid record"
        super().__init__(code, f"{where}: the batch is refused for {count}: {shown}")


def corrupt(where: str, what: str) -> KafkaError:
    """A CORRUPT_MESSAGE error."""
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{where}: {what}; the batch is refused")


def invalid(where: str, what: str) -> KafkaError:
    """An INVALID_RECORD error."""
    return KafkaError(ErrorCode.INVALID_RECORD, f"{where}: {what}; the batch is refused")


def check_client_header(header: BatchHeader, where: str) -> None:
    """Check counts, codec, sequences and flags, as Kafka's LogValidator does. Raises KafkaError."""
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        raise invalid(
            where,
            f"{header.record_count} records do not match last offset delta "
            f"{header.last_offset_delta}",
        )
    if header.compression > Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"{where}: codec {header.compression} is not known, {int(Compression.ZSTD)} (zstd) "
            "is the last one; the batch is refused",
        )
    if header.is_control:
        raise invalid(where, "clients may not write control batches")
    if header.base_offset != 0:
        raise invalid(where, f"the base offset must be 0, not {header.base_offset}")
    if header.producer_id != NO_PRODUCER_ID:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise invalid(
                where,
                f"producer {header.producer_id} sends sequence {header.base_sequence}, "
                f"epoch {header.producer_epoch}",
            )
    elif header.is_transactional:
        raise invalid(where, "a transactional batch needs a producer id")


def check_not_transactional(header: BatchHeader, where: str) -> None:
    """Refuse a transactional batch of a request without transactional id: no marker would ever end
    it, and read_committed consumers would wait there for ever. Raises KafkaError."""
    if header.is_transactional:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"{where}: producer {header.producer_id} names no transactional id; "
            "the batch is refused",
        )


def check_magic(magic: int, where: str) -> None:
    """Check that it is record batch v2; Kafka 4 dropped older formats (KIP-724)."""
    if magic != MAGIC_V2:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"{where}: message format {magic} is not supported, use record batch v2 (magic 2)",
        )


def too_large(size: int, config: LogConfig, where: str) -> KafkaError:
    """MESSAGE_TOO_LARGE, or RECORD_LIST_TOO_LARGE for a batch that fits into no segment."""
    is_allowed = size <= config.max_message_bytes
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE if is_allowed else ErrorCode.MESSAGE_TOO_LARGE,
        f"{where}: batch of {size} bytes, max.message.bytes is {config.max_message_bytes} "
        f"and segment.bytes {config.segment_bytes}",
    )


def check_timestamp_type(header: BatchHeader, where: str) -> None:
    """Check that the client left the append time to the broker. Raises KafkaError."""
    if header.is_log_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"{where}: clients may not set LogAppendTime")


def check_timestamps(
    view: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, where: str
) -> None:
    """Check message.timestamp.after.max.ms by the header's largest timestamp: the records are only
    looked at to name those that exceed it (KIP-937). Raises KafkaError."""
    check_timestamp_type(header, where)
    if header.max_timestamp - now_ms > config.timestamp_after_max_ms:
        check_records(view, header, config, now_ms, where)
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"{where}: timestamp {header.max_timestamp} is {header.max_timestamp - now_ms} ms "
            f"ahead, message.timestamp.after.max.ms is {config.timestamp_after_max_ms}",
        )


def check_records(
    view: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, where: str
) -> None:
    """Check the key of every record of a compacted topic, and its timestamp (KIP-937), in Kafka's
    order and words. Raises RecordValidationError."""
    oldest, newest = now_ms - config.timestamp_before_max_ms, now_ms + config.timestamp_after_max_ms
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    records = decode_batch(view, 0, header, unpacked_bytes_max=UNPACKED_BYTES_MAX)
    for index, record in enumerate(records):
        if config.is_compacted and record.key is None:
            text = f"Compacted topic cannot accept message without key in topic partition {where}."
        elif config.is_log_append_time or record.timestamp == NO_TIMESTAMP:
            continue
        elif _is_out_of_range(now_ms, record.timestamp, config):
            code = ErrorCode.INVALID_TIMESTAMP
            text = (
                f"Timestamp {record.timestamp} of message with offset {record.offset} is out of "
                f"range. The timestamp should be within [{oldest}, {newest}]"
            )
        else:
            continue
        errors.append((index, text))
    if errors:
        raise RecordValidationError(code, where, errors)


def _is_out_of_range(now_ms: int, timestamp: int, config: LogConfig) -> bool:
    age_ms = now_ms - timestamp
    is_too_old = config.bounds_age and age_ms > config.timestamp_before_max_ms
    return is_too_old or -age_ms > config.timestamp_after_max_ms


def correct_max_timestamp(view: memoryview, header: BatchHeader) -> tuple[BatchHeader, int]:
    """Set the header's max timestamp to that of the records, as Kafka does; the new header and the
    timestamp.

    Some clients leave it out, and lookups by time would not find the records. Raises KafkaError.
    """
    records = decode_batch(view, 0, header, unpacked_bytes_max=UNPACKED_BYTES_MAX)
    times = (as_int64(record.timestamp) for record in records)
    largest = max(times, default=header.base_timestamp)
    patch_max_timestamp(view, 0, header.size_bytes, largest)
    return read_header(view), largest


def recompress(view: memoryview, header: BatchHeader, config: LogConfig) -> memoryview | None:
    """The batch in the topic's codec (compression.type); None when it has that codec already."""
    wanted = Compression.parse(
        None if config.compression_type == "uncompressed" else config.compression_type
    )
    if header.compression == wanted:
        return None
    plain = decompress(header.compression, view[HEADER_BYTES:], UNPACKED_BYTES_MAX)
    payload = compress(wanted, plain, config.compression_levels.get(config.compression_type))
    batch = bytearray(view[:HEADER_BYTES])
    batch += payload
    struct.pack_into(">i", batch, AT_BATCH_LENGTH, len(batch) - LOG_OVERHEAD_BYTES)
    attributes = (header.attributes & ~COMPRESSION_MASK) | wanted
    struct.pack_into(">h", batch, AT_ATTRIBUTES, attributes)
    result = memoryview(batch)
    struct.pack_into(">I", batch, AT_CRC, compute_crc(result, 0, len(batch)))
    return result
