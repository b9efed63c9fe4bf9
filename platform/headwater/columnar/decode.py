"""Record batches v2 -> Arrow, at memory speed (numba, two passes: sizes, then copies)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.columnar.schema import KAFKA_COLUMNS
from headwater.errors import HeadwaterError


class CorruptRecordsError(HeadwaterError):
    """A batch failed its CRC or its records do not parse. The message names its base offset."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows of whole batches within [start_offset, end_offset).

    `chunks` are below 2 GiB each (Arrow's 32-bit offsets), in offset order, maybe none.
    `next_offset` is where to fetch next: after the last whole batch seen (rows or not: control and
    aborted batches count), at most end_offset. Equal to start_offset: no whole batch was there.
    """

    chunks: tuple[pa.RecordBatch, ...]
    next_offset: int

    @property
    def rows(self) -> int:
        """How many rows all chunks hold."""
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
    chunk_bytes_max: int = 1 << 30,
) -> Decoded:
    """The records of `view` (whole batches, a cut-off last one is left out) as Arrow.

    Control batches are skipped; so are transactional batches of `aborted` = Fetch's
    (producer_id, first_offset) pairs, until their abort marker. Pass () for read-uncommitted.
    `columns`: any of both layouts of `headwater.columnar.schema`, in the order wanted; what is not
    asked for is not copied. Log-append-time batches give every record the batch's max timestamp.
    Timestamps beyond microseconds' range are null (whole in `timestamp_raw`). Headers whose keys
    are not UTF-8 are null if `headers_raw` is asked for (and kept there), else their bad bytes
    become '?'. Raises CorruptRecordsError.
    """
    raise NotImplementedError


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
    """`decode_batches` as one record batch (empty when there are no rows).

    For fetch-sized input; raises CorruptRecordsError, and ValueError when it passes 2 GiB.
    """
    raise NotImplementedError


def warm_up() -> None:
    """Compile (or load from numba's cache) all that decoding needs; call at process set-up."""
    raise NotImplementedError
