"""JSON with a JSON Schema: the columns it declares, and values that are not of their types."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater_tier.typed.decoding import DeclarationError, DeclaredFormat
from headwater_tier.typed.quarantine_reasons import Reason
from unit.tier.formats.format_rows import decode, reasons, rows_of


def declared(**properties: Any) -> DeclaredFormat:
    return DeclaredFormat("json", json.dumps({"type": "object", "properties": properties}))


def test_types_and_formats_become_columns() -> None:
    form = declared(
        i={"type": "integer"},
        n={"type": ["null", "number"]},
        s={"enum": ["x"], "type": "string"},
        t={"type": "string", "format": "date-time"},
        d={"type": "string", "format": "date"},
        b={"type": "string", "contentEncoding": "base64"},
        m={"type": "object", "additionalProperties": {"type": "integer"}},
        p={"type": "number", "multipleOf": 0.01},
        o={"oneOf": [{"type": "null"}, {"properties": {"q": {"type": "boolean"}}}]},
        a={"type": "array", "items": {"type": "integer"}},
    )
    text = (
        b'{"i":1,"n":2,"s":"x","t":"2026-01-31T13:00:00.5+01:00","d":"2026-01-31","b":"eA==",'
        b'"m":{"k":1},"p":12.34,"o":{"q":true},"a":[1,null],"other":{"z":1}}'
    )
    decoded = decode(form, [text])
    assert rows_of(decoded) == [
        {
            "i": 1,
            "n": 2.0,
            "s": "x",
            "t": datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC),
            "d": date(2026, 1, 31),
            "b": b"x",
            "m": [("k", 1)],
            "p": Decimal("12.34"),
            "o": {"q": True},
            "a": [1, None],
        }
    ]
    assert decoded.columns.schema.field("p").type == pa.decimal128(38, 2)


def test_a_decimal_is_exact_or_out_of_range() -> None:
    form = declared(p={"type": "number", "multipleOf": 0.01})
    long = b"123456789012345678901234567890123456"
    texts = [long, long + b"7", b"1.005", b'"1.50"', b"1e2", b"true"]
    decoded = decode(form, [b'{"p":' + text + b"}" for text in texts])
    assert [row["p"] for row in rows_of(decoded)] == [
        Decimal(long.decode()), None, None, Decimal("1.50"), Decimal(100), None
    ]  # fmt: skip
    assert reasons(decoded) == {
        1: Reason.OUT_OF_RANGE,
        2: Reason.OUT_OF_RANGE,
        5: Reason.DOES_NOT_FIT,
    }


def test_what_has_no_one_type_is_kept_as_its_text() -> None:
    form = declared(any={}, mixed={"type": ["string", "integer"]}, free={"type": "object"})
    decoded = decode(form, [b'{"any":[1.50,"\\u00e9"],"mixed":7,"free":{"a":{"b":null}}}'])
    assert rows_of(decoded) == [{"any": '[1.50,"é"]', "mixed": "7", "free": '{"a":{"b":null}}'}]


def test_a_type_that_contains_itself_is_text_where_it_does() -> None:
    node = {"properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}}
    schema = json.dumps({"properties": {"n": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}})
    decoded = decode(DeclaredFormat("json", schema), [b'{"n":{"v":1,"next":{"v":2}}}'])
    assert rows_of(decoded) == [{"n": {"v": 1, "next": '{"v":2}'}}]


@pytest.mark.parametrize(
    "text",
    [b'{"t":"2026-01-31"}', b'{"t":5}', b'{"t":"2026-01-31T12:00:00"}', b"[]", b'{"i":"1"}'],
)
def test_values_of_other_types_do_not_fit(text: bytes) -> None:
    form = declared(t={"type": "string", "format": "date-time"}, i={"type": "integer"})
    assert reasons(decode(form, [text])) == {0: Reason.DOES_NOT_FIT}


def test_a_scalar_schema_is_the_column_value() -> None:
    assert rows_of(decode(DeclaredFormat("json", '{"type":"string"}'), [b'"k"'])) == [
        {"value": "k"}
    ]


@pytest.mark.parametrize("text", ["{", "[]", '{"properties":{"a":{"$ref":"#/$defs/no"}}}'])
def test_a_schema_that_cannot_work_is_refused(text: str) -> None:
    with pytest.raises(DeclarationError, match=r"headwater\.value\.schema"):
        decode(DeclaredFormat("json", text), [])
