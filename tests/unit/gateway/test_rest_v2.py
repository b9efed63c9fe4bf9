"""v2 of Kafka's REST proxy: topics, partitions, produce."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from unit.gateway.memory_cluster import MemoryAdmin, MemoryCluster
from unit.gateway.rest_gateways import AVRO_V2, BINARY_V2, JSON_V2, V2, Rest, with_rest


def asked(method: str, path: str, body: Any = None, kind: str = JSON_V2, **more: Any) -> Any:
    async def work(rest: Rest) -> Any:
        return await rest.ask(method, path, body, kind)

    return with_rest(work, **more)


def test_brokers_and_topics() -> None:
    assert asked("GET", "/brokers") == {"brokers": [0]}
    assert asked("GET", "/topics") == ["flights"]
    topic = asked("GET", "/topics/flights")
    replica = {"broker": 0, "leader": True, "in_sync": True}
    partitions = [{"partition": p, "leader": 0, "replicas": [replica]} for p in (0, 1)]
    policy = {"cleanup.policy": "delete"}
    assert topic == {"name": "flights", "configs": policy, "partitions": partitions}
    assert asked("GET", "/topics/flights/partitions") == partitions
    assert asked("GET", "/topics/flights/partitions/1") == partitions[1]
    offsets = {"beginning_offset": 0, "end_offset": 0}
    assert asked("GET", "/topics/flights/partitions/1/offsets") == offsets


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/topics/none", 40401),
        ("/topics/none/partitions", 40401),
        ("/topics/none/partitions/0/offsets", 40401),
        ("/topics/flights/partitions/2", 40402),
        ("/topics/flights/partitions/x", 404),
        ("/topics/flights/partitions/-1", 404),
        ("/topics/flights/partitions/99999999999999999999", 404),
        ("/topics/fl%ff", 400),
    ],
)
def test_what_is_not_there(path: str, code: int) -> None:
    assert asked("GET", path) == [int(str(code)[:3]), code]


def test_replies_have_v2s_media_type() -> None:
    async def work(rest: Rest) -> str:
        return (await rest.send("GET", "/topics")).headers["content-type"]

    assert with_rest(work) == V2


def test_produce_json() -> None:
    cluster = MemoryCluster().create("flights", 2)
    records = [
        {"key": "UA", "value": {"delay": 11}},
        {"value": [1, "ü", None], "partition": 1},
        {"key": 7, "value": None},
    ]
    found = asked("POST", "/topics/flights", {"records": records}, cluster=cluster)
    at = [(row["partition"], row["offset"], row["error_code"]) for row in found["offsets"]]
    assert at == [(0, 0, None), (1, 0, None), (0, 1, None)]
    assert [found["key_schema_id"], found["value_schema_id"]] == [None, None]
    assert cluster.records("flights") == [(b'"UA"', b'{"delay":11}'), (b"7", None)]
    assert cluster.records("flights", 1) == [(None, '[1,"ü",null]'.encode())]


def test_produce_binary_to_a_partition() -> None:
    cluster = MemoryCluster().create("flights", 2)
    body = {"records": [{"key": "a2V5", "value": "AP8="}]}
    found = asked("POST", "/topics/flights/partitions/1", body, BINARY_V2, cluster=cluster)
    assert found["offsets"][0]["offset"] == 0
    assert cluster.records("flights", 1) == [(b"key", b"\x00\xff")]


@pytest.mark.parametrize(
    ("body", "kind", "answer"),
    [
        ({"records": [{"value": "%%"}]}, BINARY_V2, [422, 42206]),
        ({"records": [{"value": 1}]}, BINARY_V2, [422, 42206]),
        ({"records": 1}, JSON_V2, [422, 422]),
        ({}, JSON_V2, [422, 422]),
        ([], JSON_V2, [422, 422]),
        ({"records": [1]}, JSON_V2, [422, 422]),
        ({"records": [{"value": 1, "partition": "x"}]}, JSON_V2, [422, 422]),
        ({"records": [{"value": 1, "partition": -1}]}, JSON_V2, [422, 422]),
        (b"{", JSON_V2, [400, 400]),
        (b"\xff", JSON_V2, [400, 400]),
        (b'{"records":[{"value":NaN}]}', JSON_V2, [400, 400]),
        (b"[" * 100_000, JSON_V2, [400, 400]),
        (b'{"records":[{"value":"\\ud800"}]}', JSON_V2, [422, 42203]),
        (b'{"records":[{"value":1e999}]}', JSON_V2, [422, 42203]),
        ({"records": [{"value": 1}]}, AVRO_V2, [422, 42202]),
        ({"records": [{"key": 1}]}, AVRO_V2, [422, 42201]),
        ({"records": [{"value": 1}], "value_schema_id": 1}, AVRO_V2, [422, 42207]),
        ({"records": [{"value": 1}]}, V2, [415, 415]),
        ({"records": [{"value": 1}]}, "application/json", [415, 415]),
    ],
)
def test_a_body_that_cannot_be_produced(body: Any, kind: str, answer: list[int]) -> None:
    cluster = MemoryCluster().create("flights")
    assert asked("POST", "/topics/flights", body, kind, cluster=cluster) == answer
    assert cluster.records("flights") == []


def test_produce_to_what_is_not_there() -> None:
    body = {"records": [{"value": 1}]}
    assert asked("POST", "/topics/none", body) == [404, 40401]
    assert asked("POST", "/topics/flights/partitions/2", body) == [404, 40402]
    found = asked("POST", "/topics/flights", {"records": [{"value": 1, "partition": 2}]})
    assert [found["offsets"][0]["error_code"], found["offsets"][0]["offset"]] == [40402, None]


def test_a_partition_that_was_just_added_is_found() -> None:
    async def work(rest: Rest) -> list[Any]:
        path, body = "/topics/flights/partitions/2", {"records": [{"value": 1}]}
        before = await rest.ask("POST", path, body, JSON_V2)
        await MemoryAdmin(rest.cluster).create_partitions({"flights": 3})
        after = await rest.ask("POST", path, body, JSON_V2)
        return [before, after["offsets"][0]["partition"]]

    assert with_rest(work) == [[404, 40402], 2]


def test_the_brokers_refuse_the_user() -> None:
    cluster = MemoryCluster().create("flights")
    cluster.denied.add("flights")
    body = {"records": [{"value": 1}]}
    assert asked("POST", "/topics/flights", body, cluster=cluster) == [403, 40301]
    assert asked("GET", "/topics/flights", cluster=cluster) == [403, 40301]


def test_a_refused_record_is_the_status_of_the_reply() -> None:
    async def work(rest: Rest) -> list[Any]:
        body = {"records": [{"value": 1}]}
        before = await rest.send("POST", "/topics/flights", body, JSON_V2)
        rest.cluster.denied.add("flights")  # the topic is known by now: the producer is refused
        after = await rest.send("POST", "/topics/flights", body, JSON_V2)
        return [before.status_code, after.status_code, after.json()["offsets"][0]["error_code"]]

    assert with_rest(work) == [200, 403, 40301]


def test_each_user_has_clients_of_its_own() -> None:
    auth = httpx.BasicAuth("alice", "secret")
    assert asked("GET", "/topics", has_login=True, auth=auth) == ["flights"]
    wrong = httpx.BasicAuth("alice", "wrong")
    assert asked("GET", "/topics", has_login=True, auth=wrong) == [401, 40101]


def test_read_only_has_no_route_that_writes() -> None:
    body = {"records": [{"value": 1}]}
    assert asked("POST", "/topics/flights", body, is_read_only=True) == [405, 405]
    assert asked("POST", "/consumers/g", {}, is_read_only=True) == [404, 404]
    assert asked("GET", "/topics", is_read_only=True) == ["flights"]
    topics = "/v3/clusters/c1/topics"
    assert asked("POST", topics, {"topic_name": "x"}, is_read_only=True) == [405, 405]
    assert asked("DELETE", f"{topics}/flights", is_read_only=True) == [405, 405]
    assert asked("POST", f"{topics}/flights/records", {}, is_read_only=True) == [404, 404]
    alter = f"{topics}/flights/configs:alter"
    assert asked("POST", alter, {"data": []}, is_read_only=True) == [404, 404]
