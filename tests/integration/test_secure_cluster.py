"""`headwater up --secure` as a user meets it: every connection encrypted, users, ACLs, no secret
outside of D/security and the brokers' own files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from headwater.local import cluster_file, processes
from headwater.local.zk_client import readable_znodes
from headwater.testing.secret_search import search, secrets_of

pytestmark = pytest.mark.integration

HEADWATER = str(Path(sys.executable).with_name("headwater"))
PASSWORD = "alice-has-this-password"
RECORDS = [b"one", b"two", b"three"]

Run = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "d"


@pytest.fixture
def run(folder: Path, free_base_port: int) -> Iterator[Run]:
    def command(*words: str, code: int = 0, stdin: str = "") -> Any:
        done = subprocess.run(
            [HEADWATER, *words, "--dir", str(folder), "--json"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            input=stdin,
        )
        assert done.returncode == code, f"{words}: {done.stdout}\n{done.stderr}"
        return json.loads(done.stdout) if code == 0 and done.stdout else done.stderr

    command("up", "--secure", "--brokers", "3", "--port", str(free_base_port))
    yield command
    command("down")
    assert processes.of_cluster(folder) == []


def login(folder: Path, user: str, password: str) -> dict[str, str]:
    """The properties of librdkafka for a user."""
    return {
        "bootstrap.servers": cluster_file.load(folder).bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(folder / "security" / "ca.pem"),
    }


def read_all(properties: dict[str, str]) -> list[bytes]:
    """The records of `flights`, by a member of the group g."""
    consumer = Consumer({**properties, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["flights"])
    found: list[bytes] = []
    try:
        for _ in range(60):
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append(message.value())
            if len(found) == len(RECORDS):
                break
    finally:
        consumer.close()
    return found


def test_a_secure_cluster_from_start_to_end(run: Run, folder: Path) -> None:
    run("topics", "create", "flights", "--partitions", "1", "--replication-factor", "3")
    secrets = {**secrets_of(folder), "alice's password": PASSWORD}
    admin = login(folder, "admin", secrets["the admin's password"])
    producer = Producer(admin)
    for value in RECORDS:
        producer.produce("flights", value)
    assert producer.flush(20) == 0
    run("users", "add", "alice", "--password-file", "-", stdin=PASSWORD + "\n")
    alice = login(folder, "alice", PASSWORD)
    own = folder.parent / "alice.properties"
    text = (folder / "security" / "client.properties").read_text()
    text = text.replace(secrets["the admin's password"], PASSWORD).replace('"admin"', '"alice"')
    own.write_text(text)
    assert run("topics", "list", "--command-config", str(own)) == []
    consumer = ("--allow-principal", "User:alice", "--consumer", "--topic", "flights")
    assert len(run("acls", "add", *consumer, "--group", "g")) == 3
    assert read_all(alice) == RECORDS
    token = run("tokens", "create")
    assert [row["token_id"] for row in run("tokens", "list")] == [token["token_id"]]
    (row,) = run("topics", "describe", "flights")[0]["partitions"]
    assert sorted(row["isr"]) == [0, 1, 2]
    run("cluster", "restart-broker", "1")
    log = (folder / "logs" / "supervisor.log").read_text()
    assert "broker-1 stopped" in log and "{" not in log
    refuse_plaintext(cluster_file.load(folder).bootstrap_servers)
    found, count = search(folder, {**secrets, "a token's HMAC": token["hmac"]})
    assert found == [] and count > 50
    readable = dict(readable_znodes(cluster_file.load(folder).zookeeper))
    assert b"stored_key" not in b"".join(readable.values())
    assert "/brokers/ids/0" in readable and "/config/users/admin" not in readable
    assert "/headwater/secrets/scram" not in readable
    refuse_strangers_nodes(cluster_file.load(folder).zookeeper)
    assert (folder / "conf" / "broker-0.properties").stat().st_mode & 0o077 == 0


def refuse_strangers_nodes(servers: str) -> None:
    """Who has no credentials puts nothing at ZooKeeper's root, and takes nothing away."""
    client = KazooClient(hosts=servers)
    client.start()
    try:
        for path in ("/controller", "/controller_epoch", "/latest_producer_id_block"):
            with pytest.raises(NoAuthError):
                client.delete(path)
        with pytest.raises(NoAuthError):
            client.create("/planted", b"")
    finally:
        client.stop()
        client.close()


def refuse_plaintext(servers: str) -> None:
    """A client without TLS learns nothing."""
    seen: list[object] = []
    client = Producer({"bootstrap.servers": servers, "error_cb": seen.append})
    with pytest.raises(Exception, match=r"Failed to get metadata|timed out|transport"):
        client.list_topics(timeout=3)
