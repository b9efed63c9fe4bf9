"""A running `headwater up` becomes what `headwater up --secure` is, broker by broker, while clients
go on: the steps of docs/security.md, "From open to secure"."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from headwater.local import processes

pytestmark = [pytest.mark.integration, pytest.mark.long]

HEADWATER = str(Path(sys.executable).with_name("headwater"))
BROKERS = (0, 1)
INTERNAL_AT, MEANWHILE_AT = 400, 450
"""Ports of INTERNAL, as `up --secure` has it, and of SECURE while PLAINTEXT has the usual ones."""
TOPIC = "flights"
PASSWORDS = {"app": "password-of-app", "admin": "password-of-admin"}
FLUSH_S = 60.0
PAUSE_S = 0.01
INSIDE = "listener.name.internal."


class Cluster:
    """What an operator does: commands, files, restarts one by one."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port

    def run(self, *words: str, stdin: str = "") -> Any:
        """A command on this cluster; what it prints as JSON."""
        done = subprocess.run(
            [HEADWATER, *words, "--dir", str(self.folder), "--json"],
            capture_output=True, text=True, timeout=180, check=False, input=stdin,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return json.loads(done.stdout) if done.stdout else None

    def roll(self, rows: dict[str, str], login: tuple[str, ...] = ()) -> None:
        """Give each broker these properties of its own, and restart one after the other."""
        for number in BROKERS:
            text = "".join(f"{key}={value}\n" for key, value in rows.items())
            own = self.folder / "conf" / f"broker-{number}.own.properties"
            own.write_text(text.replace("<N>", str(number)).replace("<D>", str(self.folder)))
            for at in (0, INTERNAL_AT, MEANWHILE_AT):
                own.write_text(own.read_text().replace(f"<P+{at}>", str(self.port + at + number)))
            self.run("cluster", "restart-broker", str(number), *login)

    def servers(self, at: int = 0) -> str:
        """The bootstrap list."""
        return ",".join(f"127.0.0.1:{self.port + at + number}" for number in BROKERS)

    def login(self, user: str, at: int) -> dict[str, str]:
        """librdkafka's properties of a user, for SECURE."""
        return {
            "bootstrap.servers": self.servers(at),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
            "ssl.ca.location": str(self.folder / "security" / "ca.pem"),
        }


class Stream:
    """A producer that sends a number each 10 ms."""

    def __init__(self, settings: dict[str, str], begin: int) -> None:
        self.next = begin
        self.failed: list[str] = []
        self._producer = Producer({**settings, "acks": "all", "enable.idempotence": True})
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        def told(error: confluent_kafka.KafkaError | None, _message: object) -> None:
            if error is not None:
                self.failed.append(str(error))

        while not self._end.wait(PAUSE_S):
            self._producer.produce(TOPIC, str(self.next).encode(), partition=0, on_delivery=told)
            self._producer.poll(0)
            self.next += 1

    def stop(self) -> int:
        """End it; the number that comes next. All before it are written."""
        self._end.set()
        self._thread.join()
        assert self._producer.flush(FLUSH_S) == 0
        assert self.failed == []
        return self.next


@pytest.fixture
def cluster(tmp_path: Path, free_base_port: int) -> Iterator[Cluster]:
    one = Cluster(tmp_path / "d", free_base_port)
    one.run("up", "--brokers", str(len(BROKERS)), "--port", str(free_base_port))
    yield one
    one.run("down")
    assert processes.of_cluster(one.folder) == []


LISTENERS = "SECURE://127.0.0.1:<P+450>,INTERNAL://127.0.0.1:<P+400>"
ALL_LISTENERS = f"PLAINTEXT://127.0.0.1:<P+0>,{LISTENERS}"
KEYS = {
    "listeners": ALL_LISTENERS,
    "advertised.listeners": ALL_LISTENERS,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,INTERNAL:SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "ssl.keystore.location": "<D>/security/broker-<N>.pem",
    "ssl.truststore.location": "<D>/security/ca.pem",
    f"{INSIDE}ssl.client.auth": "required",
    f"{INSIDE}ssl.principal.mapping.rules": "RULE:^CN=broker-[0-9]+$/broker/",
}
INSIDE_BY_TLS = {**KEYS, "inter.broker.listener.name": "INTERNAL"}
WITH_RIGHTS = {
    **INSIDE_BY_TLS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker;User:admin",
    "allow.everyone.if.no.acl.found": "true",
}
LAST_LISTENERS = "SECURE://127.0.0.1:<P+0>,INTERNAL://127.0.0.1:<P+400>"
SECURE = {
    **WITH_RIGHTS,
    "listeners": LAST_LISTENERS,
    "advertised.listeners": LAST_LISTENERS,
    "listener.security.protocol.map": "SECURE:SASL_SSL,INTERNAL:SSL",
    "allow.everyone.if.no.acl.found": "false",
}


def test_a_running_cluster_becomes_secure_while_clients_go_on(cluster: Cluster) -> None:
    cluster.run("topics", "create", TOPIC, "--partitions", "1", "--replication-factor", "2")
    plain = Stream({"bootstrap.servers": cluster.servers()}, 0)
    cluster.run("certs", "create")
    for user, password in PASSWORDS.items():
        cluster.run("users", "add", user, "--password-file", "-", stdin=f"{password}\n")
    cluster.roll(KEYS)
    either = f"{cluster.servers(MEANWHILE_AT)},{cluster.servers()}"
    login = {**cluster.login("app", MEANWHILE_AT), "bootstrap.servers": either}
    moved = Stream(login, plain.stop())
    cluster.roll(INSIDE_BY_TLS)
    cluster.roll(WITH_RIGHTS)
    admin = write_admins_file(cluster, cluster.folder.parent / "admin.properties")
    rights = ("--allow-principal", "User:app", "--producer", "--topic", TOPIC)
    at = ("--bootstrap-server", cluster.servers(MEANWHILE_AT), "--command-config", str(admin))
    cluster.run("acls", "add", *rights, *at)
    cluster.roll(SECURE, ("--bootstrap-server", either, "--command-config", str(admin)))
    write_admins_file(cluster, cluster.folder / "security" / "client.properties")
    sent = moved.stop()
    assert read_all(cluster, sent) == [str(number) for number in range(sent)]
    refuse_strangers(cluster)
    cluster.run("down")
    for own in (cluster.folder / "conf").glob("*.own.properties"):
        own.unlink()
    cluster.run("up", "--secure")
    assert read_all(cluster, sent) == [str(number) for number in range(sent)]
    refuse_strangers(cluster)


def write_admins_file(cluster: Cluster, path: Path) -> Path:
    """The properties of the admin's commands; those in D/security are taken without being named."""
    path.touch(mode=0o600)
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="admin" password="{PASSWORDS["admin"]}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={cluster.folder}/security/ca.pem\n"
    )
    return path


def read_all(cluster: Cluster, count: int) -> list[str]:
    """The records of the topic, by the admin."""
    settings = {**cluster.login("admin", 0), "group.id": "g", "enable.auto.commit": "false"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    found: list[str] = []
    try:
        while len(found) < count and (batch := consumer.consume(1_000, FLUSH_S)):
            found += [m.value().decode() for m in batch if m.error() is None]
        found += [m.value().decode() for m in consumer.consume(1, 0.5) if m.error() is None]
    finally:
        consumer.close()
    return found


def refuse_strangers(cluster: Cluster) -> None:
    """Without TLS nothing is learned; app has the rights of its ACLs, and no more."""
    stranger = AdminClient({"bootstrap.servers": cluster.servers(), "log_level": 0})
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=3)
    app = AdminClient(cluster.login("app", 0))
    assert list(app.list_topics(timeout=20).topics) == [TOPIC]
    with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
        next(iter(app.create_topics([confluent_kafka.admin.NewTopic("t", 1)]).values())).result(20)
