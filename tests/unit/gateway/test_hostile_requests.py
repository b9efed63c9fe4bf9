"""Requests as a stranger sends them: none shows a fault of ours, none leaves the gateway worse."""

from __future__ import annotations

import json
import logging
import random
from typing import Any

import pytest

from unit.gateway.memory_cluster import MemoryCluster
from unit.gateway.rest_gateways import CLUSTER, Rest, SpiedRegistry, with_rest

REQUESTS = 1_200
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
PATHS = (
    "/", "/brokers", "/topics", "/topics/{}", "/topics/{}/partitions",
    "/topics/{}/partitions/{}", "/topics/{}/partitions/{}/offsets", "/consumers/{}",
    "/consumers/{}/instances/{}", "/consumers/{}/instances/{}/records",
    "/consumers/{}/instances/{}/subscription", "/consumers/{}/instances/{}/assignments",
    "/consumers/{}/instances/{}/positions", "/consumers/{}/instances/{}/positions/end",
    "/consumers/{}/instances/{}/offsets", "/v3/clusters", CLUSTER, f"{CLUSTER}/topics",
    f"{CLUSTER}/topics/{{}}", f"{CLUSTER}/topics/{{}}/configs:alter",
    f"{CLUSTER}/topics/{{}}/configs/{{}}", f"{CLUSTER}/topics/{{}}/records",
    f"{CLUSTER}/topics/{{}}/records:batch", f"{CLUSTER}/topics/{{}}/partitions/{{}}/replicas",
    f"{CLUSTER}/acls", f"{CLUSTER}/acls:batch", f"{CLUSTER}/consumer-groups/{{}}/lags",
    f"{CLUSTER}/consumer-groups/{{}}/consumers/{{}}/assignments", f"{CLUSTER}/broker-configs/{{}}",
    f"{CLUSTER}/brokers/{{}}/configs", "/kafka/v3/clusters/{}", "/console/", "/nothing/{}",
)  # fmt: skip
NAMES = ("flights", "g", "one", "0", "-1", "99999999999", "%00", "%ff", "%2e%2e%2f", "%0d%0aX:1",
         "a%2Fb", "%F0%9F%98%80", "x" * 300, "<script>", "'\"", "%25", "%e2%80%ae")  # fmt: skip
KINDS = ("application/json", "application/vnd.kafka.json.v2+json",
         "application/vnd.kafka.binary.v2+json", "application/vnd.kafka.avro.v2+json",
         "application/vnd.kafka.protobuf.v2+json", "application/vnd.kafka.jsonschema.v2+json",
         "application/vnd.kafka.v2+json", "text/plain", "")  # fmt: skip
FIELDS = ("records", "value", "key", "partition", "topics", "topic_pattern", "partitions",
          "offsets", "topic", "offset", "name", "format", "data", "type", "schema", "schema_id",
          "value_schema", "value_schema_id", "headers", "timestamp", "topic_name", "configs",
          "replicas_assignments", "validate_only", "entries", "id", "operation", "subject",
          "resource_type", "auto.offset.reset", "partitions_count", "partition_id")  # fmt: skip
LEAVES = (None, True, 0, -1, 2**63, 2**200, 1.5, 1e308, "", "flights", "\ud800", "\x00", "json",
          "BINARY", "JSON", "AVRO", "YQ==", "(", "{}", '{"type":"int"}', "SET", "TOPIC", "latest",
          "2026-01-01T00:00:00Z", "9" * 50)  # fmt: skip
RAW = (b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 5_000, b'{"a":' * 5_000, b"NaN", b"1e999",
       b'{"records":[{"value":NaN}]}', b"{}" * 50, b'{"a":1}' + b"\x00", b" " * 1_000,
       b"9" * 5_000, b'"\\ud800"', b"{}{}{]")  # fmt: skip


def made(rng: random.Random, depth: int = 0) -> Any:
    """A value with the fields that the routes know, in places where they do not belong."""
    roll = rng.random()
    if depth > 3 or roll < 0.35:
        return rng.choice(LEAVES)
    if roll < 0.55:
        return [made(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {rng.choice(FIELDS): made(rng, depth + 1) for _ in range(rng.randrange(1, 5))}


def drawn(rng: random.Random) -> dict[str, Any]:
    """A request."""
    path = rng.choice(PATHS)
    path = path.format(*(rng.choice(NAMES) for _ in range(path.count("{}"))))
    query = rng.choice(("", "?timeout=0", "?timeout=x&max_bytes=-1", "?max_bytes=" + "9" * 30,
                        "?operation=%00", "?timeout=0&max_bytes=1"))  # fmt: skip
    headers = {"Content-Type": rng.choice(KINDS), "Accept": rng.choice(KINDS)}
    if rng.random() < 0.1:
        headers["Authorization"] = rng.choice(("Basic !", "Bearer \x7f", "Basic YQ==", "x" * 100))
    if rng.random() < 0.1:
        headers["Cookie"] = rng.choice(("headwater-session=x", "a=b; ;;=", "\x01" * 10))
    blob = rng.choice(RAW) if rng.random() < 0.3 else json.dumps(made(rng)).encode()
    method = rng.choice(METHODS)
    return {"method": method, "url": path + query, "headers": headers, "content": blob}


@pytest.mark.parametrize("seed", range(3))
def test_no_request_shows_a_fault(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(seed)
    caplog.set_level(logging.WARNING)

    async def work(rest: Rest) -> None:
        await rest.ask("POST", "/consumers/g", {"name": "one", "format": "json"})
        for _ in range(REQUESTS // 3):
            request = drawn(rng)
            reply = await rest.client.request(**request)
            assert reply.status_code < 500, (request, reply.text)
            assert "Traceback" not in reply.text
            if reply.status_code >= 400 and request["method"] != "HEAD":
                document = reply.json() if "console" not in request["url"] else {}
                assert set(document) in ({"error_code", "message"}, set()), request
        assert await rest.ask("GET", "/brokers") == {"brokers": [0]}

    cluster = MemoryCluster().create("flights", 2)
    with_rest(work, cluster, SpiedRegistry(), consumers_max=8)
    assert not [r for r in caplog.records if r.name.startswith("headwater_gateway.app")]


@pytest.mark.parametrize("size", [10 * 1024 * 1024, 33 * 1024 * 1024])
def test_large_bodies(size: int) -> None:
    async def work(rest: Rest) -> list[int]:
        body = b'{"records":[{"value":"' + b"x" * size + b'"}]}'
        kind = "application/vnd.kafka.json.v2+json"
        v2 = await rest.send("POST", "/topics/flights", body, kind)
        v3 = await rest.send("POST", f"{CLUSTER}/topics/flights/records", body)
        return [v2.status_code, v3.status_code]

    # v2's body has room for 32 MB, one record of v3's stream for 16 MB; the field is none of v3's.
    assert with_rest(work) == ([200, 200] if size < 16 * 1024 * 1024 else [413, 413])


def test_hostile_contents_come_back_as_they_were() -> None:
    texts = ["<script>alert(1)</script>", "\u202e\x00\x1b[31m", "</pre>", "=cmd|' /C calc'!A0"]

    async def work(rest: Rest) -> None:
        rows = [{"value": text} for text in texts]
        kind = "application/vnd.kafka.json.v2+json"
        await rest.ask("POST", "/topics/flights", {"records": rows}, kind)
        one = "/consumers/g/instances/one"
        await rest.ask("POST", "/consumers/g", {"name": "one", "format": "json",
                                                "auto.offset.reset": "earliest"})  # fmt: skip
        await rest.ask("POST", f"{one}/subscription", {"topics": ["flights"]})
        reply = await rest.client.get(f"{one}/records?timeout=0")
        assert [row["value"] for row in reply.json()] == texts
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["content-type"] == kind

    with_rest(work)
