"""Protobuf's wire format without a schema: where bytes stop being fields of a message."""

from __future__ import annotations

VARINT, FIXED64, BYTES, GROUP_START, GROUP_END, FIXED32 = range(6)
VARINT_BYTES_MAX = 10


def wire_fault(blob: bytes) -> int | None:
    """The first byte of the field that is not whole or has no such wire type; None if all are."""
    at, groups = 0, 0
    while at < len(blob):
        end, groups = _field_end(blob, at, groups)
        if end < 0:
            return at
        at = end
    return None if groups == 0 else len(blob)


def _field_end(blob: bytes, at: int, groups: int) -> tuple[int, int]:
    """(the position behind the field, groups that are open then); -1 for no field."""
    tag, at = _varint(blob, at)
    if at < 0 or tag >> 3 == 0:
        return -1, groups
    kind = tag & 7
    if kind == VARINT:
        return _varint(blob, at)[1], groups
    if kind == GROUP_START:
        return at, groups + 1
    if kind == GROUP_END:
        return (at, groups - 1) if groups else (-1, groups)
    if kind == BYTES:
        size, at = _varint(blob, at)
        if at < 0:
            return -1, groups
    elif kind in (FIXED32, FIXED64):
        size = 4 if kind == FIXED32 else 8
    else:
        return -1, groups
    return (at + size if at + size <= len(blob) else -1), groups


def _varint(blob: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(blob[at : at + VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    return 0, -1
