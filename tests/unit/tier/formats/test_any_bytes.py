"""No bytes fail a chunk: every decoder, on random bytes and on broken records of its format."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater_tier.typed.decoding import DeclaredFormat
from headwater_tier.typed.formats.column_types import NESTING_MAX
from headwater_tier.typed.formats.factory import decoder_for
from headwater_tier.typed.memory_schemas import MemorySchemas
from unit.tier.formats.format_rows import NOTHING, decode, reasons

AVRO = json.dumps(
    {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": {"type": "array", "items": ["null", "string", "long"]}},
        {"name": "m", "type": {"type": "map", "values": "double"}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "u", "type": {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}}]}
)  # fmt: skip
JSON_SCHEMA = json.dumps(
    {"properties": {"a": {"type": "array", "items": {"type": "integer"}}, "x": {},
                    "t": {"type": "string", "format": "date-time"},
                    "m": {"type": "object", "additionalProperties": {"type": "number"}}}}
)  # fmt: skip
PROTO = """syntax = "proto2"; message M { optional string s = 1; repeated M m = 2;
map<int32, string> p = 3; optional bytes b = 4; }"""
SCHEMAS = MemorySchemas()
for kind, text in (("AVRO", AVRO), ("JSON", JSON_SCHEMA), ("PROTOBUF", PROTO)):
    SCHEMAS.register("t", kind, text)
DECLARED = {
    "json": DeclaredFormat("json"),
    "schema": DeclaredFormat("json", JSON_SCHEMA),
    "connect": DeclaredFormat("json", envelope="debezium"),
    "variant": DeclaredFormat("json", variant=True),
    "avro": DeclaredFormat("avro", AVRO),
    "protobuf": DeclaredFormat("protobuf", PROTO),
    "confluent": DeclaredFormat("confluent"),
    "string": DeclaredFormat("string"),
}
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "m", "t", "x", "A", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)
CONNECT_TYPES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(["int32", "int64", "string", "bytes", "double", "boolean", "map", 5, None]),
    lambda inner: st.fixed_dictionaries(
        {"type": st.sampled_from(["struct", "array", "map", "bytes", "int64", ["x"]])},
        optional={
            "fields": st.lists(
                st.fixed_dictionaries({"field": st.text(max_size=2), "type": inner})
            ),
            "items": inner,
            "keys": inner,
            "values": inner,
            "name": st.sampled_from(["org.apache.kafka.connect.data.Decimal", "x", 7]),
            "parameters": st.just({"scale": "9" * 5000}) | inner,
        },
    ),
    max_leaves=5,
)
BLOBS = st.one_of(
    st.binary(max_size=40),
    st.binary(max_size=20).map(lambda tail: b"\0\0\0\0" + tail),
    VALUES.map(lambda value: json.dumps(value).encode()),
    st.tuples(CONNECT_TYPES, VALUES).map(
        lambda pair: json.dumps({"schema": pair[0], "payload": pair[1]}).encode()
    ),
)


@pytest.mark.parametrize("name", DECLARED)
@given(st.lists(st.none() | BLOBS, max_size=6))
@settings(max_examples=60)
def test_any_bytes_are_rows_or_misfits(name: str, blobs: list[bytes | None]) -> None:
    decoder = decoder_for(DECLARED[name], NOTHING, SCHEMAS)
    for _ in range(2):  # with the schema that the first chunk has left, too
        decoded = decoder.decode(pa.chunked_array([blobs], pa.binary()))
        decoded.columns.validate(full=True)
        assert decoded.columns.num_rows == len(blobs)
        assert decoded.columns.schema.equals(decoder.schema)
        rows = [misfit.row for misfit in decoded.misfits]
        assert rows == sorted(set(rows))


@pytest.mark.parametrize("name", ["json", "connect", "schema", "variant"])
@pytest.mark.parametrize("levels", [25, 300, 900, 5000])
def test_deep_values_are_rows_or_misfits(name: str, levels: int) -> None:
    deep = b'{"x":' * levels + b"1" + b"}" * levels
    decoded = decode(DECLARED[name], [deep, b'{"x":1}', b'{"x":[' * levels, None])
    assert decoded.columns.num_rows == 4
    assert (0 in reasons(decoded)) is (
        levels > NESTING_MAX and not (name == "schema" and levels == 300)
    )


def test_a_schema_with_strange_numbers_is_refused_and_fails_nothing() -> None:
    text = {"properties": {"p": {"type": "number", "title": "org.apache.kafka.connect.data.Decimal",
                                 "connect.parameters": {"scale": "9" * 5000}}}}  # fmt: skip
    schemas = MemorySchemas()
    number = schemas.register("t", "JSON", json.dumps(text))
    blob = b"\0" + number.to_bytes(4, "big") + b"{}"
    decoded = decode(DeclaredFormat("confluent"), [blob], schemas=schemas)
    assert list(reasons(decoded)) == [0]
