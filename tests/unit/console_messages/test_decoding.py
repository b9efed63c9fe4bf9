"""How keys and values are decoded, and what the trace says of each way that does not fit."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from headwater_gateway.console.messages.decoding import BlobReader, exact, first_faults
from headwater_tier.typed.decoding import DeclaredFormat
from headwater_tier.typed.memory_schemas import MemorySchemas

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "gate", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
    ],
}
PROTO = 'syntax = "proto3"; message Flight { int64 number = 1; string gate = 2; uint64 big = 3; }'


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def flight(number: int = 5) -> bytes:
    out = io.BytesIO()
    row = {"number": number, "gate": "B7", "at": 1000, "tags": {"x": 1}}
    fastavro.schemaless_writer(out, FLIGHT, row)
    return out.getvalue()


@pytest.fixture
def schemas() -> MemorySchemas:
    found = MemorySchemas()
    found.register("flights-value", "AVRO", json.dumps(FLIGHT))
    found.register("proto-value", "PROTOBUF", PROTO)
    found.register("json-value", "JSON", '{"type": "object", "properties": {"a": {}}}')
    return found


def failed(reader: BlobReader, blob: bytes) -> list[tuple[str, int | None]]:
    return [(step.name, step.at_byte) for step in reader.trace(blob)[1] if not step.is_ok]


def test_a_framed_avro_value_is_the_row_of_the_typed_table(schemas: MemorySchemas) -> None:
    found, steps = BlobReader(schemas).trace(framed(1, flight()))
    assert (found.kind, found.schema_id) == ("avro", 1)
    assert found.value["number"] == 5 and found.value["tags"] == {"x": 1}
    assert found.value["at"].isoformat() == "1970-01-01T00:00:01+00:00"
    assert [step.name for step in steps] == ["frame", "registry", "schema"]


@pytest.mark.parametrize(
    ("payload", "at_byte"),
    [(flight()[:-1], 4 + len(flight())), (flight() + b"z", 5 + len(flight()))],
)
def test_a_broken_avro_value_names_the_byte(
    schemas: MemorySchemas, payload: bytes, at_byte: int
) -> None:
    found, steps = BlobReader(schemas).trace(framed(1, payload))
    assert found.kind == "hex"
    assert next((s.name, s.at_byte) for s in steps if not s.is_ok) == ("schema", at_byte)


def test_protobuf_by_its_frame_and_where_it_breaks(schemas: MemorySchemas) -> None:
    whole = framed(2, b"\0\x08\x05\x12\x02B7\x18" + b"\xff" * 9 + b"\x01")
    assert BlobReader(schemas).decode(whole).value == {
        "number": 5,
        "gate": "B7",
        "big": (1 << 64) - 1,
    }
    assert failed(BlobReader(schemas), whole[:-1])[0] == ("schema", 12)
    assert failed(BlobReader(schemas), framed(2, b"\x08"))[0] == ("frame", 5)


def test_json_schema_keeps_keys_without_a_property(schemas: MemorySchemas) -> None:
    found = BlobReader(schemas).decode(framed(3, b'{"a": 1, "b": 2}'))
    assert (found.kind, found.value) == ("json", {"a": 1, "b": 2})


def test_an_id_that_the_registry_has_not_and_a_registry_that_is_silent(
    schemas: MemorySchemas,
) -> None:
    assert failed(BlobReader(schemas), framed(99, b"abc"))[0] == ("registry", 1)
    schemas.fault = "the registry http://x does not answer"
    _, steps = BlobReader(schemas).trace(framed(1, flight()))
    assert "does not answer" in next(first_faults(steps))


@pytest.mark.parametrize(
    ("blob", "kind", "faults"),
    [
        (b'{"a": 1}', "json", [("frame", 0)]),
        (b"hello", "text", [("frame", 0), ("JSON", 0)]),
        ('{"a": "ä", }'.encode(), "text", [("frame", 0), ("JSON", 10)]),
        (b"\xff\xfe", "hex", [("frame", 2), ("JSON", 0), ("UTF-8", 0)]),
        (b"ab\xffcd", "hex", [("frame", 0), ("JSON", 2), ("UTF-8", 2)]),
        (b"ab\0cd", "hex", [("frame", 0), ("JSON", 0), ("UTF-8", 2)]),
        (b'{"a": "\\ud800"}', "text", [("frame", 0), ("JSON", 7)]),
        (b"[" * 5000, "text", [("frame", 0), ("JSON", 1025)]),
        (b"", "text", [("frame", 0), ("JSON", 0)]),
    ],
)
def test_each_way_says_why_not_and_at_which_byte(
    schemas: MemorySchemas, blob: bytes, kind: str, faults: list[tuple[str, int]]
) -> None:
    assert BlobReader(schemas).decode(blob).kind == kind
    assert failed(BlobReader(schemas), blob) == faults


def test_a_tombstone_is_null(schemas: MemorySchemas) -> None:
    assert BlobReader(schemas).decode(None).kind == "null"


@pytest.mark.parametrize(
    ("declared", "blob", "value"),
    [
        (DeclaredFormat("avro", json.dumps(FLIGHT)), flight(7), 7),
        (DeclaredFormat("avro", "registry:flights-value"), flight(8), 8),
        (DeclaredFormat("protobuf", PROTO, "Flight"), b"\x08\x09", 9),
    ],
)
def test_the_declared_format_comes_first(
    schemas: MemorySchemas, declared: DeclaredFormat, blob: bytes, value: int
) -> None:
    found, steps = BlobReader(schemas, declared).trace(blob)
    assert found.value["number"] == value
    assert [step.name for step in steps] == [f"declared format {declared.format}"]


def test_a_declared_format_that_does_not_fit_gives_way(schemas: MemorySchemas) -> None:
    declared = DeclaredFormat("avro", json.dumps(FLIGHT))
    found, steps = BlobReader(schemas, declared).trace(b'{"a": 1}')
    assert found.kind == "json"
    assert steps[0].name == "declared format avro" and steps[0].at_byte is not None


def test_a_choice_is_the_only_way_but_hex(schemas: MemorySchemas) -> None:
    assert BlobReader(schemas, choice="text").decode(b"a\0b").value == "a\0b"
    assert BlobReader(schemas, choice="hex").decode(b"{}").kind == "hex"
    assert BlobReader(schemas, choice="json").decode(b"hello").kind == "hex"


@pytest.mark.parametrize(
    ("blob", "value"),
    [(b'{"a": 123456789012345678901234567890}', 123456789012345678901234567890), (b'{"a": 1}', 1)],
)
def test_exact_numbers(schemas: MemorySchemas, blob: bytes, value: Any) -> None:
    assert exact(blob, BlobReader(schemas).decode(blob)) == {"a": value}
