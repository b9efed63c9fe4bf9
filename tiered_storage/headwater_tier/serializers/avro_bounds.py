"""Bounds of Avro data that fastavro does not set: how deep it nests, how many items have no bytes.

fastavro's reader is compiled code. A recursive schema lets 10 KB of data nest 10,000 levels deep,
which ends the process; an array of nulls has as many items as its count says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEPTH_MAX = 200
"""Of records, lists, maps and unions within each other, where the schema sets no end itself."""
_FIXED_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS = ("int", "long", "enum")
_TEXTS = ("bytes", "string")
_LONG_BYTES_MAX = 10
Node = Any
"""A part of a schema that fastavro has parsed."""


class AvroBounds:
    """The bounds of one schema's data."""

    def __init__(self, schema: Node, named: Mapping[str, Node]) -> None:
        """`named`: the named types, by their full names."""
        self._schema = schema
        self._named = named
        self._is_bounded = not self._is_open(schema, {})

    def check(self, payload: bytes) -> None:
        """Raises ValueError for data beyond the bounds, IndexError for data that breaks off.

        Where the schema bounds its data itself there is nothing to do.
        """
        if not self._is_bounded:
            self._end(self._schema, payload, 0, 0)

    def _is_open(self, node: Node, seen: dict[str, bool]) -> bool:
        """True if a type contains itself, or a list may have items without bytes. `seen`: by name,
        whether a type is done; one that is not contains what is looked at."""
        if isinstance(node, str) and node in self._named:
            if node in seen:
                return not seen[node]
            seen[node] = False
            is_open = self._is_open(self._named[node], seen)
            seen[node] = True
            return is_open
        name = node.get("name") if isinstance(node, dict) else None
        if name in self._named and name not in seen:
            return self._is_open(name, seen)
        if _kind(node) == "array" and not self._has_bytes(node["items"], ()):
            return True
        return any(self._is_open(part, seen) for part in _parts(node))

    def _has_bytes(self, node: Node, within: tuple[str, ...]) -> bool:
        """True if each datum has a byte at least."""
        if isinstance(node, str) and node in self._named:
            return node in within or self._has_bytes(self._named[node], (*within, node))
        kind = _kind(node)
        if kind == "record":
            return any(self._has_bytes(part, within) for part in _parts(node))
        if isinstance(kind, dict | list):
            return self._has_bytes(kind, within)
        return bool(node["size"]) if kind == "fixed" else kind != "null"

    def _end(self, node: Node, data: bytes, at: int, depth: int) -> int:
        """The position behind a datum."""
        node = self._named.get(node, node) if isinstance(node, str) else node
        kind = _kind(node)
        if isinstance(kind, dict | list):
            return self._end(kind, data, at, depth)
        if kind in _FIXED_SIZES or kind == "fixed":
            return at + (node["size"] if kind == "fixed" else _FIXED_SIZES[kind])
        if kind in _NUMBERS or kind in _TEXTS:
            number, at = _long(data, at)
            return at if kind in _NUMBERS else _behind(data, at, number)
        if depth >= DEPTH_MAX:
            raise ValueError(f"it nests deeper than {DEPTH_MAX} levels")
        if kind in ("array", "map"):
            return self._end_of_items(node, data, at, depth + 1)
        if kind == "union":
            branch, at = _long(data, at)
            if not 0 <= branch < len(node):
                raise ValueError(f"a union has no branch {branch}")
            return self._end(node[branch], data, at, depth + 1)
        for part in _parts(node):
            at = self._end(part, data, at, depth + 1)
        return at

    def _end_of_items(self, node: Node, data: bytes, at: int, depth: int) -> int:
        is_map = node["type"] == "map"
        items = node["values" if is_map else "items"]
        total = 0
        while True:
            count, at = _long(data, at)
            if count == 0:
                return at
            if count < 0:
                _size, at = _long(data, at)
            total += abs(count)
            if total > len(data):
                raise ValueError(f"a list of {total} items within {len(data)} bytes")
            for _ in range(abs(count)):
                if is_map:
                    size, at = _long(data, at)
                    at = _behind(data, at, size)
                at = self._end(items, data, at, depth)


def _kind(node: Node) -> Any:
    if isinstance(node, list):
        return "union"
    kind = node["type"] if isinstance(node, dict) else node
    return "record" if kind == "error" else kind


def _parts(node: Node) -> list[Node]:
    """The types that a type is made of."""
    kind = _kind(node)
    if kind == "union":
        return list(node)
    if kind == "record":
        return [field["type"] for field in node["fields"]]
    if kind in ("array", "map"):
        return [node["items" if kind == "array" else "values"]]
    return [kind] if isinstance(kind, dict | list) else []


def _behind(data: bytes, at: int, size: int) -> int:
    if not 0 <= size <= len(data) - at:
        raise ValueError(f"{size} bytes at {at} of {len(data)}")
    return at + size


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length zig-zag number, and the position behind it."""
    value = 0
    for index in range(_LONG_BYTES_MAX):
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + index + 1
    raise ValueError(f"a number at {at} has more than {_LONG_BYTES_MAX} bytes")
