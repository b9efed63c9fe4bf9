"""Avro data as columns: types, unions, logical types, evolution, and bytes that are no datum."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from headwater_tier.typed.decoding import DeclarationError, DeclaredFormat
from headwater_tier.typed.quarantine_reasons import Reason
from unit.tier.formats.format_rows import decode, reasons, rows_of


def datum(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def declared(schema: Any) -> DeclaredFormat:
    return DeclaredFormat("avro", json.dumps(schema))


SCALARS = record(
    ("b", "boolean"), ("i", "int"), ("l", "long"), ("f", "float"), ("d", "double"),
    ("s", "string"), ("y", "bytes"), ("x", {"type": "fixed", "name": "X", "size": 2}),
    ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}), ("n", ["null", "string"]),
    ("z", "null"),
)  # fmt: skip


def test_scalars_become_wide_columns() -> None:
    value = {"b": True, "i": -5, "l": 1 << 62, "f": 1.5, "d": float("nan"), "s": "ß",
             "y": b"\xff", "x": b"xy", "e": "B", "n": None, "z": None}  # fmt: skip
    decoded = decode(declared(SCALARS), [datum(SCALARS, value), None])
    assert [str(kind) for kind in decoded.columns.schema.types] == [
        "bool", "int64", "int64", "double", "double", "string", "binary", "binary", "string",
        "string",
    ]  # fmt: skip
    row = rows_of(decoded)[0]
    assert row.pop("d") != 0  # NaN stays
    assert row == {key: value[key] for key in row}
    assert set(rows_of(decoded)[1].values()) == {None}


def test_structs_lists_maps_and_unions() -> None:
    inner = record(("q", "int"), name="I")
    schema = record(
        ("l", {"type": "array", "items": inner}),
        ("m", {"type": "map", "values": ["null", "long"]}),
        ("u", ["null", "string", "I", "double"]),
        ("r", ["null", "I"]),
    )
    values = [
        {"l": [{"q": 1}, {"q": 2}], "m": {"k": 1, "n": None}, "u": "text", "r": {"q": 3}},
        {"l": [], "m": {}, "u": ("I", {"q": 4}), "r": None},
        {"l": [], "m": {}, "u": None, "r": None},
    ]
    decoded = decode(declared(schema), [datum(schema, value) for value in values])
    nothing = {"string": None, "I": None, "double": None}
    assert rows_of(decoded) == [
        {
            "l": [{"q": 1}, {"q": 2}],
            "m": [("k", 1), ("n", None)],
            "u": {**nothing, "string": "text"},
            "r": {"q": 3},
        },
        {"l": [], "m": [], "u": {**nothing, "I": {"q": 4}}, "r": None},
        {"l": [], "m": [], "u": None, "r": None},
    ]


def test_logical_types() -> None:
    long, raw = "long", "bytes"
    schema = record(
        ("ms", {"type": long, "logicalType": "timestamp-millis"}),
        ("us", {"type": long, "logicalType": "timestamp-micros"}),
        ("local", {"type": long, "logicalType": "local-timestamp-micros"}),
        ("day", {"type": "int", "logicalType": "date"}),
        ("dec", {"type": raw, "logicalType": "decimal", "precision": 12, "scale": 2}),
        ("debezium", {"type": long, "connect.name": "io.debezium.time.Timestamp"}),
    )
    physical = json.loads(json.dumps(schema).replace("logicalType", "x").replace("connect.", "x"))
    values = {"ms": 1500, "us": 1, "local": 7, "day": 1, "dec": b"\x04\xd2", "debezium": 2}
    far = {**values, "ms": 1 << 62}
    decoded = decode(declared(schema), [datum(physical, values), datum(physical, far)])
    assert rows_of(decoded)[0] == {
        "ms": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
        "us": datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        "local": 7,
        "day": date(1970, 1, 2),
        "dec": Decimal("12.34"),
        "debezium": datetime(1970, 1, 1, 0, 0, 0, 2000, tzinfo=UTC),
    }
    assert decoded.columns.schema.field("dec").type == pa.decimal128(18, 2)
    assert reasons(decoded) == {1: Reason.OUT_OF_RANGE}


def test_a_decimal_beyond_38_digits_is_out_of_range() -> None:
    schema = record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 0}))
    physical = record(("d", "bytes"))
    blobs: list[bytes | None] = [
        datum(physical, {"d": number.to_bytes(20, "big", signed=True)})
        for number in (10**38 - 1, 10**38, 1 - 10**38)
    ]
    decoded = decode(declared(schema), blobs)
    assert reasons(decoded) == {1: Reason.OUT_OF_RANGE}
    assert [row["d"] for row in rows_of(decoded)] == [10**38 - 1, None, 1 - 10**38]


def test_a_value_that_is_no_record_is_the_column_value() -> None:
    assert rows_of(decode(declared("long"), [datum("long", -3)])) == [{"value": -3}]


def test_single_object_encoding_is_known_by_its_fingerprint() -> None:
    schema = record(("s", "string"))
    crc = fastavro.schema.fingerprint(
        fastavro.schema.to_parsing_canonical_form(schema), "CRC-64-AVRO"
    )
    body = datum(schema, {"s": "x"})
    framed = b"\xc3\x01" + bytes.fromhex(crc) + body
    decoded = decode(declared(schema), [framed, b"\xc3\x01" + bytes(8) + body])
    assert rows_of(decoded)[0] == {"s": "x"}
    assert reasons(decoded) == {1: Reason.MALFORMED}


@pytest.mark.parametrize(
    "kind, blob",
    [
        ("string", b"\x02\xff"),
        ("string", b"\x06ab"),
        ("string", b"\x01"),
        ("boolean", b"\x02"),
        ("long", b"\xff" * 10),
        ("long", b"\x02\x02"),
        (["null", "int"], b"\x01\x02"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"),
        ({"type": "array", "items": "int"}, b"\x02"),
        ({"type": "map", "values": "int"}, b"\x02\x02\xff\x02\x00"),
    ],
)
def test_bytes_that_are_no_datum_are_malformed(kind: Any, blob: bytes) -> None:
    decoded = decode(declared(record(("a", kind))), [blob])
    assert reasons(decoded) == {0: Reason.MALFORMED}


def test_a_column_keeps_its_type_and_takes_what_it_holds_exactly() -> None:
    schema = record(("a", "long"), ("b", "double"), ("c", ["null", "string", "long"]), ("N", "int"))
    known = pa.schema([("a", pa.float64()), ("b", pa.string()), ("c", pa.string())])
    values = [
        {"a": 5, "b": 1.0, "c": None, "N": 1},
        {"a": (1 << 53) + 1, "b": 1.0, "c": None, "N": 1},
    ]
    decoded = decode(declared(schema), [datum(schema, value) for value in values], known)
    assert decoded.columns.schema.names == ["a", "b", "c", "N"]
    assert reasons(decoded) == {0: Reason.DOES_NOT_FIT, 1: Reason.OUT_OF_RANGE}
    union = record(("c", ["null", "string", "long"]))
    blobs: list[bytes | None] = [datum(union, {"c": value}) for value in ("x", 1)]
    decoded = decode(declared(union), blobs, pa.schema([("c", pa.string())]))
    assert rows_of(decoded) == [{"c": "x"}, {"c": None}]
    assert reasons(decoded) == {1: Reason.DOES_NOT_FIT}


@pytest.mark.parametrize(
    "text, names",
    [
        ("{", "no Avro schema"),
        ('{"type":"record","name":"R","fields":[5]}', "no Avro schema"),
        ('{"type":"record","name":"R","fields":[{"name":"r","type":"Q"}]}', "unknown type Q"),
        ('{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}', "R contains"),
        (json.dumps(record(("u", ["int", "long"]))), "use the wider one"),
        ("infer", "only json is inferred"),
        ("registry", "registry:SUBJECT"),
        ("registry:none", "no subject none"),
    ],
)
def test_a_schema_that_cannot_work_is_refused_with_a_remedy(text: str, names: str) -> None:
    with pytest.raises(DeclarationError, match=names):
        decode(DeclaredFormat("avro", text), [])


def test_types_that_use_each_other_twice_do_not_explode() -> None:
    schema: Any = record(("x", "int"), name="R0")
    for level in range(1, 40):
        schema = record(("a", schema), ("b", f"R{level - 1}"), name=f"R{level}")
    with pytest.raises(DeclarationError, match="columns"):
        decode(declared(schema), [])
