"""A record as the browser shows it: one row of the table, or all of it with its trace. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from headwater.client.values import ConsumerRecord
from headwater_gateway.console.messages.decoding import (
    BlobReader,
    DecodedBlob,
    Step,
    exact,
    first_faults,
)
from headwater_gateway.console.messages.jobs import Render
from headwater_gateway.console.messages.shown_text import (
    FIELD_BYTES_MAX,
    compact,
    hex_dump,
    preview,
    time_of,
    tree_of,
)
from headwater_gateway.console.shown import visible, visible_lines
from headwater_tier.typed.formats.confluent import HEADER_BYTES

TREE_BYTES_MAX = 256 * 1024
"""A larger value is shown as text and hex: no page has room for its tree."""
HEADERS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Readers:
    """How keys and values of the topic are decoded."""

    key: BlobReader
    value: BlobReader


def row_of(record: ConsumerRecord, key: DecodedBlob, value: DecodedBlob) -> dict[str, Any]:
    """The row of the table: previews, sizes, kinds. Numbers of 64 bits are texts."""
    return {
        "p": record.partition,
        "o": str(record.offset),
        "t": time_of(record.timestamp),
        "key": _cell(record.key, key),
        "value": _cell(record.value, value),
        "headers": len(record.headers),
    }


def detail_of(record: ConsumerRecord, readers: Readers) -> dict[str, Any]:
    """All that the page of one record shows."""
    return {
        "topic": visible(record.topic),
        "p": record.partition,
        "o": str(record.offset),
        "t": time_of(record.timestamp),
        "timestamp_ms": str(record.timestamp),
        "timestamp_type": "log append time" if record.timestamp_type else "create time",
        "leader_epoch": record.leader_epoch,
        "headers": [_header(name, value) for name, value in record.headers],
        "key": _side(record.key, readers.key),
        "value": _side(record.value, readers.value),
    }


def piece_of(blob: bytes, at: int, kind: str) -> dict[str, Any]:
    """The next bytes of a long field, as `text` or `hex`. Texts are cut between characters."""
    piece = blob[at : at + FIELD_BYTES_MAX]
    if kind == "hex":
        return {"text": hex_dump(piece, at), "next": _next(blob, at + len(piece))}
    end = at + len(piece)
    while end < len(blob) and end > at + 1 and blob[end] & 0xC0 == 0x80:
        end -= 1
    text = visible_lines(blob[at:end].decode("utf-8", "backslashreplace"))
    return {"text": text, "next": _next(blob, end)}


def _next(blob: bytes, at: int) -> str | None:
    return str(at) if at < len(blob) else None


def _cell(blob: bytes | None, decoded: DecodedBlob) -> dict[str, Any]:
    if blob is None:
        return {"kind": "null", "size": 0, "text": "", "cut": False}
    if decoded.kind == "json":
        source = blob[:FIELD_BYTES_MAX].decode("utf-8", "replace")
        text, is_cut = preview(source if decoded.schema_id is None else compact(decoded.value))
    else:
        text, is_cut = preview(compact(decoded.value))
    cell = {"kind": decoded.kind, "size": len(blob), "text": text, "cut": is_cut}
    if decoded.schema_id is not None:
        cell["schema"] = decoded.schema_id
    return cell


def _header(name: str, value: bytes | None) -> dict[str, Any]:
    shown_name = visible(name[:FIELD_BYTES_MAX])
    if value is None:
        return {"name": shown_name, "kind": "null", "text": "", "size": 0}
    head = value[:FIELD_BYTES_MAX]
    try:
        kind, text = "text", visible(head.decode("utf-8"))
    except UnicodeDecodeError:
        kind, text = "hex", head.hex(" ")
    return {"name": shown_name, "kind": kind, "text": text, "size": len(value)}


def _side(blob: bytes | None, reader: BlobReader) -> dict[str, Any]:
    """A key or value in full: tree, text, hex, and how it was decoded."""
    decoded, steps = reader.trace(blob)
    if blob is None:
        return {"kind": "null", "size": 0, "trace": []}
    return {
        "kind": decoded.kind,
        "schema": decoded.schema_id,
        "size": len(blob),
        "tree": _tree(blob, decoded),
        "text": piece_of(blob, 0, "text"),
        "hex": piece_of(blob, 0, "hex"),
        "trace": [_step(step) for step in steps],
        "why": [visible(line) for line in first_faults(steps)],
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "name": visible(step.name),
        "ok": step.is_ok,
        "detail": visible(step.detail),
        "at": step.at_byte,
    }


def _tree(blob: bytes, decoded: DecodedBlob) -> Any:
    """The nodes of an object or list; None where text says as much."""
    if len(blob) > TREE_BYTES_MAX or not isinstance(decoded.value, dict | list):
        return None
    return tree_of(exact(blob, decoded))


def json_of(blob: bytes | None, decoded: DecodedBlob) -> str:
    """A key or value as JSON on one line, its numbers as they were written: bytes as hex, instants
    in ISO 8601, decimals of schemas as texts."""
    if blob is None:
        return "null"
    if decoded.kind == "json":
        payload = blob if decoded.schema_id is None else blob[HEADER_BYTES:]
        # A line end within a string would be an escape: these are between tokens.
        return payload.decode("utf-8").replace("\r", " ").replace("\n", " ")
    return json.dumps(_plain_json(decoded.value), separators=(",", ":"))


def _plain_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain_json(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain_json(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return str(value)
    return value.isoformat() if hasattr(value, "isoformat") else value


def ndjson_line(record: ConsumerRecord, key: DecodedBlob, value: DecodedBlob) -> str:
    """The record as a line of NDJSON. Bytes that are no text are hex: `*_format` says so."""
    headers = [
        {"name": name, "value": None if one is None else _text_or_hex(one)}
        for name, one in record.headers
    ]
    return (
        f'{{"topic":{json.dumps(record.topic)},"partition":{record.partition}'
        f',"offset":{record.offset},"timestamp":{record.timestamp}'
        f',"key_format":"{key.kind}","key":{json_of(record.key, key)}'
        f',"value_format":"{value.kind}","value":{json_of(record.value, value)}'
        f',"headers":{json.dumps(headers, separators=(",", ":"))}}}\n'
    )


CSV_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
_CSV_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_line(cells: Sequence[str]) -> str:
    """A line of RFC 4180. A text that a spreadsheet takes for a formula gets a quote before it."""
    return ",".join(_csv_cell(cell) for cell in cells) + "\r\n"


def csv_row(record: ConsumerRecord, key: DecodedBlob, value: DecodedBlob) -> str:
    """The record as a line of CSV."""
    headers = {name: None if one is None else _text_or_hex(one) for name, one in record.headers}
    return csv_line(
        [
            str(record.partition),
            str(record.offset),
            time_of(record.timestamp),
            _csv_text(record.key, key),
            _csv_text(record.value, value),
            json.dumps(headers) if headers else "",
        ]
    )


def left_out(text: str, render: Render) -> str:
    """The line of an export for a record that could not be rendered."""
    if render is Render.CSV:
        return csv_line(["", "", "", "", f"left out: {text}", ""])
    return json.dumps({"left_out": text}) + "\n"


def _csv_text(blob: bytes | None, decoded: DecodedBlob) -> str:
    if decoded.value is None and decoded.kind != "json":
        return ""
    if decoded.kind == "text":
        return str(decoded.value)
    return decoded.value.hex() if decoded.kind == "hex" else json_of(blob, decoded)


def _csv_cell(text: str) -> str:
    text = text.encode("utf-8", "replace").decode("utf-8")
    if text.startswith(_CSV_FORMULA):
        text = f"'{text}"
    if any(char in text for char in ',"\r\n') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


def _text_or_hex(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.hex()
