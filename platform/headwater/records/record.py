"""Records of batch format v2 (KIP-98, headers KIP-82): encoding, decoding, reading whole batches.

Record: length varint | attributes b | timestamp delta varlong | offset delta varint | key | value
| header count varint | headers. Keys and values are length-prefixed, -1 for null. Header keys are
never null; header order and duplicates are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import compress, repeat
from typing import NamedTuple, NoReturn

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import (
    HEADER_BYTES,
    MAGIC_V2,
    BatchHeader,
    compute_crc,
    iter_headers,
)
from headwater.records.compression import decompress
from headwater.records.varint import (
    NULL_LENGTH,
    as_int64,
    read_varint,
    varint_of,
)

Headers = Sequence[tuple[str, bytes | None]]
"""Record headers in the order sent. A key may occur more than once."""

NULL_BYTE = NULL_LENGTH[0]
RECORD_BYTES_MIN = 7
"""The size of the smallest record, seven one-byte fields. It bounds the count in a batch header."""

NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()


class SharedHeaders(list[tuple[str, bytes | None]]):
    """An empty list that stays empty: all records without headers have the same one.

    A list of its own for each would be a third of what the cyclic garbage collector goes through
    while records are consumed.
    """

    __slots__ = ()

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("the headers of a record without any are shared: copy them with list(...)")

    append = extend = insert = __iadd__ = __setitem__ = _refuse


EMPTY_HEADERS = SharedHeaders()


class Record(NamedTuple):
    """One record. `headers` is a list of (key, value) in order."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers = NO_HEADERS,
) -> bytes:
    """The record with its length prefix."""
    parts = [b"\x00", varint_of(timestamp_delta), varint_of(offset_delta)]
    for blob in (key, value):
        if blob is None:
            parts.append(NULL_LENGTH)
        else:
            parts += (varint_of(len(blob)), blob)
    parts.append(varint_of(len(headers)))
    for name, blob in headers:
        encoded = name.encode()
        parts += (varint_of(len(encoded)), encoded)
        if blob is None:
            parts.append(NULL_LENGTH)
        else:
            parts += (varint_of(len(blob)), blob)
    body = b"".join(parts)
    return varint_of(len(body)) + body


def read_headers(data: bytes, at: int) -> tuple[list[tuple[str, bytes | None]], int]:
    """(headers, next position) of a record; `at` is the position of its header count.

    Raises ValueError, IndexError.
    """
    count, at = read_varint(data, at)
    if count < 0:
        raise ValueError(f"{count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = read_varint(data, at)
        if size < 0 or at + size > len(data):
            raise ValueError(f"header key of {size} bytes")
        name = data[at : at + size].decode(errors="replace")  # as Java's clients decode them
        at += size
        size, at = read_varint(data, at)
        if at + size > len(data):
            raise ValueError(f"header value of {size} bytes")
        headers.append((name, None if size < 0 else data[at : at + size]))
        at += max(size, 0)
    return headers, at


RecordColumns = tuple[
    list[int],
    list[int],
    list[bytes | None],
    list[bytes | None],
    list[list[tuple[str, bytes | None]]],
]
"""Offsets, timestamps, keys, values, headers of records: a list each, of the same length."""
ColumnsDecoder = Callable[[bytes, BatchHeader, int], RecordColumns]
"""`decode_columns`, or another implementation of it."""


def longer(data: bytes, at: int, first: int) -> tuple[int, int]:
    """(zigzag number, next position) of a varint whose `first` byte is not its last."""
    byte = data[at]
    if byte < 0x80:
        return first & 0x7F | byte << 7, at + 1
    number, at = read_varint(data, at - 1)
    number = as_int64(number)
    return (number << 1) ^ (number >> 63), at


def decode_columns(  # noqa: C901 - varints are read in place: a call per field would double it
    data: bytes, header: BatchHeader, start_offset: int = 0
) -> RecordColumns:
    """The records of a decompressed payload from `start_offset` on, as columns. Raises ValueError,
    IndexError.

    The loop is a consumer's cost per record. It reads varints of one and two bytes, the common
    case, in place, keeps deltas as they are, zigzag, and leaves to C what is done once per column.
    """
    count = _checked_count(data, header)
    keys: list[bytes | None] = [None] * count
    headers: list[list[tuple[str, bytes | None]]] = [EMPTY_HEADERS] * count
    values: list[bytes | None] = []
    deltas, places, at = list[int](), list[int](), 0
    for row in range(count):
        size, at = data[at], at + 1
        if size >= 0x80:
            byte = data[at]
            if byte < 0x80:
                size, at = size & 0x7F | byte << 7, at + 1
            else:
                size, at = longer(data, at, size)
        begin = at
        delta, at = data[at + 1], at + 2  # after the attributes: unused
        if delta >= 0x80:
            delta, at = longer(data, at, delta)
        deltas.append(delta)
        place, at = data[at], at + 1
        if place >= 0x80:
            byte = data[at]
            if byte < 0x80:
                place, at = place & 0x7F | byte << 7, at + 1
            else:
                place, at = longer(data, at, place)
        places.append(place)
        if data[at] == NULL_BYTE:
            at += 1
        else:
            length, at = read_varint(data, at)
            if length >= 0:
                stop = at + length
                keys[row], at = data[at:stop], stop
        length, at = data[at], at + 1
        if length >= 0x80:
            byte = data[at]
            if byte < 0x80:
                length, at = length & 0x7F | byte << 7, at + 1
            else:
                length, at = longer(data, at, length)
        if length & 1:
            values.append(None)
        else:
            stop = at + (length >> 1)
            values.append(data[at:stop])
            at = stop
        if data[at]:
            headers[row], at = read_headers(data, at)
        else:
            at += 1
        if (at - begin) << 1 != size:  # an odd size is a negative one
            size = (size >> 1) ^ -(size & 1)
            raise ValueError(f"record of {size} bytes ends after {at - begin}")
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes behind the last record")
    columns = (_offsets(places, header), _times(deltas, header), keys, values, headers)
    return columns if start_offset <= header.base_offset else columns_from(columns, start_offset)


def _checked_count(data: bytes, header: BatchHeader) -> int:
    """The number of records, if there is room for them. Raises ValueError."""
    count = header.record_count
    if not 0 <= count * RECORD_BYTES_MIN <= len(data):
        raise ValueError(f"{count} records in {len(data)} bytes")
    return count


def _offsets(places: list[int], header: BatchHeader) -> list[int]:
    """Offsets by their zigzag deltas. Nearly all batches have a record at each offset."""
    base, count = header.base_offset, len(places)
    if places == list(range(0, 2 * count, 2)):
        return list(range(base, base + count))
    return [base + ((n >> 1) ^ -(n & 1)) for n in places]


def _times(deltas: list[int], header: BatchHeader) -> list[int]:
    """Timestamps by their zigzag deltas, of which a batch has few."""
    if header.is_log_append_time:
        return [header.max_timestamp] * len(deltas)
    base = header.base_timestamp
    times = {n: as_int64(base + ((n >> 1) ^ -(n & 1))) for n in set(deltas)}
    return list(map(times.__getitem__, deltas))


def columns_from(columns: RecordColumns, start_offset: int) -> RecordColumns:
    """The rows at and behind `start_offset`: a consumer may begin within a batch."""
    chosen = [offset >= start_offset for offset in columns[0]]
    offsets, times, keys, values, headers = (list(compress(c, chosen)) for c in columns)
    return offsets, times, keys, values, headers  # type: ignore[return-value]


def decode_payload(data: bytes, header: BatchHeader, start_offset: int = 0) -> list[Record]:
    """The same as rows."""
    columns = decode_columns(data, header, start_offset)
    # A NamedTuple's own constructor takes twice the time.
    return list(map(tuple.__new__, repeat(Record), zip(*columns, strict=True)))


def check_batch(view: memoryview, at: int, header: BatchHeader) -> None:
    """Check the format version and the CRC. Raises KafkaError."""
    if header.magic != MAGIC_V2:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"magic {header.magic} at offset {header.base_offset}: only record batch v2 is read",
        )
    crc = compute_crc(view, at, header.size_bytes)
    if crc != header.crc:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"batch at offset {header.base_offset}: CRC is {crc:#010x}, not {header.crc:#010x}",
        )


def unpack_batch(
    view: memoryview, at: int, header: BatchHeader, size_max: int | None = None
) -> bytes:
    """The decompressed records of the batch at byte `at`. Raises KafkaError that names its
    offset."""
    packed = view[at + HEADER_BYTES : at + header.size_bytes]
    try:
        return decompress(header.compression, packed, size_max)
    except KafkaError as e:
        raise KafkaError(e.code, f"batch at offset {header.base_offset}: {e.detail}") from e


def decode_batch(
    view: memoryview,
    at: int,
    header: BatchHeader,
    start_offset: int = 0,
    unpacked_bytes_max: int | None = None,
) -> list[Record]:
    """The records of the batch at byte `at`, from `start_offset` on. Raises KafkaError."""
    columns = batch_columns(view, at, header, start_offset, unpacked_bytes_max)
    return list(map(tuple.__new__, repeat(Record), zip(*columns, strict=True)))


def batch_columns(
    view: memoryview,
    at: int,
    header: BatchHeader,
    start_offset: int = 0,
    unpacked_bytes_max: int | None = None,
    decode: ColumnsDecoder = decode_columns,
) -> RecordColumns:
    """The same as columns, by `decode`."""
    payload = unpack_batch(view, at, header, unpacked_bytes_max)
    try:
        return decode(payload, header, start_offset)
    except (ValueError, IndexError) as e:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"batch at offset {header.base_offset}: {e}"
        ) from e


def read_records(data: bytes | memoryview, *, with_control: bool = False) -> Iterator[Record]:
    """The records of whole batches, with CRC checks; of control batches only if asked for."""
    view = memoryview(data)
    for at, header in iter_headers(view):
        check_batch(view, at, header)
        if with_control or not header.is_control:
            yield from decode_batch(view, at, header)
