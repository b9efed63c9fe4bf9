"""Readers and writers of the protocol's primitive types (Kafka protocol guide, "Types").

A writer appends to a bytearray. A reader takes (view, position) and returns (value, next position).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

Write = Callable[[bytearray, Any], None]
Read = Callable[[memoryview, int], tuple[Any, int]]

ZERO_UUID = UUID(int=0)
INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

DEFAULTS: dict[str, Any] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "uint32": 0,
    "int64": 0,
    "float64": 0.0,
    "uuid": ZERO_UUID,
    "string": "",
    "bytes": b"",
    "records": None,
}

_FIXED = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
VARINT_BYTES_MAX = 10


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned LEB128 number (KIP-482)."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def read_uvarint(view: memoryview, at: int) -> tuple[int, int]:
    """Read an unsigned LEB128 number of at most 10 bytes. Raises ValueError beyond that."""
    byte = view[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift, end = byte & 0x7F, 7, at + VARINT_BYTES_MAX
    at += 1
    while at < end:
        byte = view[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("varint is longer than 10 bytes")


def _take(view: memoryview, at: int, size: int) -> tuple[memoryview, int]:
    end = at + size
    if size < 0 or end > len(view):
        raise ValueError(f"length {size} at byte {at} runs past the end ({len(view)})")
    return view[at:end], end


def _fixed_writer(code: str) -> Write:
    pack = struct.Struct(code).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


def _fixed_reader(code: str) -> Read:
    packed = struct.Struct(code)
    unpack, size = packed.unpack_from, packed.size

    def read(view: memoryview, at: int) -> tuple[Any, int]:
        return unpack(view, at)[0], at + size

    return read


def _write_bool(out: bytearray, value: Any) -> None:
    out.append(1 if value else 0)


def _read_bool(view: memoryview, at: int) -> tuple[Any, int]:
    return view[at] != 0, at + 1


def _write_uuid(out: bytearray, value: Any) -> None:
    out += value.bytes


def _read_uuid(view: memoryview, at: int) -> tuple[Any, int]:
    data, at = _take(view, at, 16)
    return UUID(bytes=bytes(data)), at


def _length_writer(prefix: struct.Struct, compact: bool) -> Callable[[bytearray, int], None]:
    def write_compact(out: bytearray, size: int) -> None:
        write_uvarint(out, size + 1)

    def write_plain(out: bytearray, size: int) -> None:
        out += prefix.pack(size)

    return write_compact if compact else write_plain


def _length_reader(prefix: struct.Struct, compact: bool) -> Callable[..., tuple[int, int]]:
    unpack, width = prefix.unpack_from, prefix.size

    def read_compact(view: memoryview, at: int) -> tuple[int, int]:
        size, at = read_uvarint(view, at)
        return size - 1, at

    def read_plain(view: memoryview, at: int) -> tuple[int, int]:
        return unpack(view, at)[0], at + width

    return read_compact if compact else read_plain


def _blob_writer(kind: str, compact: bool, nullable: bool) -> Write:
    is_text = kind == "string"
    write_length = _length_writer(_INT16 if is_text else _INT32, compact)
    nullable = nullable or kind == "records"

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise TypeError("null is not allowed here")
            write_length(out, -1)
            return
        data = value.encode() if is_text else value
        size = len(data)
        if compact and size < 0x7F:
            out.append(size + 1)
        else:
            write_length(out, size)
        out += data

    return write


def _blob_reader(kind: str, compact: bool, nullable: bool) -> Read:
    is_text = kind == "string"
    read_length = _length_reader(_INT16 if is_text else _INT32, compact)
    nullable = nullable or kind == "records"

    def read(view: memoryview, at: int) -> tuple[Any, int]:
        size, at = read_length(view, at)
        if size < 0:
            if not nullable:
                raise ValueError(f"null {kind} at byte {at}")
            return None, at
        data, at = _take(view, at, size)
        return (str(data, "utf-8") if is_text else data), at

    def read_short(view: memoryview, at: int) -> tuple[Any, int]:
        end = at + view[at]
        if not at < end < at + 0x80 or end > len(view):  # null, long, or an error
            return read(view, at)
        data = view[at + 1 : end]
        return (str(data, "utf-8") if is_text else data), end

    return read_short if compact else read


def writer(kind: str, *, compact: bool, nullable: bool) -> Write:
    """The writer of a primitive kind."""
    if kind in _FIXED:
        return _fixed_writer(_FIXED[kind])
    if kind == "bool":
        return _write_bool
    if kind == "uuid":
        return _write_uuid
    return _blob_writer(kind, compact, nullable)


def reader(kind: str, *, compact: bool, nullable: bool) -> Read:
    """The reader of a primitive kind."""
    if kind in _FIXED:
        return _fixed_reader(_FIXED[kind])
    if kind == "bool":
        return _read_bool
    if kind == "uuid":
        return _read_uuid
    return _blob_reader(kind, compact, nullable)


def fixed_code(kind: str) -> str | None:
    """The `struct` code of a kind that always takes the same bytes; None for other kinds."""
    return "?" if kind == "bool" else _FIXED.get(kind, "").removeprefix(">") or None


def array_writer(item: Write, *, compact: bool, nullable: bool) -> Write:
    """The writer of an array of `item`; null has the count -1."""
    write_length = _length_writer(_INT32, compact)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise TypeError("null is not allowed here")
            write_length(out, -1)
            return
        size = len(value)
        if compact and size < 0x7F:
            out.append(size + 1)
        else:
            write_length(out, size)
        for one in value:
            item(out, one)

    return write


def array_reader(item: Read, *, compact: bool, nullable: bool) -> Read:
    """The reader of an array, as a tuple. A count above the number of bytes left is an error."""
    read_length = _length_reader(_INT32, compact)

    def read(view: memoryview, at: int) -> tuple[Any, int]:
        if compact and 0 < view[at] < 0x80:
            count, at = view[at] - 1, at + 1
        else:
            count, at = read_length(view, at)
        if count < 0:
            if not nullable:
                raise ValueError(f"null array at byte {at}")
            return None, at
        if count > len(view) - at:
            raise ValueError(f"array of {count} items in {len(view) - at} bytes")
        items = []
        for _ in range(count):
            one, at = item(view, at)
            items.append(one)
        return tuple(items), at

    return read


def nullable_struct_writer(inner: Write) -> Write:
    """The writer of a nullable structure: one byte, -1 for null or 1, then the structure."""

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            inner(out, value)

    return write


def nullable_struct_reader(inner: Read) -> Read:
    """The reader of a nullable structure."""

    def read(view: memoryview, at: int) -> tuple[Any, int]:
        if view[at] == 0xFF:
            return None, at + 1
        return inner(view, at + 1)

    return read


def write_tagged(out: bytearray, rows: Sequence[tuple[int, Write, Any]]) -> None:
    """Write the tagged fields: their count, then (tag, size, value) by rising tag (KIP-482)."""
    if not rows:
        out.append(0)
        return
    write_uvarint(out, len(rows))
    for tag, write_one, value in rows:
        body = bytearray()
        write_one(body, value)
        write_uvarint(out, tag)
        write_uvarint(out, len(body))
        out += body


def read_tagged(
    view: memoryview, at: int, known: Mapping[int, tuple[str, Read]], values: dict[str, Any]
) -> int:
    """Read the tagged fields into `values`. Unknown tags are skipped."""
    if not view[at]:
        return at + 1
    count, at = read_uvarint(view, at)
    for _ in range(count):
        tag, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        data, at = _take(view, at, size)
        if tag in known:
            name, read_one = known[tag]
            values[name], _ = read_one(data, 0)
    return at
