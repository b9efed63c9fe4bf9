"""Zigzag varints, the integers of record batch v2 (Kafka "Varint", as in Protocol Buffers)."""

from __future__ import annotations

VARINT_BYTES_MAX = 10
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
TABLE_SIZE = 8192
"""Values 0 to TABLE_SIZE - 1 are encoded by table look-up: nearly all lengths and deltas."""


def encode_varint(value: int) -> bytes:
    """The zigzag varint of a signed integer of at most 64 bits."""
    unsigned = (value << 1) ^ (value >> 63)
    if unsigned < 0x80:
        return bytes((unsigned,))
    out = bytearray()
    while unsigned > 0x7F:
        out.append((unsigned & 0x7F) | 0x80)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)


VARINTS: tuple[bytes, ...] = tuple(encode_varint(n) for n in range(TABLE_SIZE))
"""VARINTS[n] is the varint of n."""
NULL_LENGTH = encode_varint(-1)
"""The length of a null key or value."""


def as_int64(value: int) -> int:
    """The low 64 bits as a signed number, as in Java when a sum overflows."""
    return ((value - INT64_MIN) & 0xFFFF_FFFF_FFFF_FFFF) + INT64_MIN


def varint_of(value: int) -> bytes:
    """Like `encode_varint`, with a table for small values."""
    return VARINTS[value] if 0 <= value < TABLE_SIZE else encode_varint(value)


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """(value, next position). Raises ValueError beyond 10 bytes, IndexError past the end."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value, shift, end = byte & 0x7F, 7, at + VARINT_BYTES_MAX - 1
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise ValueError("varint is longer than 10 bytes")
