"""`headwater gateway` before real brokers: REST and the registry in one process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from docs_pages import DOCS
from headwater import Consumer, Producer
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.registry_process import RegistryProcess, http_process

pytestmark = pytest.mark.integration

V2 = {"Content-Type": "application/vnd.kafka.v2+json"}
JSON_V2 = {"Content-Type": "application/vnd.kafka.json.v2+json"}
AVRO_V2 = {"Content-Type": "application/vnd.kafka.avro.v2+json"}
JSON = {"Content-Type": "application/json"}
FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": "int"}],
}
RECORDS = 300
LIMIT_S = 30
DRAIN_S = 9


def gateway_process(cluster: LocalCluster, log: Path, *options: str) -> Any:
    """A gateway of this cluster on a port of its own."""
    listen = f"127.0.0.1:{next_base_port(log.parent)}"
    words = ("gateway", "--bootstrap-server", cluster.bootstrap, "--listen", listen, *options)
    return http_process(words, log)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gateway") / "log"


@pytest.fixture(scope="module")
def gateway(shared_cluster: LocalCluster, log: Path) -> Iterator[RegistryProcess]:
    with gateway_process(shared_cluster, log, "--schema-registry") as process:
        yield process


@pytest.fixture
def client(gateway: RegistryProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, timeout=LIMIT_S) as client:
        yield client


def sent(reply: httpx.Response) -> Any:
    assert reply.is_success, reply.text
    return reply.json() if reply.content else None


def read_all(client: httpx.Client, path: str, count: int) -> list[Any]:
    """So many records of a consumer."""
    rows: list[Any] = []
    deadline = time.monotonic() + LIMIT_S
    while len(rows) < count:
        assert time.monotonic() < deadline, len(rows)
        rows += sent(client.get(f"{path}/records?timeout=500"))
    return rows


def test_two_consumers_of_a_group_read_what_was_produced(
    client: httpx.Client, shared_cluster: LocalCluster
) -> None:
    shared_cluster.create_topic("rest-records", partitions=4)
    rows = [{"key": n, "value": {"n": n}} for n in range(RECORDS)]
    body = json.dumps({"records": rows})
    report = sent(client.post("/topics/rest-records", content=body, headers=JSON_V2))
    assert {row["error_code"] for row in report["offsets"]} == {None}
    paths = []
    for name in ("one", "two"):
        made = client.post("/consumers/rest-group", headers=V2, json={
            "name": name, "format": "json", "auto.offset.reset": "earliest"})  # fmt: skip
        paths.append(sent(made)["base_uri"])
        sent(
            client.post(f"{paths[-1]}/subscription", headers=V2, json={"topics": ["rest-records"]})
        )
    found: list[int] = []
    deadline = time.monotonic() + LIMIT_S
    while len(set(found)) < RECORDS:
        assert time.monotonic() < deadline, len(found)
        for path in paths:
            found += [row["value"]["n"] for row in sent(client.get(f"{path}/records?timeout=200"))]
    assert set(found) == set(range(RECORDS))
    cluster_id = sent(client.get("/v3/clusters"))["data"][0]["cluster_id"]
    group = f"/v3/clusters/{cluster_id}/consumer-groups/rest-group"
    assert len(sent(client.get(f"{group}/consumers"))["data"]) == 2
    for path in paths:
        sent(client.post(f"{path}/offsets", headers=V2))
    assert sent(client.get(f"{group}/lag-summary"))["total_lag"] == 0
    for path in paths:
        sent(client.delete(path))
    assert sent(client.get(group))["state"] == "EMPTY"


def test_a_stream_of_records_has_ordered_reports(
    client: httpx.Client, shared_cluster: LocalCluster
) -> None:
    shared_cluster.create_topic("rest-stream", partitions=2)
    cluster_id = sent(client.get("/v3/clusters"))["data"][0]["cluster_id"]

    def pieces() -> Iterator[bytes]:
        for n in range(RECORDS):
            row = {"partition_id": n % 2, "value": {"type": "STRING", "data": str(n)}}
            yield json.dumps(row).encode()

    path = f"/v3/clusters/{cluster_id}/topics/rest-stream/records"
    reply = client.post(path, content=pieces(), headers=JSON)
    reports = [json.loads(line) for line in reply.text.splitlines()]
    at = [(row["partition_id"], row["offset"]) for row in reports]
    assert at == [(n % 2, n // 2) for n in range(RECORDS)]
    with Consumer(bootstrap_servers=shared_cluster.bootstrap, auto_offset_reset="earliest") as c:
        c.assign([("rest-stream", 0), ("rest-stream", 1)])
        rows = [next(iter(c)) for _ in range(RECORDS)]
    assert {row.value for row in rows} == {str(n).encode() for n in range(RECORDS)}


def test_avro_records_are_those_of_confluents_clients(
    client: httpx.Client, gateway: RegistryProcess, shared_cluster: LocalCluster
) -> None:
    shared_cluster.create_topic("rest-avro")
    row = {"carrier": "UA", "delay": 11}
    body = {"value_schema": json.dumps(FLIGHT), "records": [{"value": row}]}
    sent(client.post("/topics/rest-avro", content=json.dumps(body), headers=AVRO_V2))
    with Consumer(bootstrap_servers=shared_cluster.bootstrap, auto_offset_reset="earliest") as c:
        c.assign([("rest-avro", 0)])
        blob = next(iter(c)).value
    registry = SchemaRegistryClient({"url": gateway.url})
    where = SerializationContext("rest-avro", MessageField.VALUE)
    assert AvroDeserializer(registry)(blob, where) == row
    made = client.post("/consumers/rest-avro-group", headers=V2, json={
        "name": "one", "format": "avro", "auto.offset.reset": "earliest"})  # fmt: skip
    path = sent(made)["base_uri"]
    sent(client.post(f"{path}/subscription", headers=V2, json={"topics": ["rest-avro"]}))
    assert [r["value"] for r in read_all(client, path, 1)] == [row]
    sent(client.delete(path))


def test_the_pages_curl_examples_run(gateway: RegistryProcess, tmp_path: Path) -> None:
    """Each block of docs/rest.md that calls curl, in order, in one shell."""
    page = (DOCS / "rest.md").read_text()
    blocks = [b for b in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "curl" in b]
    assert len(blocks) >= 4
    script = "\n".join(["set -eu", 'curl() { command curl -sS --fail-with-body "$@"; echo; }',
                        *blocks])  # fmt: skip
    script = script.replace("http://127.0.0.1:8082", gateway.url)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120,
                          cwd=tmp_path, check=False)  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert '"value":{"delay":' in done.stdout  # of the broker that answers first
    assert '"error_code":200' in done.stdout


def test_at_its_end_consumers_leave_and_streams_are_cut(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    shared_cluster.create_topic("rest-end")
    with gateway_process(shared_cluster, tmp_path / "log") as process:
        with httpx.Client(base_url=process.url, timeout=LIMIT_S) as client:
            made = client.post("/consumers/rest-end-group", headers=V2, json={"format": "json"})
            path = sent(made)["base_uri"]
            sent(client.post(f"{path}/subscription", headers=V2, json={"topics": ["rest-end"]}))
            sent(client.get(f"{path}/records?timeout=3000"))
            group = {"rest-end-group"}
            with shared_cluster.admin() as admin:
                assert admin.describe_groups(group)["rest-end-group"].members
        started = time.monotonic()
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(DRAIN_S) == 0
        assert time.monotonic() - started < DRAIN_S
    with shared_cluster.admin() as admin:
        assert admin.describe_groups(group)["rest-end-group"].members == ()


def test_nothing_went_wrong_unseen(gateway: RegistryProcess, log: Path, client: httpx.Client,
                                   shared_cluster: LocalCluster) -> None:  # fmt: skip
    """The log has audit lines, no traceback; what a client sent is in no line."""
    shared_cluster.create_topic("rest-log")
    body = json.dumps({"records": [{"value": "a-secret-value"}]})
    sent(client.post("/topics/rest-log", content=body, headers=JSON_V2))
    text = log.read_text()
    assert "POST /topics/rest-log from host = 127.0.0.1: HTTP 200" in text
    assert "a-secret-value" not in text
    assert "Traceback" not in text


def test_records_of_the_sdk_are_read_as_binary(
    client: httpx.Client, shared_cluster: LocalCluster
) -> None:
    shared_cluster.create_topic("rest-binary")
    with Producer(shared_cluster.bootstrap) as producer:
        producer.send("rest-binary", b"\x00\xff", b"key").result()
    made = client.post("/consumers/rest-binary-group", headers=V2, json={
        "format": "binary", "auto.offset.reset": "earliest"})  # fmt: skip
    path = sent(made)["base_uri"]
    partitions = {"partitions": [{"topic": "rest-binary", "partition": 0}]}
    sent(client.post(f"{path}/assignments", headers=V2, json=partitions))
    (row,) = read_all(client, path, 1)
    assert [row["key"], row["value"]] == ["a2V5", "AP8="]
    sent(client.delete(path))
