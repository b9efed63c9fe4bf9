"""A broker with SSL: librdkafka, Java's console tools and our SDK's connection, with certificates.

`alice` has a certificate; who shows none is turned away.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.jvm_tools import kafka_tool
from tls_authority import PASSWORD, Authority

pytestmark = pytest.mark.integration

WAIT_S = 20.0
QUIET = logging.getLogger("tests.refused")
QUIET.setLevel(logging.CRITICAL)


class SecureBroker:
    """A cluster of one broker, and the files of its clients."""

    def __init__(self, folder: Path) -> None:
        authority, port = Authority(), next_base_port(folder)
        self.folder = folder
        self.authority = authority
        self.ssl = f"localhost:{port + 50}"
        (folder / "ca.pem").write_text(authority.pem)
        (folder / "trust.p12").write_bytes(authority.java_truststore)
        (folder / "broker.p12").write_bytes(authority.leaf().pkcs12)
        (folder / "alice.p12").write_bytes(authority.leaf("alice", hosts=()).pkcs12)
        authority.leaf("alice", hosts=()).write(folder / "alice.pem")
        listeners = f"PLAINTEXT://127.0.0.1:{port},CLIENTS://{self.ssl}"
        self.cluster = LocalCluster(
            folder / "cluster",
            port,
            brokers=1,
            properties={
                "listeners": listeners,
                "advertised.listeners": listeners,
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SSL",
                "listener.name.clients.ssl.keystore.location": str(folder / "broker.p12"),
                "listener.name.clients.ssl.keystore.password": PASSWORD,
                "listener.name.clients.ssl.truststore.location": str(folder / "ca.pem"),
                "listener.name.clients.ssl.client.auth": "required",
                "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
            },
        )

    def librdkafka(self, *, with_certificate: bool = True) -> dict[str, str]:
        """The settings of a client of confluent-kafka."""
        own = {
            "ssl.certificate.location": str(self.folder / "alice.pem"),
            "ssl.key.location": str(self.folder / "alice.pem"),
        }
        return {
            "bootstrap.servers": self.ssl,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.folder / "ca.pem"),
            **(own if with_certificate else {}),
        }

    def java_file(self) -> str:
        """A properties file for Java's tools."""
        path = self.folder / "client.properties"
        path.write_text(
            "security.protocol=SSL\n"
            f"ssl.truststore.location={self.folder}/trust.p12\n"
            f"ssl.truststore.password={PASSWORD}\nssl.truststore.type=PKCS12\n"
            f"ssl.keystore.location={self.folder}/alice.p12\n"
            f"ssl.keystore.password={PASSWORD}\nssl.keystore.type=PKCS12\n"
            f"ssl.key.password={PASSWORD}\n"
        )
        return str(path)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    secure = SecureBroker(tmp_path_factory.mktemp("tls"))
    with secure.cluster:
        yield secure


def values_of(broker: SecureBroker, topic: str, count: int) -> list[bytes]:
    """The first `count` values of a topic, by librdkafka."""
    consumer = Consumer(
        {**broker.librdkafka(), "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    return values


def create(broker: SecureBroker, topic: str) -> None:
    admin = AdminClient(broker.librdkafka())
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)


def test_librdkafka_produces_and_consumes(broker: SecureBroker) -> None:
    create(broker, "by-librdkafka")
    producer = Producer({**broker.librdkafka(), "linger.ms": 5})
    sent = [b"%d" % number * 500 for number in range(2_000)]
    for value in sent:
        producer.produce("by-librdkafka", value)
    assert producer.flush(WAIT_S) == 0
    assert values_of(broker, "by-librdkafka", len(sent)) == sent


def test_java_s_console_tools_produce_and_consume(broker: SecureBroker) -> None:
    create(broker, "by-java")
    file = broker.java_file()
    lines = "".join(f"line {number}\n" for number in range(100))
    kafka_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", broker.ssl, "--topic", "by-java", "--command-config", file),
        stdin=lines,
    )
    shown = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.ssl, "--topic", "by-java", "--command-config", file),
        *("--from-beginning", "--max-messages", "100", "--timeout-ms", "20000"),
    )
    assert shown == lines


def test_without_a_certificate_nobody_is_let_in(broker: SecureBroker) -> None:
    admin = AdminClient({**broker.librdkafka(with_certificate=False), "logger": QUIET})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def test_plaintext_is_refused_on_the_port_of_tls(broker: SecureBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.ssl, "logger": QUIET})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ssl.keystore.location": "/no/such.pem"}, "/no/such.pem: No such file"),
        ({}, "ssl.keystore.location: not set"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "no security protocol"),
    ],
)
def test_a_bad_configuration_ends_the_start_with_one_line(
    broker: SecureBroker, change: dict[str, str], told: str, tmp_path: Path
) -> None:
    rows = {
        "broker.id": "7",
        "log.dirs": str(tmp_path),
        "zookeeper.connect": broker.cluster.zookeeper,
        "listeners": "SSL://127.0.0.1:0",
        **change,
    }
    settings = [part for key, value in rows.items() for part in ("--set", f"{key}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "headwater_broker", *settings],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    *_, last = done.stderr.strip().splitlines()
    assert last.startswith("headwater_broker: ")
    assert told in last
    assert "Traceback" not in done.stderr
