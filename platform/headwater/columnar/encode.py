"""Arrow -> record batches v2 (numba): rebuilt history, and `send_table`."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One record batch, ready to send: CRC set, base offset as given (0 for a producer)."""

    data: bytearray
    base_offset: int
    next_offset: int
    record_count: int
    max_timestamp: int
    first_row: int
    """Index of its first row in the input."""


def arrow_to_batches(
    rows: pa.RecordBatch,
    *,
    start_offset: int,
    end_offset: int,
    batch_bytes_max: int = 1 << 20,
) -> list[EncodedBatch]:
    """Log-table rows of one partition, sorted by offset, as uncompressed batches.

    Together they cover [start_offset, end_offset) without a hole: each batch's last offset delta
    reaches the next one's first row - 1, the last one's end_offset - 1; the first starts at
    start_offset; no rows at all is one empty batch. Else a client would ask for the gap for ever.
    Leader epochs, timestamp types, timestamps, headers and nulls come back as they were.
    """
    raise NotImplementedError


def encode_rows(
    *,
    key: pa.Array | None,
    value: pa.Array | None,
    timestamps_ms: pa.Array | int,
    headers: pa.Array | None = None,
    compression: str | None = None,
    batch_bytes_max: int = 1 << 20,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    rows_max: int | None = None,
) -> list[EncodedBatch]:
    """A producer's batches of these columns (one partition's rows), base offset 0 each.

    `key`, `value`: binary or string arrays (large ones too), None = all null. `timestamps_ms`: int64
    array or one value for all. Sequences run on from `base_sequence`, wrapping at 2**31 (KIP-98).
    A single row larger than `batch_bytes_max` gets a batch of its own. `compression`: gzip, snappy,
    lz4, zstd or None.
    """
    raise NotImplementedError


def warm_up() -> None:
    """Compile (or load from numba's cache) all that encoding needs; call at process set-up."""
    raise NotImplementedError
