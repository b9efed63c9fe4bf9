"""Records by a schema of the registry: written, read back, refused."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from unit.gateway.memory_cluster import MemoryCluster
from unit.gateway.rest_gateways import AVRO_V2, CLUSTER, V2, Rest, SpiedRegistry, with_rest
from unit.registry.registries import record

FLIGHT = json.dumps(record(("carrier", "string"), ("delay", ["null", "int"]), name="Flight"))
PROTO = 'syntax = "proto3"; message Flight { string carrier = 1; int64 delay = 2; }'
JSON_SCHEMA = json.dumps({"type": "object", "properties": {"delay": {"type": "integer"}}})
ONE = "/consumers/g/instances/one"


def kind_of(form: str) -> str:
    return f"application/vnd.kafka.{form}.v2+json"


async def read(rest: Rest, form: str) -> list[Any]:
    body = {"name": "one", "format": form, "auto.offset.reset": "earliest"}
    await rest.ask("POST", "/consumers/g", body, V2)
    await rest.ask("POST", f"{ONE}/subscription", {"topics": ["flights"]}, V2)
    found: list[Any] = await rest.ask("GET", f"{ONE}/records?timeout=0")
    return found


@pytest.mark.parametrize(
    ("form", "schema", "value", "other"),
    [
        ("avro", FLIGHT, {"carrier": "UA", "delay": {"int": 11}}, {"carrier": "ü", "delay": None}),
        ("jsonschema", JSON_SCHEMA, {"delay": 11}, {"more": [1, None]}),
        ("protobuf", PROTO, {"carrier": "UA", "delay": "9007199254740993"}, {"carrier": "ü"}),
    ],
)
def test_written_and_read_back(form: str, schema: str, value: Any, other: Any) -> None:
    registry = SpiedRegistry()

    async def work(rest: Rest) -> None:
        body = {"value_schema": schema, "records": [{"value": value}]}
        sent = await rest.ask("POST", "/topics/flights", body, kind_of(form))
        assert [sent["offsets"][0]["error_code"], sent["value_schema_id"]] == [None, 1]
        by_id = {"value_schema_id": 1, "records": [{"value": other}, {"value": None}]}
        await rest.ask("POST", "/topics/flights", by_id, kind_of(form))
        blob = rest.cluster.records("flights")[0][1]
        assert blob is not None
        assert blob[:5] == b"\x00\x00\x00\x00\x01"
        rows = await read(rest, form)
        assert [row["value"] for row in rows] == [value, other, None]
        asked = len(registry.asked)
        positions = {"partitions": [{"topic": "flights", "partition": 0}]}
        await rest.ask("POST", f"{ONE}/positions/beginning", positions, V2)
        await rest.ask("GET", f"{ONE}/records?timeout=0")
        assert len(registry.asked) == asked  # the schema is known by now

    with_rest(work, registry=registry)


@pytest.mark.parametrize(
    ("form", "schema", "value"),
    [
        ("avro", FLIGHT, {"carrier": 1, "delay": None}),
        ("avro", FLIGHT, {"carrier": "UA", "delay": 11}),
        ("avro", FLIGHT, [1]),
        ("jsonschema", JSON_SCHEMA, {"delay": "late"}),
        ("protobuf", PROTO, {"nothing": 1}),
        ("protobuf", PROTO, {"carrier": 1}),
        ("protobuf", PROTO, "UA"),
    ],
)
def test_a_value_that_does_not_fit(form: str, schema: str, value: Any) -> None:
    async def work(rest: Rest) -> Any:
        body = {"value_schema": schema, "records": [{"value": value}]}
        return await rest.ask("POST", "/topics/flights", body, kind_of(form))

    cluster = MemoryCluster().create("flights")
    assert with_rest(work, cluster, SpiedRegistry()) == [422, 42203]
    assert cluster.records("flights") == []


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"value_schema": "no schema", "records": [{"value": 1}]}, [422, 42205]),
        ({"value_schema_id": 77, "records": [{"value": 1}]}, [422, 42207]),
        ({"value_schema_id": "x", "records": [{"value": 1}]}, [422, 422]),
    ],
)
def test_a_schema_that_cannot_be_used(body: Any, answer: list[int]) -> None:
    async def work(rest: Rest) -> Any:
        return await rest.ask("POST", "/topics/flights", body, AVRO_V2)

    assert with_rest(work, registry=SpiedRegistry()) == answer


def test_v3_names_a_schema_in_any_way() -> None:
    registry = SpiedRegistry()
    registry.registry.register("flights-value", FLIGHT)
    registry.registry.register("other", PROTO, schemaType="PROTOBUF")
    datum = {"carrier": "UA", "delay": None}
    path = f"{CLUSTER}/topics/flights/records"

    async def work(rest: Rest) -> None:
        for told, shown in (
            ({"schema_id": 1}, ["AVRO", "flights-value", 1]),
            ({"type": "AVRO"}, None),
            ({"schema_version": 1}, ["AVRO", "flights-value", 1]),
            ({"subject": "flights-value", "type": "AVRO"}, ["AVRO", "flights-value", 1]),
            ({"subject": "other", "schema_version": 1}, ["PROTOBUF", "other", 2]),
        ):
            data = {"carrier": "UA"} if told.get("subject") == "other" else datum
            report = await rest.ask("POST", path, {"value": {**told, "data": data}})
            value = report["value"]
            found = [value["type"], value["subject"], value["schema_id"]]
            assert found == (shown or ["AVRO", "flights-value", 1])
        wrong = {"value": {"type": "PROTOBUF", "schema_id": 1, "data": datum}}
        assert await rest.ask("POST", path, wrong) == [422, 42207]
        assert await rest.ask("POST", path, {"value": {"subject": "none"}}) == [422, 42207]

    with_rest(work, registry=registry)


def test_a_schema_cannot_keep_the_process() -> None:
    schema = json.dumps({"type": "string", "pattern": "^(a+)+$"})

    async def work(rest: Rest) -> Any:
        body = {"value_schema": schema, "records": [{"value": "a" * 60 + "!"}]}
        refused = await rest.send("POST", "/topics/flights", body, kind_of("jsonschema"))
        assert "0.5 s" in refused.json()["message"]
        body["records"] = [{"value": "a"}]
        again = await rest.send("POST", "/topics/flights", body, kind_of("jsonschema"))
        return [refused.status_code, again.status_code]

    assert with_rest(work, registry=SpiedRegistry()) == [422, 422]


def test_the_registry_is_asked_as_the_user() -> None:
    registry = SpiedRegistry()

    async def work(rest: Rest) -> None:
        body = {"value_schema": FLIGHT, "records": [{"value": {"carrier": "a", "delay": None}}]}
        await rest.ask("POST", "/topics/flights", body, AVRO_V2)

    with_rest(work, None, registry, httpx.BasicAuth("alice", "secret"), has_login=True)
    assert registry.asked == [("alice", "POST", "/subjects/flights-value/versions")]


def test_bytes_without_a_schemas_id_are_named() -> None:
    async def work(rest: Rest) -> Any:
        body = {"records": [{"value": "AP8="}]}
        await rest.ask("POST", "/topics/flights", body, kind_of("binary"))
        return await read(rest, "avro")

    assert with_rest(work, registry=SpiedRegistry()) == [422, 42203]


def test_a_registry_that_nobody_named() -> None:
    async def work(rest: Rest) -> str:
        body = {"value_schema": FLIGHT, "records": [{"value": 1}]}
        reply = await rest.send("POST", "/topics/flights", body, AVRO_V2)
        return str(reply.json()["message"])

    assert "--schema-registry" in with_rest(work)
