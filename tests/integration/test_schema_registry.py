"""The schema registry as clients meet it: Confluent's Python serializers, restarts, two instances,
logins. Clients of other languages: test_registry_clients."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from headwater import Consumer, NewTopic, Producer
from integration.cluster import LocalCluster
from integration.registry_process import RegistryProcess, serving
from tls_authority import Authority

pytestmark = pytest.mark.integration

VALUE = MessageField.VALUE
FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": "int"}],
}
ROW = {"carrier": "UA", "delay": 11}
WRITES = 30


@pytest.fixture(scope="module")
def registry(
    shared_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RegistryProcess]:
    log = tmp_path_factory.mktemp("registry") / "log"
    with serving(shared_cluster.bootstrap, log) as process:
        yield process


def client(registry: RegistryProcess) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def through_topic(cluster: LocalCluster, topic: str, blob: bytes) -> bytes:
    """Send a record, and read it back."""
    cluster.create_topic(topic)
    with Producer(cluster.bootstrap) as producer:
        producer.send(topic, blob).result()
    with Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        group_id=topic,
    ) as consumer:
        record = next(iter(consumer))
    assert record.value is not None
    return record.value


def test_avro_by_confluents_serializer(
    registry: RegistryProcess, shared_cluster: LocalCluster
) -> None:
    where = SerializationContext("registry-avro", VALUE)
    blob = AvroSerializer(client(registry), json.dumps(FLIGHT))(ROW, where)
    assert blob is not None
    read = through_topic(shared_cluster, "registry-avro", blob)
    assert AvroDeserializer(client(registry))(read, where) == ROW
    worse = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "tail", "type": "string"}]}
    with pytest.raises(SchemaRegistryError) as refused:
        client(registry).register_schema("registry-avro-value", Schema(json.dumps(worse), "AVRO"))
    assert refused.value.http_status_code == 409
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in str(refused.value)


def test_json_schema_by_confluents_serializer(
    registry: RegistryProcess, shared_cluster: LocalCluster
) -> None:
    schema = json.dumps(
        {
            "title": "Flight",
            "type": "object",
            "properties": {"carrier": {"type": "string"}, "delay": {"type": "integer"}},
        }
    )
    where = SerializationContext("registry-json", VALUE)
    blob = JSONSerializer(schema, client(registry))(ROW, where)
    assert blob is not None
    read = through_topic(shared_cluster, "registry-json", blob)
    assert JSONDeserializer(schema, schema_registry_client=client(registry))(read, where) == ROW


def test_protobuf_by_confluents_serializer(
    registry: RegistryProcess, shared_cluster: LocalCluster
) -> None:
    where = SerializationContext("registry-protobuf", VALUE)
    kind = trip_class()
    trip = kind(at={"seconds": 7}, plane={"tail": "N1"})
    blob = ProtobufSerializer(kind, client(registry))(trip, where)
    assert blob is not None
    read = through_topic(shared_cluster, "registry-protobuf", blob)
    assert ProtobufDeserializer(kind, schema_registry_client=client(registry))(read, where) == trip
    latest = client(registry).get_latest_version("registry-protobuf-value").schema
    assert "message Trip" in (latest.schema_str or "")
    assert [r.name for r in latest.references or ()] == ["plane.proto"]


def trip_class() -> Any:
    """A message with a field of a well-known type, and one of another file."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for name, fields in (
        ("Plane", [("tail", "")]),
        ("Trip", [("at", ".google.protobuf.Timestamp"), ("plane", ".Plane")]),
    ):
        imports = [n for n in ("google/protobuf/timestamp.proto", "plane.proto") if name == "Trip"]
        file = descriptor_pb2.FileDescriptorProto(
            name=f"{name.lower()}.proto", syntax="proto3", dependency=imports
        )
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, 1):
            message.field.add(
                name=field, number=number, label=1, type=11 if kind else 9, type_name=kind or None
            )
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Trip"))


def test_references_and_settings_by_confluents_client(registry: RegistryProcess) -> None:
    ours = client(registry)
    address = {"type": "record", "name": "Address", "fields": []}
    person = {"type": "record", "name": "P", "fields": [{"name": "home", "type": "Address"}]}
    ours.register_schema("ref-address", Schema(json.dumps(address), "AVRO"))
    refers = [SchemaReference("Address", "ref-address", 1)]
    number = ours.register_schema("ref-person", Schema(json.dumps(person), "AVRO", refers))
    assert ours.get_schema(number).references == refers
    with pytest.raises(SchemaRegistryError, match="One or more references exist"):
        ours.delete_subject("ref-address")
    ours.set_compatibility("ref-person", "FULL")
    assert ours.get_compatibility("ref-person") == "FULL"
    assert ours.delete_subject("ref-person") == [1]
    assert ours.delete_subject("ref-address") == [1]


def enum(name: str) -> dict[str, str]:
    return {"schema": json.dumps({"type": "enum", "name": name, "symbols": ["A"]})}


def register(url: str, subject: str, name: str) -> int:
    reply = httpx.post(f"{url}/subjects/{subject}/versions", json=enum(name), timeout=60)
    document: dict[str, Any] = reply.json()
    assert reply.status_code == 200, document
    number: int = document["id"]
    return number


def test_two_instances_write_in_turn_and_a_killed_one_loses_nothing(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    topic = ("--topic", "_two_schemas", "--replication-factor", "1")
    with ExitStack() as stack:
        both = [
            stack.enter_context(serving(shared_cluster.bootstrap, tmp_path / f"log-{n}", *topic))
            for n in range(2)
        ]
        with ThreadPoolExecutor(8) as pool:
            numbers = list(
                pool.map(lambda n: register(both[n % 2].url, f"s{n}", f"E{n}"), range(WRITES))
            )
        assert sorted(numbers) == list(range(1, WRITES + 1))
        both[0].kill()
        assert register(both[1].url, "after", "After") == WRITES + 1
        assert register(both[1].url, "s0", "E0") == numbers[0]
    with serving(shared_cluster.bootstrap, tmp_path / "log-again", *topic) as again:
        for n, number in enumerate(numbers):
            found = httpx.get(f"{again.url}/subjects/s{n}/versions/1").json()
            assert found["id"] == number
        assert register(again.url, "last", "Last") == WRITES + 2


def test_a_topic_of_another_kind_is_refused_in_one_line(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    with shared_cluster.admin() as admin:
        admin.create_topics([NewTopic("registry-other", 2)])
    log = tmp_path / "log"
    with (
        pytest.raises(AssertionError, match="has 2 partitions"),
        serving(shared_cluster.bootstrap, log, "--topic", "registry-other"),
    ):
        pass
    assert len(log.read_text().splitlines()) == 1
    with (
        pytest.raises(AssertionError, match="is not loopback"),
        serving(shared_cluster.bootstrap, log, "--host", "0.0.0.0"),
    ):
        pass


def test_a_registry_over_tls_is_asked_by_the_commands(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    key = authority.leaf().write(tmp_path / "registry.pem")
    listener = tmp_path / "tls.properties"
    listener.write_text(f"ssl.keystore.location={key}\nssl.keystore.type=PEM\n")
    client_file = tmp_path / "client.properties"
    client_file.write_text(
        f"security.protocol=SSL\nssl.truststore.location={tmp_path / 'ca.pem'}\n"
    )
    schema = tmp_path / "a.avsc"
    schema.write_text(json.dumps(FLIGHT))
    options = ("--topic", "_tls_schemas", "--listener-properties", str(listener))
    with serving(shared_cluster.bootstrap, tmp_path / "log", *options) as process:
        assert process.url.startswith("https://")
        command = ["register", "s", str(schema), "--url", process.url]
        assert registry_command(*command, "--command-config", str(client_file)) == (0, "1")
        code, told = registry_command(*command)
        assert code == 1 and "CERTIFICATE_VERIFY_FAILED" in told


def registry_command(*words: str) -> tuple[int, str]:
    """The exit code of `headwater registry`, and what it printed."""
    headwater = str(Path(sys.executable).with_name("headwater"))
    done = subprocess.run(
        [headwater, "registry", *words], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, (done.stdout + done.stderr).strip()
