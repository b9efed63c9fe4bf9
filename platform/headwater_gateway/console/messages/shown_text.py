"""Texts and values of strangers as a page may show them: no control or direction character as it
is, no number that JavaScript would round, nothing longer than its limit. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from headwater_gateway.console.shown import visible, visible_lines

FIELD_BYTES_MAX = 4096
PREVIEW_CHARS_MAX = 300
NODES_MAX = 1000
DEPTH_MAX = 40
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Node = list[Any]
"""["s", text, characters cut], ["n", digits], ["w", word], ["b", hex, bytes cut],
["a", nodes, items cut], ["o", [key, node] pairs, fields cut], ["d"]: deeper than shown."""


def preview(text: str) -> tuple[str, bool]:
    """(the beginning of a text on one line, whether there is more)."""
    return visible(text[:PREVIEW_CHARS_MAX]), len(text) > PREVIEW_CHARS_MAX


def compact(value: Any) -> str:
    """A decoded value on one line, for a preview: JSON, with bytes as hex."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value[:PREVIEW_CHARS_MAX].hex()
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_json)
    except RecursionError:
        return "(nests too deep for a preview)"


def time_of(ms: int) -> str:
    """A record's timestamp in ISO 8601; the number where no such year is."""
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(ms)


def tree_of(value: Any) -> Node:
    """A value as nodes, from which a page builds its tree."""
    return _Trees().node(value, 0)


def hex_dump(data: bytes, first: int = 0) -> str:
    """Sixteen bytes a line: position, hex, printable characters."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        printable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{first + at:08x}  {row.hex(' '):<47}  {printable}")
    return "\n".join(lines)


class _Trees:
    """Counts the nodes of one value."""

    def __init__(self) -> None:
        self._left = NODES_MAX

    def node(self, value: Any, depth: int) -> Node:
        self._left -= 1
        if isinstance(value, bool) or value is None:
            return ["w", {True: "true", False: "false", None: "null"}[value]]
        if isinstance(value, int | float | Decimal):
            return ["n", str(value)]
        if isinstance(value, str):
            cut = value[:FIELD_BYTES_MAX]
            return ["s", visible_lines(cut), len(value) - len(cut)]
        if isinstance(value, bytes):
            head = value[:FIELD_BYTES_MAX]
            return ["b", head.hex(), len(value) - len(head)]
        if isinstance(value, datetime):
            return ["s", value.isoformat(), 0]
        if depth >= DEPTH_MAX:
            return ["d"]
        if isinstance(value, Mapping):
            return self._object(value, depth)
        return self._list(list(value), depth)

    def _object(self, value: Mapping[str, Any], depth: int) -> Node:
        pairs = []
        for key, one in value.items():
            if self._left <= 0:
                break
            pairs.append([visible(str(key)[:FIELD_BYTES_MAX]), self.node(one, depth + 1)])
        return ["o", pairs, len(value) - len(pairs)]

    def _list(self, value: list[Any], depth: int) -> Node:
        nodes = []
        for one in value:
            if self._left <= 0:
                break
            nodes.append(self.node(one, depth + 1))
        return ["a", nodes, len(value) - len(nodes)]


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return str(value)
    return str(value.isoformat() if isinstance(value, datetime) else value)
