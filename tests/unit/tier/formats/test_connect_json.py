"""JSON of Kafka Connect with its schema inside: typed payloads, logical types, and plain ones."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from headwater_tier.typed.decoding import DeclaredFormat
from headwater_tier.typed.quarantine_reasons import Reason
from unit.tier.formats.format_rows import decode, reasons, rows_of

CONNECT = DeclaredFormat("json", envelope="debezium")


def message(payload: Any, *fields: tuple[str, Any]) -> bytes:
    rows = [
        {"field": name, **(kind if isinstance(kind, dict) else {"type": kind})}
        for name, kind in fields
    ]
    schema = {"type": "struct", "fields": rows, "optional": False}
    return json.dumps({"schema": schema, "payload": payload}).encode()


def test_scalars_and_logical_types() -> None:
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
               "parameters": {"scale": "2", "connect.decimal.precision": "10"}}  # fmt: skip
    blob = message(
        {"id": 5, "f": 1, "n": "NaN", "s": "x", "b": "/w==", "d": "BNI=", "num": 1.25, "ms": 1500,
         "us": 7, "day": 1, "z": "2026-01-31T12:00:00.5Z", "t": 1000, "none": None},
        ("id", "int32"), ("f", "double"), ("n", "float"), ("s", "string"), ("b", "bytes"),
        ("d", decimal), ("num", decimal),
        ("ms", {"type": "int64", "name": "io.debezium.time.Timestamp"}),
        ("us", {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}),
        ("day", {"type": "int32", "name": "io.debezium.time.Date"}),
        ("z", {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}),
        ("t", {"type": "int64", "name": "io.debezium.time.MicroTime"}),
        ("none", "boolean"), ("absent", "int8"),
    )  # fmt: skip
    row = rows_of(decode(CONNECT, [blob]))[0]
    assert row.pop("n") != 0
    assert row == {
        "id": 5,
        "f": 1.0,
        "s": "x",
        "b": b"\xff",
        "d": Decimal("12.34"),
        "num": Decimal("1.25"),
        "ms": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
        "us": datetime(1970, 1, 1, 0, 0, 0, 7, tzinfo=UTC),
        "day": date(1970, 1, 2),
        "z": datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC),
        "t": 1000,
        "none": None,
        "absent": None,
    }


def test_structs_arrays_and_maps() -> None:
    inner = {"type": "struct", "fields": [{"field": "q", "type": "int64"}]}
    blob = message(
        {"before": None, "after": {"q": 1}, "l": [{"q": 2}], "m": {"k": 1}, "p": [[1, "x"]]},
        ("before", inner),
        ("after", inner),
        ("l", {"type": "array", "items": inner}),
        ("m", {"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}}),
        ("p", {"type": "map", "keys": {"type": "int32"}, "values": {"type": "string"}}),
    )
    decoded = decode(CONNECT, [blob])
    assert rows_of(decoded) == [
        {"before": None, "after": {"q": 1}, "l": [{"q": 2}], "m": [("k", 1)], "p": [(1, "x")]}
    ]


def test_a_new_field_of_the_schema_adds_a_column_also_if_null() -> None:
    blobs = [message({"a": 1}, ("a", "int32")), message({"a": 2}, ("a", "int64"), ("b", "string"))]
    decoded = decode(CONNECT, [*blobs, message({"a": 3}, ("a", "int32")), None])
    assert rows_of(decoded) == [{"a": n, "b": None} for n in (1, 2, 3, None)]


def test_payloads_alone_are_inferred() -> None:
    blobs: list[bytes | None] = [
        b'{"op":"c","after":{"id":1}}',
        b'{"schema":null,"payload":{"op":"u"}}',
        b'{"schema":null,"payload":null}',
        b'{"schema":"main","payload":1,"op":"x"}',
    ]
    decoded = decode(CONNECT, blobs)
    assert [row["op"] for row in rows_of(decoded)] == ["c", "u", None, "x"]
    assert not decoded.misfits


def test_a_scalar_payload_is_the_column_value() -> None:
    blob = b'{"schema":{"type":"int32","optional":false},"payload":42}'
    assert rows_of(decode(CONNECT, [blob])) == [{"value": 42}]


def test_what_is_not_of_the_schemas_types_is_a_misfit() -> None:
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
               "parameters": {"scale": "2"}}  # fmt: skip
    too_long = base64.b64encode((10**38).to_bytes(17, "big")).decode()
    instant = {"type": "int64", "name": "io.debezium.time.Timestamp"}
    cases = [
        (message({"a": "x"}, ("a", "int32")), Reason.DOES_NOT_FIT),
        (message({"a": 1.5}, ("a", "int32")), Reason.DOES_NOT_FIT),
        (message([1], ("a", "int32")), Reason.DOES_NOT_FIT),
        (message({"d": "?"}, ("d", decimal)), Reason.DOES_NOT_FIT),
        (message({"d": too_long}, ("d", decimal)), Reason.OUT_OF_RANGE),
        (message({"t": 1 << 62}, ("t", instant)), Reason.OUT_OF_RANGE),
        (message({"a": 1}, ("a", "int128")), Reason.DOES_NOT_FIT),
        (message({"a": 1}, ("a", {"type": "array"})), Reason.DOES_NOT_FIT),
        (b'{"schema":{"type":"struct"},"payload":{"a":1,"a":2}}', Reason.DUPLICATE_KEY),
    ]
    decoded = decode(CONNECT, [blob for blob, _ in cases])
    assert reasons(decoded) == dict(enumerate(reason for _, reason in cases))
