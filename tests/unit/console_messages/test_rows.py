"""What a page, an export and a tree show of hostile records."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import orjson
import pytest

from headwater.client.values import ConsumerRecord, Headers
from headwater_gateway.console.messages.decoding import BlobReader
from headwater_gateway.console.messages.record_filter import RecordFilter, Verdict
from headwater_gateway.console.messages.rows import (
    Readers,
    csv_row,
    detail_of,
    ndjson_line,
    piece_of,
    row_of,
)
from headwater_gateway.console.messages.shown_text import NODES_MAX, hex_dump, tree_of
from headwater_tier.typed.memory_schemas import MemorySchemas

SCHEMAS = MemorySchemas()
SCHEMAS.register("t-value", "JSON", "{}")
READER = BlobReader(SCHEMAS)
HTML = b"<img src=x onerror=alert(1)></script><script>alert(1)</script>"
DEEP = b'{"a":' * 1000 + b"1" + b"}" * 1000
FRAMED_DEEP = b"\0\0\0\0\x01" + DEEP
BIDI = "abc\u202edcba".encode()


def record(value: bytes | None, key: bytes | None = None, headers: Headers = []) -> ConsumerRecord:  # noqa: B006
    return ConsumerRecord("t", 0, (1 << 62) + 1, 1_700_000_000_000, 0, key, value, headers, 3)


def row(value: bytes | None, key: bytes | None = None) -> dict[str, Any]:
    one = record(value, key)
    return row_of(one, READER.decode(key), READER.decode(value))


def detail(value: bytes | None, headers: Headers = []) -> dict[str, Any]:  # noqa: B006
    return detail_of(record(value, None, headers), Readers(READER, READER))


def test_offsets_are_texts_as_javascript_would_round_them() -> None:
    assert row(b"x")["o"] == "4611686018427387905"
    found = detail(b'{"id": 9007199254740993}')
    assert found["value"]["tree"] == ["o", [["id", ["n", "9007199254740993"]]], 0]
    assert isinstance(found["o"], str)


def test_html_is_text_and_direction_marks_are_escapes() -> None:
    assert row(HTML)["value"]["text"] == HTML.decode()
    assert row(BIDI)["value"]["text"] == "abc\\u202edcba"
    found = detail(b'{"a\\u202e": "x\\u0007\\ny"}')["value"]["tree"]
    assert found == ["o", [["a\\u202e", ["s", "x\\x07\ny", 0]]], 0]


def test_ten_megabytes_become_a_preview_and_pieces() -> None:
    blob = b'{"a": "' + b"x" * 10_000_000 + b'"}'
    assert len(json.dumps(row(blob))) < 1000 and row(blob)["value"]["cut"]
    found = detail(blob)["value"]
    assert found["tree"] is None and found["size"] == len(blob)
    assert len(json.dumps(found)) < 40_000
    assert found["text"]["next"] == "4096"


def test_a_deep_value_has_a_tree_with_an_end() -> None:
    blob = b'{"a":' * 500 + b"1" + b"}" * 500
    found = detail(blob)["value"]
    assert found["kind"] == "json" and "d" in json.dumps(found["tree"])
    assert detail(b'{"a":' * 5000 + b"1" + b"}" * 5000)["value"]["kind"] == "text"


def test_a_wide_value_is_cut_and_says_so() -> None:
    assert tree_of(list(range(5000)))[2] == 5000 - (NODES_MAX - 1)


@pytest.mark.parametrize(
    "blob",
    [
        DEEP,
        FRAMED_DEEP,
        b"\xff\xfe\xfd",
        b'"\\ud800"',
        b"\xed\xa0\x80",
        b"\0",
        b"",
        None,
        b'{"a":1,"a":2}',
    ],
)
def test_no_blob_breaks_a_row_a_detail_or_an_export(blob: bytes | None) -> None:
    one = record(blob, blob, [("h\u202e", blob)])
    key, value = READER.decode(blob), READER.decode(blob)
    json.dumps(row_of(one, key, value)).encode("ascii")
    json.dumps(detail_of(one, Readers(READER, READER))).encode("ascii")
    assert len(ndjson_line(one, key, value).splitlines()) == 1
    assert orjson.loads(ndjson_line(one, key, value))["offset"] == one.offset
    csv_row(one, key, value).encode("utf-8")


def test_numbers_leave_an_export_as_they_came() -> None:
    blob = b'{"a": 1.10, "b": 123456789012345678901234567890}'
    line = ndjson_line(record(blob), READER.decode(None), READER.decode(blob))
    assert '"value":{"a": 1.10, "b": 123456789012345678901234567890}' in line


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "=cmd|' /C calc'!A0"])
def test_a_spreadsheet_takes_no_cell_for_a_formula(text: str) -> None:
    line = csv_row(record(text.encode()), READER.decode(None), READER.decode(text.encode()))
    cell = next(csv.reader(io.StringIO(line, newline="")))[4]
    assert cell == f"'{text}" if READER.decode(text.encode()).kind == "text" else cell[0] == "'"


@pytest.mark.parametrize("blob", [DEEP, FRAMED_DEEP])
@pytest.mark.parametrize("expression", ["size(value) > 0", "value.a.b == 1", "value.b == 1"])
def test_a_filter_judges_a_deep_value(blob: bytes, expression: str) -> None:
    value = READER.decode(blob).value
    assert RecordFilter(expression).judge({"value": value}) in (Verdict.TYPE_ERROR, Verdict.MISSING)


def test_pieces_end_between_characters() -> None:
    blob = ("a" + "ä" * 4000).encode()
    first = piece_of(blob, 0, "text")
    rest = piece_of(blob, int(first["next"]), "text")
    assert first["text"] + rest["text"] == blob.decode()
    assert rest["next"] is None
    assert piece_of(blob, 16, "hex")["text"].startswith("00000010  ")


def test_hex_dump_shows_position_bytes_and_letters() -> None:
    assert hex_dump(b"AB\xff").startswith("00000000  41 42 ff")
    assert hex_dump(b"AB\xff").endswith("  AB.")
