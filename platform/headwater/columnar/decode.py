"""Decodes record batches into Arrow columns with numba, in two passes: sizes, then copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from headwater.columnar import decode_kernels as k
from headwater.columnar.schema import HEADERS, KAFKA_COLUMNS, TIMESTAMP, arrow_schema
from headwater.errors import HeadwaterError, KafkaError
from headwater.records.batch import AT_ATTRIBUTES, AT_CRC, COMPRESSION_MASK
from headwater.records.compression import decompress
from headwater.records.record import RECORD_BYTES_MIN

CHUNK_BYTES_MAX = 1 << 30
"""Uncompressed bytes per Arrow chunk. Arrow's binary offsets are 32-bit, so it is below 2 GiB."""
_NO_ABORTED = np.empty(0, np.int64)
_PROBLEMS = {
    k.BAD_LENGTH: "a batch length too small for its header",
    k.BAD_MAGIC: "a batch that is not of format v2",
}


class CorruptRecordsError(HeadwaterError):
    """A batch with a bad CRC, with bad records, or above the limit on decompressed bytes
    (`headwater.records.compression`). The message names its base offset."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of whole batches within [start_offset, end_offset).

    `chunks` are in offset order, below 2 GiB each (Arrow's 32-bit offsets); there may be none.
    `next_offset` is the next offset to fetch: after the last whole batch, also one without rows
    (control batches, aborted ones), and at most end_offset. If it equals start_offset there was no
    whole batch.
    """

    chunks: tuple[pa.RecordBatch, ...]
    next_offset: int

    @property
    def rows(self) -> int:
        """The number of rows in all chunks."""
        return sum(chunk.num_rows for chunk in self.chunks)


def decode_batches(
    view: memoryview | bytes | bytearray,
    *,
    start_offset: int,
    end_offset: int,
    topic: str = "",
    partition: int = 0,
    columns: Sequence[str] = KAFKA_COLUMNS,
    aborted: Sequence[tuple[int, int]] = (),
    check_crc: bool = True,
    chunk_bytes_max: int = CHUNK_BYTES_MAX,
) -> Decoded:
    """The records of whole batches as Arrow columns; an incomplete last batch is left out.

    Control batches are skipped, and so are aborted transactional batches: `aborted` holds Fetch's
    (producer_id, first_offset) pairs; pass () for read_uncommitted. `columns`: any of both layouts
    of `headwater.columnar.schema`, in this order; other columns are not copied. With LogAppendTime
    every record has the batch's max timestamp. Timestamps beyond the range of microseconds are null
    (and whole in `timestamp_raw`). Headers whose keys are not UTF-8 are null if `headers_raw` is
    among the columns, which keeps them; otherwise their bad bytes become '?'. Raises
    CorruptRecordsError.
    """
    schema = arrow_schema(columns)
    data = np.frombuffer(view, np.uint8)
    data.flags.writeable = False  # numba compiles per kind of array: use only one
    table = _scan(data, aborted)
    if not len(table):
        return Decoded((), start_offset)
    next_offset = max(start_offset, min(end_offset, int(table[-1, k.AT_NEXT_OFFSET])))
    is_wanted = (
        (table[:, k.AT_KIND] == k.KIND_DATA)
        & (table[:, k.AT_NEXT_OFFSET] > start_offset)
        & (table[:, k.AT_BASE_OFFSET] < end_offset)
    )
    if not is_wanted.all():
        table = table[is_wanted]
    if check_crc:
        _check_crcs(view, table)
    chunks = []
    for body, part in _bodies(view, data, table, chunk_bytes_max, f"{topic}-{partition}"):
        chunk = _Chunk(body, part, start_offset, end_offset)
        if chunk.rows:
            arrays = [chunk.column(field.name, topic, partition, columns) for field in schema]
            chunks.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return Decoded(tuple(chunks), next_offset)


def batches_to_arrow(
    view: memoryview | bytes | bytearray,
    *,
    start_offset: int,
    end_offset: int,
    topic: str = "",
    partition: int = 0,
    columns: Sequence[str] = KAFKA_COLUMNS,
    aborted: Sequence[tuple[int, int]] = (),
    check_crc: bool = True,
) -> pa.RecordBatch:
    """`decode_batches` as one Arrow record batch (empty without rows), for the size of a fetch.

    Raises CorruptRecordsError, and ValueError above 2 GiB.
    """
    decoded = decode_batches(
        view,
        start_offset=start_offset,
        end_offset=end_offset,
        topic=topic,
        partition=partition,
        columns=columns,
        aborted=aborted,
        check_crc=check_crc,
        chunk_bytes_max=(1 << 31) - 1,
    )
    if not decoded.chunks:
        return pa.RecordBatch.from_pylist([], schema=arrow_schema(columns))
    if len(decoded.chunks) > 1:
        raise ValueError(f"{len(view)} bytes of batches pass 2 GiB decoded: use decode_batches")
    return decoded.chunks[0]


def warm_up(*, with_headers: bool = True) -> None:
    """Compile the decoding kernels, or load them from numba's cache. Call it at process start.

    Those for headers are a third of the work, and are used when there are headers.
    """
    record = b"\x18\x00\x00\x00\x00\x00" + (b"\x02\x02k\x02v" if with_headers else b"\x00")
    record = bytes([2 * len(record) - 2]) + record[1:]
    header = bytes(8) + (49 + len(record)).to_bytes(4, "big") + bytes(4) + b"\x02" + bytes(40)
    batch = header + (1).to_bytes(4, "big") + record
    columns = ("key", "headers", "headers_raw")
    batches_to_arrow(batch, start_offset=0, end_offset=1, columns=columns, check_crc=False)


def _scan(data: Any, aborted: Sequence[tuple[int, int]]) -> Any:
    table = np.empty((len(data) // k.HEADER_BYTES + 1, k.TABLE_WIDTH), np.int64)
    ids, firsts = _NO_ABORTED, _NO_ABORTED
    if aborted:
        ordered = sorted(aborted, key=lambda pair: pair[1])
        ids = np.array([pair[0] for pair in ordered], np.int64)
        firsts = np.array([pair[1] for pair in ordered], np.int64)
    count = k.scan(data, ids, firsts, table)
    if count < 0:
        raise CorruptRecordsError(f"{len(data)} bytes of batches hold {_PROBLEMS[count]}")
    return table[:count]


def _check_crcs(view: memoryview | bytes | bytearray, table: Any) -> None:
    whole = memoryview(view)
    for at, size_bytes, base_offset in table[:, :3].tolist():
        stored = int.from_bytes(whole[at + AT_CRC : at + AT_ATTRIBUTES], "big")
        computed = crc32c(whole[at + AT_ATTRIBUTES : at + size_bytes])
        if stored != computed:
            raise CorruptRecordsError(
                f"the batch at offset {base_offset} has CRC {computed:#x}, its header {stored:#x}"
            )


def _bodies(
    view: memoryview | bytes | bytearray, data: Any, table: Any, chunk_bytes_max: int, where: str
) -> Iterator[tuple[Any, Any]]:
    """(bytes, table of the batches in them) per chunk, uncompressed.

    Compressed batches are decompressed one by one into a buffer of the chunk. A view without any is
    used in place.
    """
    if not (table[:, k.AT_ATTRIBUTES] & COMPRESSION_MASK).any():
        for part in _split(table, chunk_bytes_max):
            yield data, part
        return
    whole = memoryview(view)
    packed: list[bytes | memoryview] = []
    first, at = 0, 0
    table = table.copy()
    for i, (codec, begin, end) in enumerate(
        zip(
            (table[:, k.AT_ATTRIBUTES] & COMPRESSION_MASK).tolist(),
            table[:, k.AT_BODY_BEGIN].tolist(),
            table[:, k.AT_BODY_END].tolist(),
            strict=True,
        )
    ):
        body: bytes | memoryview = whole[begin:end]
        if codec:
            body = _unpack(codec, body, int(table[i, k.AT_BASE_OFFSET]), where)
        if packed and at + len(body) > chunk_bytes_max:
            yield np.frombuffer(b"".join(packed), np.uint8), table[first:i]
            packed, first, at = [], i, 0
        table[i, k.AT_BODY_BEGIN] = at
        at += len(body)
        table[i, k.AT_BODY_END] = at
        packed.append(body)
    yield np.frombuffer(b"".join(packed), np.uint8), table[first:]


def _unpack(codec: int, body: bytes | memoryview, base_offset: int, where: str) -> bytes:
    try:
        return decompress(codec, body)
    except KafkaError as error:
        raise CorruptRecordsError(
            f"{where}: the batch at offset {base_offset} does not decompress: {error}"
        ) from error


def _split(table: Any, chunk_bytes_max: int) -> Iterator[Any]:
    if not len(table):
        return
    ends = np.cumsum(table[:, k.AT_SIZE_BYTES])
    first, done = 0, 0
    while first < len(table):
        last = int(np.searchsorted(ends, done + chunk_bytes_max, side="right"))
        last = max(last, first + 1)
        yield table[first:last]
        done = int(ends[last - 1])
        first = last


class _Chunk:
    """The parsed rows of some batches: fixed fields, and the positions of each row's other
    fields."""

    def __init__(self, data: Any, table: Any, start_offset: int, end_offset: int) -> None:
        self._data = data
        counts = table[:, k.AT_RECORDS]
        sizes = table[:, k.AT_BODY_END] - table[:, k.AT_BODY_BEGIN]
        if (counts < 0).any() or (counts * RECORD_BYTES_MIN > sizes).any():
            first = int(table[(counts < 0) | (counts * RECORD_BYTES_MIN > sizes)][0, 2])
            raise CorruptRecordsError(
                f"the batch at offset {first} claims more records than its bytes can hold"
            )
        rows_max = int(counts.sum())
        self._fixed = np.empty((4, rows_max), np.int64)
        self._places = np.empty((6, rows_max), np.int64)
        bad_at = np.zeros(1, np.int64)
        rows = k.parse(data, table, start_offset, end_offset, self._fixed, self._places, bad_at)
        if rows < 0:
            raise CorruptRecordsError(f"records of the batch at offset {bad_at[0]} do not parse")
        self.rows = rows
        self._headers: tuple[pa.Array, pa.Array] | None = None

    def column(self, name: str, topic: str, partition: int, columns: Sequence[str]) -> pa.Array:
        """One column of all rows. `columns` decides about headers with bad keys (`headers_raw`)."""
        match name:
            case "key":
                return self._binary(self._places[0, : self.rows], self._places[1, : self.rows])
            case "value":
                return self._binary(self._places[2, : self.rows], self._places[3, : self.rows])
            case "topic":
                return pa.repeat(pa.scalar(topic, pa.string()), self.rows)
            case "partition":
                return pa.repeat(pa.scalar(partition, pa.int32()), self.rows)
            case "offset":
                return pa.array(self._fixed[0, : self.rows])
            case "timestamp" | "timestamp_raw":
                return self._timestamp(is_raw=name == "timestamp_raw")
            case "timestampType":
                return pa.array(self._fixed[2, : self.rows].astype(np.int32))
            case "timestamp_type":
                return pa.array(self._fixed[2, : self.rows].astype(np.int8))
            case "leader_epoch":
                return pa.array(self._fixed[3, : self.rows].astype(np.int32))
        if self._headers is None:
            self._headers = self._decode_headers(keep_bad="headers_raw" not in columns)
        return self._headers[0 if name == "headers" else 1]

    def _binary(self, starts: Any, sizes: Any) -> pa.Array:
        total = int(np.maximum(sizes, 0).sum())
        offsets = np.empty(self.rows + 1, np.int32)
        validity = np.zeros((self.rows + 7) // 8, np.uint8)
        out = np.empty(total, np.uint8)
        nulls = k.copy_binary(self._data, starts, sizes, offsets, validity, out)
        buffers = [pa.py_buffer(validity) if nulls else None, *map(pa.py_buffer, (offsets, out))]
        return pa.Array.from_buffers(pa.binary(), self.rows, buffers, nulls)

    def _timestamp(self, is_raw: bool) -> pa.Array:
        times_ms = self._fixed[1, : self.rows]
        overflows = (times_ms > k.MICROSECONDS_MS_MAX) | (times_ms < -k.MICROSECONDS_MS_MAX)
        if not overflows.any():
            if is_raw:
                return pa.nulls(self.rows, pa.int64())
            return pa.array(times_ms * 1000).view(TIMESTAMP)
        if is_raw:
            return pa.array(times_ms, pa.int64(), mask=~overflows)
        return pa.array(np.where(overflows, 0, times_ms) * 1000, mask=overflows).view(TIMESTAMP)

    def _decode_headers(self, keep_bad: bool) -> tuple[pa.Array, pa.Array]:
        rows, places = self.rows, self._places
        if (places[4, :rows] == places[5, :rows]).all():
            return pa.nulls(rows, HEADERS), pa.nulls(rows, pa.binary())
        counts = np.zeros(rows, np.int64)
        is_bad = np.zeros(rows, np.uint8)
        totals = np.zeros(3, np.int64)
        bad_row = k.measure_headers(self._data, places, keep_bad, counts, is_bad, totals)
        if bad_row >= 0:
            raise CorruptRecordsError(
                f"the headers of the record at offset {self._fixed[0, bad_row]} do not parse"
            )
        raw = self._raw_headers(is_bad, keep_bad)
        if not totals[0]:
            return pa.nulls(rows, HEADERS), raw
        count, key_bytes, value_bytes = (int(total) for total in totals)
        list_offsets = np.zeros(rows + 1, np.int32)
        list_validity = np.zeros((rows + 7) // 8, np.uint8)
        key_offsets = np.zeros(count + 1, np.int32)
        value_offsets = np.zeros(count + 1, np.int32)
        value_validity = np.zeros((count + 7) // 8, np.uint8)
        keys = np.empty(key_bytes, np.uint8)
        values = np.empty(value_bytes, np.uint8)
        nulls = k.copy_headers(
            self._data, places, counts, is_bad, list_offsets, list_validity,
            key_offsets, keys, value_offsets, value_validity, values,
        )  # fmt: skip
        key_buffers = [None, pa.py_buffer(key_offsets), pa.py_buffer(keys)]
        value_buffers = [
            pa.py_buffer(value_validity) if nulls else None,
            pa.py_buffer(value_offsets),
            pa.py_buffer(values),
        ]
        pairs = pa.StructArray.from_arrays(
            [
                pa.Array.from_buffers(pa.string(), count, key_buffers, 0),
                pa.Array.from_buffers(pa.binary(), count, value_buffers, nulls),
            ],
            fields=list(HEADERS.value_type),
        )
        list_buffers = [pa.py_buffer(list_validity), pa.py_buffer(list_offsets)]
        return pa.Array.from_buffers(HEADERS, rows, list_buffers, -1, children=[pairs]), raw

    def _raw_headers(self, is_bad: Any, keep_bad: bool) -> pa.Array:
        if keep_bad or not is_bad.any():
            return pa.nulls(self.rows, pa.binary())
        starts, ends = self._places[4, : self.rows], self._places[5, : self.rows]
        sizes = np.where(is_bad, ends - starts, -1)
        return self._binary(starts, sizes)
