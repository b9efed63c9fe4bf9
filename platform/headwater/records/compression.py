"""Kafka's four compression codecs for the records of a batch, with Kafka's framing.

gzip: RFC 1952. snappy: Kafka writes the framing of the xerial library (magic, two versions, then
length-prefixed raw blocks); raw snappy is read too. lz4: the standard frame with independent
64 KiB blocks, as Java's reader refuses linked ones (KIP-57). zstd: plain frames (KIP-110).
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from enum import IntEnum

import cramjam

from headwater.errors import ErrorCode, KafkaError, UsageError

SNAPPY_BLOCK_BYTES = 32 * 1024
LZ4_FAST = 9
"""Kafka's default level of lz4. It selects the fast mode, not level 9 of high compression."""
LZ4_BLOCK_BYTES = 64 * 1024

UNPACKED_BYTES_MAX = 256 << 20
"""Default limit on the decompressed size of one batch. message.max.bytes bounds the compressed size
only. The limit keeps 32 KB that decompress to a gigabyte from taking a reader's memory."""
UNPACKED_BYTES_HIGHEST = 1 << 30
"""The highest limit that can be set: Arrow's offsets are 32-bit."""
UNPACKED_VARIABLE = "HEADWATER_UNPACKED_BATCH_BYTES_MAX"
"""The environment variable that sets another limit, for every reader in the process."""
_FIRST_RATIO = 16
"""The first output buffer is this many times the compressed size: enough for most batches, and
cheap to allocate."""
_FIRST_BYTES = 4096

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
# Magic, FLG (version 01, independent blocks), BD (64 KiB), and the header checksum of those two.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_END = bytes(4)
_LZ4_STORED = 0x80000000
_NO_ROOM = "failed to write whole buffer"
_SNAPPY_LENGTH_BYTES = 5
_INT32 = struct.Struct(">i")
_UINT32_LE = struct.Struct("<I")


class Compression(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def parse(cls, name: str | None) -> Compression:
        """The codec of Kafka's name ("none", "gzip", ...); None stands for none. Raises
        UsageError."""
        try:
            return cls[(name or "none").upper()]
        except KeyError:
            known = ", ".join(c.name.lower() for c in cls)
            raise UsageError(f"compression type {name!r} is not one of {known}") from None


def _compress_snappy(data: bytes | bytearray | memoryview) -> bytes:
    out = [_XERIAL_HEADER]
    view = memoryview(data)
    for at in range(0, len(view), SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + SNAPPY_BLOCK_BYTES]))
        out.append(_INT32.pack(len(block)))
        out.append(block)
    return b"".join(out)


class _TooLargeError(Exception):
    """The decompressed size exceeds the limit."""


def unpacked_limit(environment: Mapping[str, str]) -> int:
    """The limit on the decompressed size of one batch, in bytes. Raises UsageError."""
    text = environment.get(UNPACKED_VARIABLE, str(UNPACKED_BYTES_MAX))
    if not text.isdecimal() or not 0 < int(text) <= UNPACKED_BYTES_HIGHEST:
        raise UsageError(
            f"{UNPACKED_VARIABLE}={text!r} is no number of bytes from 1 to {UNPACKED_BYTES_HIGHEST}"
        )
    return int(text)


def _snappy_block(block: memoryview, room: int) -> bytes:
    """Decompress one raw block, which starts with its size as a varint. Raises _TooLargeError."""
    claimed = shift = 0
    for byte in block[:_SNAPPY_LENGTH_BYTES]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if claimed > room:
        raise _TooLargeError
    return bytes(cramjam.snappy.decompress_raw(block))


def _decompress_snappy(data: memoryview, size_max: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, size_max)
    out: list[bytes] = []
    at, room = len(_XERIAL_HEADER), size_max
    while at < len(data):
        size = _INT32.unpack_from(data, at)[0]
        at += 4
        if size < 0 or at + size > len(data):
            raise ValueError(f"snappy block of {size} bytes in {len(data) - at}")
        out.append(_snappy_block(data[at : at + size], room))
        room -= len(out[-1])
        at += size
    return b"".join(out)


def _decompress_into(codec: Compression, data: memoryview, size_max: int) -> bytes:
    """Decompress gzip, lz4 or zstd into a buffer of limited size.

    Raises _TooLargeError, cramjam.DecompressionError.
    """
    library = getattr(cramjam, codec.name.lower())
    first = len(data) * _FIRST_RATIO + _FIRST_BYTES
    try:
        if first < size_max:
            small = bytearray(first)
            return bytes(memoryview(small)[: library.decompress_into(data, small)])
    except cramjam.DecompressionError as e:
        if _NO_ROOM not in str(e):
            raise
    try:
        with mmap.mmap(-1, size_max) as room:  # memory is allocated only as it is written
            return room[: library.decompress_into(data, room)]
    except cramjam.DecompressionError as e:
        if _NO_ROOM in str(e):
            raise _TooLargeError from e
        raise


def _compress_lz4(data: bytes | bytearray | memoryview) -> bytes:
    out = [_LZ4_HEADER]
    view = memoryview(data)
    for at in range(0, len(view), LZ4_BLOCK_BYTES):
        plain = view[at : at + LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += (_UINT32_LE.pack(len(block)), block)
        else:
            out += (_UINT32_LE.pack(len(plain) | _LZ4_STORED), bytes(plain))
    out.append(_LZ4_END)
    return b"".join(out)


def compress(
    codec: int, data: bytes | bytearray | memoryview, level: int | None = None
) -> bytes | bytearray | memoryview:
    """`data` compressed with `codec`; NONE returns it unchanged.

    `level` (KIP-390): gzip 1 to 9, or -1: 6; lz4 1 to 17, 9 being the fast mode and any other one
    of high compression, as in Kafka; zstd up to 22.
    """
    if codec == Compression.NONE:
        return data
    if codec == Compression.GZIP:
        return bytes(cramjam.gzip.compress(data, level=6 if level in (None, -1) else level))
    if codec == Compression.SNAPPY:
        return _compress_snappy(data)
    if codec == Compression.LZ4:
        if level in (None, LZ4_FAST):
            return _compress_lz4(data)
        # Kafka wants independent blocks (KIP-57); with checksums is fine.
        frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        frame.compress(data)
        return bytes(frame.finish())
    if codec == Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {codec}")


def decompress(
    codec: int, data: bytes | bytearray | memoryview, size_max: int | None = None
) -> bytes:
    """The decompressed bytes.

    `size_max` defaults to the process's limit (`unpacked_limit` of its environment). Raises
    KafkaError: CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE, or MESSAGE_TOO_LARGE above
    `size_max`, before so much memory is used.
    """
    if codec == Compression.NONE:
        return bytes(data)
    if codec > Compression.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {codec}")
    name = Compression(codec).name.lower()
    limit = unpacked_limit(os.environ) if size_max is None else size_max
    view = memoryview(data)
    try:
        if codec == Compression.SNAPPY:
            return _decompress_snappy(view, limit)
        return _decompress_into(Compression(codec), view, limit)
    except _TooLargeError as e:
        remedy = (
            f"raise {UNPACKED_VARIABLE} to read it" if size_max is None else "send smaller ones"
        )
        text = f"{name}: {len(view)} bytes are more than {limit} bytes unpacked: {remedy}"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text) from e
    except (cramjam.DecompressionError, ValueError, struct.error) as e:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{name}: {e}") from e
