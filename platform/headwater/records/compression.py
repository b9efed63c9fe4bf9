"""The four codecs of a batch's records section, as Kafka frames them.

gzip: RFC 1952. snappy: Kafka writes the framing of the xerial library (magic, two versions, then
length-prefixed raw blocks); raw snappy is read too. lz4: the standard frame with independent
64 KiB blocks, as Java's reader refuses linked ones (KIP-57). zstd: plain frames (KIP-110).
"""

from __future__ import annotations

import mmap
import struct
from enum import IntEnum

import cramjam

from headwater.errors import ErrorCode, KafkaError, UsageError

SNAPPY_BLOCK_BYTES = 32 * 1024
LZ4_BLOCK_BYTES = 64 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
# Magic, FLG (version 01, independent blocks), BD (64 KiB), and the header checksum of those two.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_END = bytes(4)
_LZ4_STORED = 0x80000000
_NO_ROOM = "failed to write whole buffer"
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
        """By Kafka's name ("none", "gzip", ...), None for none. Raises UsageError."""
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


def _decompress_snappy(data: memoryview) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return bytes(cramjam.snappy.decompress_raw(data))
    out = []
    at = len(_XERIAL_HEADER)
    while at < len(data):
        size = _INT32.unpack_from(data, at)[0]
        at += 4
        if size < 0 or at + size > len(data):
            raise ValueError(f"snappy block of {size} bytes in {len(data) - at}")
        out.append(bytes(cramjam.snappy.decompress_raw(data[at : at + size])))
        at += size
    return b"".join(out)


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
    """`data` compressed by `codec`; NONE gives it back as it is. `level` is for gzip and zstd."""
    if codec == Compression.NONE:
        return data
    if codec == Compression.GZIP:
        return bytes(cramjam.gzip.compress(data, level=6 if level is None else level))
    if codec == Compression.SNAPPY:
        return _compress_snappy(data)
    if codec == Compression.LZ4:
        return _compress_lz4(data)
    if codec == Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {codec}")


def decompress(
    codec: int, data: bytes | bytearray | memoryview, size_max: int | None = None
) -> bytes:
    """The plain bytes. Raises KafkaError: CORRUPT_MESSAGE or UNSUPPORTED_COMPRESSION_TYPE.

    With `size_max`, MESSAGE_TOO_LARGE for more than that, before it takes the memory: 32 KB of zstd
    can be a gigabyte.
    """
    if codec == Compression.NONE:
        return bytes(data)
    if codec > Compression.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {codec}")
    name = Compression(codec).name.lower()
    try:
        if codec == Compression.SNAPPY:
            return _decompress_snappy(memoryview(data))  # which grows 22 times at most
        library = getattr(cramjam, name)
        if size_max is None:
            return bytes(library.decompress(data))
        with mmap.mmap(-1, size_max) as room:  # pages come as they are written
            return room[: library.decompress_into(data, room)]
    except (cramjam.DecompressionError, ValueError, struct.error) as e:
        if size_max is not None and _NO_ROOM in str(e):
            text = f"{name}: a batch of more than {size_max} bytes unpacked: send smaller ones"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text) from e
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{name}: {e}") from e
