"""The frame of a value with a schema: a magic byte 0, the schema's id, then the payload."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.client.serializers.values import some
from headwater_tier.typed.formats.confluent import HEADER_BYTES, MAGIC, id_of


def framed(schema_id: int, payload: bytes) -> bytes:
    """The value as it is sent."""
    return bytes([MAGIC]) + schema_id.to_bytes(4, "big") + payload


def unframed(data: bytes | None) -> tuple[int, bytes]:
    """(schema id, payload). Raises ValueError for null, and for what has no frame."""
    blob = some(data)
    schema_id = id_of(blob)
    if schema_id is None:
        raise ValueError(f"{len(blob)} bytes begin with no magic byte 0 and schema id")
    return schema_id, blob[HEADER_BYTES:]


def encoded_indexes(indexes: Sequence[int]) -> bytes:
    """The path of a Protobuf message; one byte 0 for the first message of a file."""
    if tuple(indexes) == (0,):
        return b"\0"
    return _zigzag(len(indexes)) + b"".join(_zigzag(index) for index in indexes)


def _zigzag(value: int) -> bytes:
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
