"""Serializers with a registry: against Headwater's own, and Confluent's serializers of Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry import avro as confluent_avro
from confluent_kafka.schema_registry import json_schema as confluent_json
from confluent_kafka.schema_registry import protobuf as confluent_protobuf
from confluent_kafka.serialization import SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

import headwater.serializers
from headwater import SerializationError, SerializerUnavailableError, Topic, UsageError
from headwater.serializers import (
    AvroSerializer,
    Context,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaRegistry,
)
from unit.registry.served_registry import ServedRegistry

AT = Context("t", "value")
WHERE = SerializationContext("t", "value")
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": "carrier", "type": "string"},
            {"name": "delay", "type": ["null", "int"], "default": None},
        ],
    }
)
ROW = {"carrier": "UA", "delay": 3}


@dataclass
class Flight:
    carrier: str
    delay: int | None = None


@pytest.fixture
def served() -> Iterator[ServedRegistry]:
    server = ServedRegistry()
    yield server
    server.close()


def test_avro_both_ways(served: ServedRegistry) -> None:
    theirs = SchemaRegistryClient({"url": served.url})
    ours = AvroSerializer(SchemaRegistry(served.url), SCHEMA)
    data = ours.dumps(ROW, AT)
    assert confluent_avro.AvroDeserializer(theirs)(data, WHERE) == ROW
    written = confluent_avro.AvroSerializer(theirs, SCHEMA)(ROW, WHERE)
    assert written == data and ours.loads(written, AT) == ROW
    model = AvroSerializer(SchemaRegistry(served.url), SCHEMA, Flight)
    assert model.dumps(Flight("UA", 3), AT) == data
    assert model.loads(data, AT) == Flight("UA", 3)


def test_avro_is_resolved_to_the_readers_schema(served: ServedRegistry) -> None:
    registry = SchemaRegistry(served.url)
    older = json.dumps({**json.loads(SCHEMA), "fields": [{"name": "carrier", "type": "string"}]})
    data = AvroSerializer(registry, older).dumps({"carrier": "UA"}, AT)
    assert AvroSerializer(registry, SCHEMA).loads(data, AT) == {"carrier": "UA", "delay": None}


def test_a_record_that_nests_without_end_is_refused(served: ServedRegistry) -> None:
    """fastavro's reader is compiled: such a record would end the process."""
    part = {"name": "next", "type": ["null", "Node"]}
    nodes = AvroSerializer(
        SchemaRegistry(served.url), json.dumps({"type": "record", "name": "Node", "fields": [part]})
    )
    frame = nodes.dumps({"next": None}, AT)
    assert nodes.loads(frame, AT) == {"next": None}
    with pytest.raises(ValueError, match="nests deeper than 200 levels"):
        nodes.loads(frame[:5] + b"\x02" * 10_000 + b"\x00", AT)


def test_json_schema_both_ways(served: ServedRegistry) -> None:
    theirs = SchemaRegistryClient({"url": served.url})
    ours = JsonSchemaSerializer(SchemaRegistry(served.url), model=Flight)
    data = ours.dumps(Flight("UA", 3), AT)
    text = theirs.get_latest_version("t-value").schema.schema_str
    assert text is not None
    read = confluent_json.JSONDeserializer(text, schema_registry_client=theirs)
    assert read(data, WHERE) == ROW
    written = confluent_json.JSONSerializer(text, theirs)(ROW, WHERE)
    assert ours.loads(written, AT) == Flight("UA", 3)
    with pytest.raises(ValueError):
        ours.loads(written[:5] + b'{"carrier": 5}', AT)


def trip_class() -> Any:
    """A nested message of a file that imports another one, and a well-known type."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    plane = descriptor_pb2.FileDescriptorProto(name="plane.proto", syntax="proto3")
    plane.message_type.add(name="Plane").field.add(name="tail", number=1, label=1, type=9)
    pool.Add(plane)
    trips = descriptor_pb2.FileDescriptorProto(
        name="trip.proto",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "plane.proto"],
    )
    trips.message_type.add(name="First")
    outer = trips.message_type.add(name="Trips")
    trip = outer.nested_type.add(name="Trip")
    kinds = [("at", ".google.protobuf.Timestamp"), ("plane", ".Plane")]
    for number, (name, kind) in enumerate(kinds, 1):
        trip.field.add(name=name, number=number, label=1, type=11, type_name=kind)
    pool.Add(trips)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Trips.Trip"))


def test_protobuf_both_ways(served: ServedRegistry) -> None:
    theirs = SchemaRegistryClient({"url": served.url})
    kind = trip_class()
    trip = kind(at={"seconds": 7}, plane={"tail": "N1"})
    ours = ProtobufSerializer(SchemaRegistry(served.url), kind)
    data = ours.dumps(trip, AT)
    assert (
        confluent_protobuf.ProtobufDeserializer(kind, schema_registry_client=theirs)(data, WHERE)
        == trip
    )
    written = confluent_protobuf.ProtobufSerializer(kind, theirs)(trip, WHERE)
    assert written[5:] == data[5:] and ours.loads(written, AT) == trip
    latest = theirs.get_latest_version("t-value").schema
    assert [r.name for r in latest.references or ()] == ["plane.proto"]
    with pytest.raises(TypeError, match=r"give a Trips\.Trip"):
        ours.dumps("trip", AT)


def test_what_was_asked_once_is_not_asked_again(served: ServedRegistry) -> None:
    serializer = AvroSerializer(SchemaRegistry(served.url), SCHEMA)
    topic = Topic("t", serializer)
    assert topic.may_block_at_send
    data = serializer.dumps(ROW, AT)
    assert not topic.may_block_at_send and topic.may_block
    serializer.loads(data, AT)
    before = served.requests
    for _ in range(3):
        assert serializer.loads(serializer.dumps(ROW, AT), AT) == ROW
    assert served.requests == before


def test_a_schema_has_to_be_registered_where_it_may_not_be(served: ServedRegistry) -> None:
    topic = Topic("t", AvroSerializer(SchemaRegistry(served.url), SCHEMA, register=False))
    with pytest.raises(SerializationError, match="subject t-value: "):
        topic.dumps(None, ROW, ())
    AvroSerializer(SchemaRegistry(served.url), SCHEMA).dumps(ROW, AT)
    assert topic.dumps(None, ROW, ())[1] is not None


def test_an_incompatible_schema_is_refused(served: ServedRegistry) -> None:
    registry = SchemaRegistry(served.url)
    AvroSerializer(registry, SCHEMA).dumps(ROW, AT)
    other = json.dumps(
        {"type": "record", "name": "Flight", "fields": [{"name": "tail", "type": "string"}]}
    )
    with pytest.raises(UsageError, match="incompatible"):
        AvroSerializer(registry, other).dumps({"tail": "N1"}, AT)


def test_bytes_without_a_frame_and_unknown_ids(served: ServedRegistry) -> None:
    serializer = AvroSerializer(SchemaRegistry(served.url), SCHEMA)
    with pytest.raises(ValueError, match="no magic byte 0"):
        serializer.loads(b"UA", AT)
    with pytest.raises(ValueError, match="no schema 99"):
        serializer.loads(b"\0\0\0\0\x63UA", AT)


def test_a_registry_that_is_down_says_nothing_about_the_record(served: ServedRegistry) -> None:
    data = AvroSerializer(SchemaRegistry(served.url), SCHEMA).dumps(ROW, AT)
    serializer = AvroSerializer(SchemaRegistry("http://127.0.0.1:9"), SCHEMA)
    with pytest.raises(SerializerUnavailableError, match="does not answer"):
        serializer.loads(data, AT)
    with pytest.raises(SerializerUnavailableError, match="does not answer"):
        Topic("t", serializer).dumps(None, ROW, ())


def test_the_module_names_what_it_has() -> None:
    for name in headwater.serializers.EXPORTS:
        assert getattr(headwater.serializers, name).__name__ == name
        assert name in dir(headwater.serializers)
    with pytest.raises(AttributeError, match="no attribute 'XmlSerializer'"):
        headwater.serializers.XmlSerializer  # type: ignore[attr-defined] # noqa: B018
