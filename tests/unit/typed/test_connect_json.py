"""What Connect's JsonConverter writes becomes columns of the types that its schema tells."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headwater_tier.typed.connect_json import connect_decoder
from headwater_tier.typed.decoding import Decoded, Reason

FIELDS = [
    {"field": "id", "type": "int32"},
    {"field": "big", "type": "int64", "optional": True},
    {"field": "f", "type": "double"},
    {"field": "ok", "type": "boolean"},
    {"field": "raw", "type": "bytes"},
    {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
    {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    {
        "field": "amount",
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2", "connect.decimal.precision": "10"},
    },
    {"field": "tags", "type": "array", "items": {"type": "string"}},
    {
        "field": "attributes",
        "type": "map",
        "keys": {"type": "string"},
        "values": {"type": "int32"},
    },
]
ROW = {
    "id": 7,
    "big": None,
    "f": "NaN",
    "ok": True,
    "raw": "AAE=",
    "day": 19849,
    "at": 1_714_979_289_000_001,
    "amount": "BNI=",
    "tags": ["a", None],
    "attributes": {"x": 1},
}


def struct(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "struct", "fields": fields, "optional": False, "name": "row"}


def wrapped(schema: dict[str, Any], payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


def decoded(*blobs: bytes | None, known: pa.Schema | None = None) -> Decoded:
    decoder = connect_decoder(known or pa.schema([]))
    return decoder.decode(pa.chunked_array([pa.array(blobs, pa.binary())]))


def test_types_come_from_the_schema() -> None:
    (row,) = decoded(wrapped(struct(FIELDS), ROW)).columns.to_pylist()
    assert str(row.pop("f")) == "nan"
    assert row == {
        "id": 7,
        "big": None,
        "ok": True,
        "raw": b"\x00\x01",
        "day": date(2024, 5, 6),
        "at": datetime(2024, 5, 6, 7, 8, 9, 1, tzinfo=UTC),
        "amount": Decimal("12.34"),
        "tags": ["a", None],
        "attributes": [("x", 1)],
    }


def test_a_key_that_is_one_value_has_one_column() -> None:
    found = decoded(wrapped({"type": "string"}, "k1"), None)
    assert found.columns.to_pylist() == [{"value": "k1"}, {"value": None}]


def test_a_wider_schema_adds_columns_and_a_changed_type_is_a_misfit() -> None:
    old = struct([{"field": "id", "type": "int32"}])
    wider = struct([{"field": "id", "type": "int64"}, {"field": "name", "type": "string"}])
    other = struct([{"field": "id", "type": "string"}])
    found = decoded(
        wrapped(old, {"id": 1}),
        wrapped(wider, {"id": 2, "name": "b"}),
        wrapped(other, {"id": "three"}),
        wrapped(old, {"id": 4}),
    )
    rows = found.columns.to_pylist()
    assert [(row["id"], row["name"]) for row in rows] == [
        (1, None),
        (2, "b"),
        (None, None),
        (4, None),
    ]
    assert [(m.row, m.reason) for m in found.misfits] == [(2, Reason.DOES_NOT_FIT)]


def test_records_without_a_schema_are_inferred() -> None:
    found = decoded(b'{"id": 1}', wrapped(struct([{"field": "id", "type": "int32"}]), {"id": 2}))
    assert found.columns.to_pylist() == [{"id": 1}, {"id": 2}]


def test_a_broken_schema_is_a_misfit() -> None:
    found = decoded(
        wrapped({"type": "struct", "fields": [{"field": "x", "type": "odd"}]}, {"x": 1})
    )
    assert [m.reason for m in found.misfits] == [Reason.MALFORMED]
