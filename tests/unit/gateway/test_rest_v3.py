"""v3 of Kafka's REST proxy: clusters, topics, configs, ACLs, groups, records."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.client.values import MemberDescription, OffsetAndMetadata, TopicPartition
from unit.gateway.memory_cluster import NOW_MS, MemoryCluster
from unit.gateway.rest_gateways import CLUSTER, Rest, with_rest

URL = f"http://localhost:8082{CLUSTER}"
TOPICS = f"{CLUSTER}/topics"
ACL = {
    "resource_type": "TOPIC",
    "resource_name": "flights",
    "pattern_type": "LITERAL",
    "principal": "User:alice",
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
}


def asked(method: str, path: str, body: Any = None, **more: Any) -> Any:
    async def work(rest: Rest) -> Any:
        return await rest.ask(method, path, body)

    return with_rest(work, **more)


def test_the_cluster() -> None:
    listed = asked("GET", "/v3/clusters")
    assert [listed["kind"], listed["metadata"]["self"]] == [
        "KafkaClusterList",
        "http://localhost:8082/v3/clusters",
    ]
    row = listed["data"][0]
    assert row == asked("GET", CLUSTER)
    assert row["metadata"] == {"self": URL, "resource_name": "crn:///kafka=c1"}
    assert row["topics"] == {"related": f"{URL}/topics"}
    assert row["controller"] == {"related": f"{URL}/brokers/0"}
    assert asked("GET", "/v3/clusters/other") == [404, 404]


def test_the_prefix_of_confluents_server() -> None:
    row = asked("GET", "/kafka/v3/clusters")["data"][0]
    assert row["brokers"]["related"] == "http://localhost:8082/kafka/v3/clusters/c1/brokers"


def test_links_lead_somewhere() -> None:
    """Every link of every resource, followed from the root."""

    async def work(rest: Rest) -> int:
        rest.cluster.committed["g"] = {TopicPartition("flights", 0): OffsetAndMetadata(0)}
        member = MemberDescription("m-1", None, "app", "/1.2.3.4", (TopicPartition("flights", 0),))
        rest.cluster.members["g"] = [member]
        seen: set[str] = set()
        rest.cluster.broker_configs["log.dirs"] = "/x"
        todo = ["http://localhost:8082/v3/clusters"]
        while todo:
            address = todo.pop()
            if address in seen:
                continue
            seen.add(address)
            reply = await rest.client.get(address)
            if not address.endswith("/partitions/0/reassignment"):
                assert reply.status_code in (200, 404), (address, reply.text)
                if reply.status_code == 404:
                    assert address.endswith("/reassignment"), address
            todo += links(reply.json())
        return len(seen)

    assert with_rest(work) > 25


def links(value: Any) -> list[str]:
    """Every address in a document."""
    if isinstance(value, list):
        return [address for row in value for address in links(row)]
    if isinstance(value, dict):
        own = [v for k, v in value.items() if k in ("related", "self") and isinstance(v, str)]
        return own + [address for row in value.values() for address in links(row)]
    return []


def test_topics_are_made_grown_and_deleted() -> None:
    async def work(rest: Rest) -> None:
        body = {
            "topic_name": "new",
            "partitions_count": 3,
            "configs": [{"name": "retention.ms", "value": "1"}],
        }
        planned = await rest.send("POST", TOPICS, {**body, "validate_only": True})
        assert planned.status_code == 200
        assert "new" not in rest.cluster.logs
        made = await rest.send("POST", TOPICS, body)
        assert made.status_code == 201
        assert made.json()["partitions_count"] == 3
        assert rest.cluster.configs["new"] == {"retention.ms": "1"}
        assert await rest.ask("POST", TOPICS, body) == [400, 40002]
        grown = await rest.ask("PATCH", f"{TOPICS}/new", {"partitions_count": 5})
        assert grown["partitions_count"] == 5
        assert await rest.ask("PATCH", f"{TOPICS}/new", {"partitions_count": 2}) == [400, 40002]
        listed = await rest.ask("GET", TOPICS)
        assert [row["topic_name"] for row in listed["data"]] == ["flights", "new"]
        assert await rest.ask("DELETE", f"{TOPICS}/new") == 204
        assert await rest.ask("GET", f"{TOPICS}/new") == [404, 40403]

    with_rest(work)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topic_name": 1},
        {"topic_name": "x", "partitions_count": "many"},
        {"topic_name": "x", "configs": [{"name": "a"}]},
        {"topic_name": "x", "configs": {"a": "b"}},
        {"topic_name": "x", "replicas_assignments": {"a": [1]}},
        {"topic_name": "x", "replicas_assignments": {"0": ["b"]}},
        {"topic_name": "\ud800"},
        [],
        "x",
    ],
)
def test_topics_that_cannot_be(body: Any) -> None:
    assert asked("POST", TOPICS, body) == [422, 422]


def test_partitions() -> None:
    listed = asked("GET", f"{TOPICS}/flights/partitions")
    assert [row["partition_id"] for row in listed["data"]] == [0, 1]
    row = asked("GET", f"{TOPICS}/flights/partitions/1")
    assert row["leader"]["related"] == f"{URL}/topics/flights/partitions/1/replicas/0"
    assert asked("GET", f"{TOPICS}/flights/partitions/2") == [404, 40402]
    offset = asked("GET", f"{TOPICS}/flights/partitions/1/offset")
    assert [offset["earliest_offset"], offset["latest_offset"]] == [0, 0]


def test_configs_of_topics_brokers_and_all_brokers() -> None:
    async def work(rest: Rest) -> None:
        path = f"{TOPICS}/flights/configs"
        change = {"data": [{"name": "retention.ms", "value": "5"}, {"name": "a.b", "value": "c"}]}
        assert await rest.ask("POST", f"{path}:alter", {**change, "validate_only": True}) == 204
        assert rest.cluster.configs["flights"] == {}
        assert await rest.ask("POST", f"{path}:alter", change) == 204
        row = await rest.ask("GET", f"{path}/retention.ms")
        assert [row["value"], row["topic_name"]] == ["5", "flights"]
        gone = {"data": [{"name": "a.b", "operation": "DELETE"}]}
        assert await rest.ask("POST", f"{path}:alter", gone) == 204
        assert await rest.ask("PUT", f"{path}/retention.ms", {"value": "6"}) == 204
        assert rest.cluster.configs["flights"] == {"retention.ms": "6"}
        assert await rest.ask("PUT", f"{path}/retention.ms", {"value": 7}) == 204
        assert await rest.ask("PUT", f"{path}/a.flag", {"value": False}) == 204
        assert rest.cluster.configs["flights"] == {"retention.ms": "7", "a.flag": "false"}
        assert await rest.ask("DELETE", f"{path}/retention.ms") == 204
        assert await rest.ask("GET", f"{path}/retention.ms") == [404, 404]
        assert await rest.ask("PUT", f"{path}/nonsense", {"value": "6"}) == [400, 40002]
        wrong = {"data": [{"name": "a.b", "operation": "APPEND", "value": "x"}]}
        assert await rest.ask("POST", f"{path}:alter", wrong) == [422, 422]
        for where, kind in ((f"{CLUSTER}/brokers/0/configs", "KafkaBrokerConfig"),
                            (f"{CLUSTER}/broker-configs", "KafkaClusterConfig")):  # fmt: skip
            assert await rest.ask("PUT", f"{where}/log.x", {"value": "1"}) == 204
            found = await rest.ask("GET", where)
            assert [row["kind"] for row in found["data"]] == [kind]
        assert await rest.ask("GET", f"{CLUSTER}/brokers/7/configs") == [404, 404]

    with_rest(work)


def test_acls() -> None:
    async def work(rest: Rest) -> None:
        path = f"{CLUSTER}/acls"
        reply = await rest.send("POST", path, ACL)
        assert reply.status_code == 201
        more = {"data": [{**ACL, "operation": "WRITE"}, {**ACL, "principal": "User:bob"}]}
        assert (await rest.send("POST", f"{path}:batch", more)).status_code == 201
        found = await rest.ask("GET", f"{path}?principal=User:alice&resource_type=topic")
        assert [row["operation"] for row in found["data"]] == ["READ", "WRITE"]
        assert {k: found["data"][0][k] for k in ACL} == ACL
        assert await rest.ask("GET", f"{path}?operation=FLY") == [400, 400]
        assert await rest.ask("DELETE", f"{path}?principal=User:alice") == [400, 400]
        query = "resource_type=ANY&pattern_type=ANY&operation=ANY&permission=ANY"
        gone = await rest.ask("DELETE", f"{path}?{query}&principal=User:alice")
        assert len(gone["data"]) == 2
        assert [acl.principal for acl in rest.cluster.acls] == ["User:bob"]
        assert await rest.ask("POST", path, {**ACL, "permission": "MAYBE"}) == [400, 400]

    with_rest(work)


def test_groups_and_their_lags() -> None:
    async def work(rest: Rest) -> None:
        first, second = TopicPartition("flights", 0), TopicPartition("flights", 1)
        rest.cluster.committed["g"] = {
            first: OffsetAndMetadata(1),
            second: OffsetAndMetadata(0),
            TopicPartition("gone", 0): OffsetAndMetadata(9),
        }
        rest.cluster.members["g"] = [MemberDescription("m-1", "i-1", "app", "/1.2.3.4", (first,))]
        for partition, count in ((0, 5), (1, 2)):
            path = f"{TOPICS}/flights/records"
            for n in range(count):
                row = {"partition_id": partition, "value": {"type": "JSON", "data": n}}
                await rest.ask("POST", path, row)
        group = f"{CLUSTER}/consumer-groups/g"
        assert (await rest.ask("GET", group))["state"] == "STABLE"
        lags = (await rest.ask("GET", f"{group}/lags"))["data"]
        assert [(row["partition_id"], row["lag"], row["client_id"]) for row in lags] == [
            (0, 4, "app"),
            (1, 2, ""),
        ]
        summary = await rest.ask("GET", f"{group}/lag-summary")
        assert [summary["max_lag"], summary["total_lag"], summary["max_lag_consumer_id"]] == [
            4,
            6,
            "m-1",
        ]
        one = await rest.ask("GET", f"{group}/lags/flights/partitions/1")
        assert one == lags[1]
        assert await rest.ask("GET", f"{group}/lags/flights/partitions/7") == [404, 404]
        assert await rest.ask("GET", f"{CLUSTER}/consumer-groups/none") == [404, 40405]
        assert await rest.ask("GET", f"{group}/consumers/none") == [404, 404]

    with_rest(work)


def test_one_record() -> None:
    cluster = MemoryCluster().create("flights", 2)
    body = {
        "partition_id": 1,
        "headers": [{"name": "h", "value": "YQ=="}, {"name": "n"}],
        "key": {"type": "STRING", "data": "k"},
        "value": {"type": "BINARY", "data": "AP8="},
        "timestamp": "2026-01-01T00:00:00+01:00",
    }
    assert asked("POST", f"{TOPICS}/flights/records", body, cluster=cluster) == {
        "error_code": 200,
        "cluster_id": "c1",
        "topic_name": "flights",
        "partition_id": 1,
        "offset": 0,
        "timestamp": "2025-12-31T23:00:00.000Z",
        "key": {"type": "STRING", "size": 1},
        "value": {"type": "BINARY", "size": 2},
    }
    (record,) = cluster.logs["flights"][1]
    assert [record.key, record.value, record.headers] == [
        b"k",
        b"\x00\xff",
        [("h", b"a"), ("n", None)],
    ]


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"", [400, 400]),
        (b"[]", [400, 400]),
        (b"{", [400, 400]),
        (b'{"value":}', [400, 400]),
        ({"value": 1}, [422, 422]),
        ({"value": {"data": 1}}, [422, 422]),
        ({"value": {"type": "XML", "data": 1}}, [422, 422]),
        ({"value": {"type": "BINARY", "data": "%"}}, [422, 42206]),
        ({"value": {"type": "STRING", "data": 1}}, [422, 42206]),
        ({"value": {"type": "AVRO", "schema_id": 1, "data": 1}}, [422, 42207]),
        ({"partition_id": 9}, [404, 40402]),
        ({"headers": [{"value": "YQ=="}]}, [422, 422]),
        ({"headers": [{"name": "a", "value": "%"}]}, [422, 42206]),
        ({"timestamp": "yesterday"}, [422, 422]),
        ({"timestamp": "0001-01-01T00:00:00"}, [422, 422]),
        ({"timestamp": -1}, [422, 422]),
    ],
)
def test_a_record_that_cannot_be_sent(body: Any, answer: list[int]) -> None:
    assert asked("POST", f"{TOPICS}/flights/records", body) == answer


def test_a_record_without_anything_is_a_record() -> None:
    report = asked("POST", f"{TOPICS}/flights/records", {})
    assert [report["error_code"], report["offset"]] == [200, 0]
    assert report["timestamp"].startswith("2023-11-14")
    assert NOW_MS == 1_700_000_000_000


def test_several_records_in_one_body_have_reports_in_order() -> None:
    async def work(rest: Rest) -> list[Any]:
        body = b"\n".join(
            b'{"value":{"type":"%s","data":%d}}' % (b"NONE" if n == 2 else b"JSON", n)
            for n in range(5)
        )
        reply = await rest.send("POST", f"{TOPICS}/flights/records", body)
        assert reply.status_code == 200
        return reports(reply.text)

    found = with_rest(work)
    assert [row["error_code"] for row in found] == [200, 200, 422, 200, 200]
    assert [row.get("offset") for row in found] == [0, 1, None, 2, 3]


def reports(text: str) -> list[Any]:
    """The reports of a stream."""
    import json

    return [json.loads(line) for line in text.split("\r\n") if line]


def test_a_stream_has_its_reports_while_it_goes_on() -> None:
    """The client sends a record only when it has read the report of the one before."""

    async def work(rest: Rest) -> list[int]:
        import asyncio

        offsets: list[int] = []
        arrived = asyncio.Event()

        async def pieces() -> Any:
            for n in range(4):
                yield b'{"value":{"type":"JSON","data":%d}}' % n
                await arrived.wait()
                arrived.clear()

        messages = pieces()
        scope_headers = [(b"host", b"localhost"), (b"content-type", b"application/json"),
                         (b"transfer-encoding", b"chunked")]  # fmt: skip
        path = f"{TOPICS}/flights/records"
        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
            "headers": scope_headers, "query_string": b"", "scheme": "http", "root_path": "",
            "server": ("localhost", 8082), "client": ("127.0.0.1", 1),
        }  # fmt: skip

        async def receive() -> Any:
            body = await anext(messages, None)
            return {"type": "http.request", "body": body or b"", "more_body": body is not None}

        async def send(message: Any) -> None:
            for row in reports(message.get("body", b"").decode()):
                offsets.append(row["offset"])
                arrived.set()

        async with asyncio.timeout(10):
            await rest.gateway.app(scope, receive, send)
        return offsets

    assert with_rest(work) == [0, 1, 2, 3]


def test_a_stream_that_breaks_ends_with_why() -> None:
    async def work(rest: Rest) -> list[Any]:
        body = b'{"value":{"type":"JSON","data":1}}{"value":{"type":"JSON","data":2}} oops'
        return reports((await rest.send("POST", f"{TOPICS}/flights/records", body)).text)

    found = with_rest(work)
    assert [row["error_code"] for row in found] == [200, 200, 400]


def test_a_batch() -> None:
    async def work(rest: Rest) -> None:
        path = f"{TOPICS}/flights/records:batch"
        rows = [
            {"id": "a", "value": {"type": "JSON", "data": 1}},
            {"id": "b", "value": {"type": "BINARY", "data": 1}},
        ]
        reply = await rest.send("POST", path, {"entries": rows})
        assert reply.status_code == 207
        document = reply.json()
        assert [row["id"] for row in document["successes"]] == ["a"]
        assert [row["error_code"] for row in document["failures"]] == [42206]
        same = [{"id": "a"}, {"id": "a"}]
        for entries in ([], same, [{"id": ""}]):
            assert await rest.ask("POST", path, {"entries": entries}) == [422, 42208]

    with_rest(work)
