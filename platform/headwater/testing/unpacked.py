"""What is compressed in a file, for searches: batches of a log, Parquet, gzip, zip, zstd, lz4."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from headwater.records.batch import iter_headers
from headwater.records.compression import Compression, decompress
from headwater.records.record import unpack_batch

SEGMENT = re.compile(r"\d{20}\.log")
MAGICS = {
    b"\x1f\x8b": Compression.GZIP,
    b"\x28\xb5\x2f\xfd": Compression.ZSTD,
    b"\x04\x22\x4d\x18": Compression.LZ4,
}
ZIP, PARQUET = b"PK\x03\x04", b"PAR1"
UNPACKED_MAX = 1 << 30
"""Bytes that one file may have unpacked."""


def unpacked(path: Path) -> Iterator[bytes]:
    """The parts, plain; none of a file that is not compressed in a known form.

    Raises OSError, KafkaError, ValueError for a file that cannot be read.
    """
    with open(path, "rb") as file:
        start = file.read(4)
    codec = next((codec for magic, codec in MAGICS.items() if start.startswith(magic)), None)
    if codec is not None:
        yield decompress(codec, path.read_bytes(), UNPACKED_MAX)
    elif start == ZIP:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                yield archive.read(name)
    elif start == PARQUET:
        yield from _of_parquet(path)
    elif SEGMENT.fullmatch(path.name):
        view = memoryview(path.read_bytes())
        for at, header in iter_headers(view):
            yield bytes(unpack_batch(view, at, header))


def _of_parquet(path: Path) -> Iterator[bytes]:
    from pyarrow import parquet  # noqa: PLC0415 - only where there are tables

    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches():
            for column in batch.columns:
                yield from (bytes(buffer) for buffer in column.buffers() if buffer is not None)
