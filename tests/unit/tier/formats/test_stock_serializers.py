"""Values that Confluent's own serializers frame, with their in-memory registry."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from headwater_tier.typed.decoding import DeclaredFormat, RegisteredSchema
from headwater_tier.typed.formats.factory import decoder_for
from headwater_tier.typed.formats.protobuf_schema import ProtobufFile
from unit.tier.formats.format_rows import NOTHING, rows_of

AVRO = json.dumps(
    {"type": "record", "name": "R", "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}
)  # fmt: skip
JSON = json.dumps(
    {"title": "T", "type": "object", "properties": {"id": {"type": "integer"}, "o": {
        "type": "object", "properties": {"x": {"type": "number"}}}}}
)  # fmt: skip
PROTO = """syntax = "proto3"; package p; message A { int64 id = 1; }
message B { message C { string name = 1; } }"""


class Mock:
    """Confluent's in-memory registry as a SchemaSource."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        found = self._client.get_schema(schema_id)
        return RegisteredSchema(schema_id, found.schema_type, found.schema_str)

    def latest(self, subject: str) -> RegisteredSchema | None:
        raise NotImplementedError(subject)


@pytest.fixture
def client() -> Any:
    return SchemaRegistryClient.new_client({"url": "mock://formats"})


def rows(client: Any, *blobs: bytes) -> list[dict[str, Any]]:
    decoder = decoder_for(DeclaredFormat("confluent"), NOTHING, Mock(client))
    decoded = decoder.decode(pa.chunked_array([list(blobs)], pa.binary()))
    assert not decoded.misfits
    return rows_of(decoded)


def test_avro(client: Any) -> None:
    serialize = AvroSerializer(client, AVRO)
    context = SerializationContext("t", MessageField.VALUE)
    row = rows(client, serialize({"id": 5, "tags": ["x"], "at": 1000}, context))[0]
    assert (row["id"], row["tags"], row["at"].timestamp()) == (5, ["x"], 1.0)


def test_json(client: Any) -> None:
    serialize = JSONSerializer(JSON, client)
    context = SerializationContext("t", MessageField.VALUE)
    assert rows(client, serialize({"id": 5, "o": {"x": 1.5}}, context)) == [
        {"id": 5, "o": {"x": 1.5}}
    ]


def test_protobuf(client: Any) -> None:
    pool = ProtobufFile(PROTO).pool
    context = SerializationContext("t", MessageField.VALUE)
    blobs = []
    for name, fields in (("p.A", {"id": 7}), ("p.B.C", {"name": "n"})):
        new = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        serialize = ProtobufSerializer(new, client, {"use.deprecated.format": False})
        blobs.append(serialize(new(**fields), context))
    found = rows(client, *blobs)
    assert (found[0]["id"], found[1]["name"]) == (7, "n")
