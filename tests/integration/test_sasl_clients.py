"""Stock clients log in to a SASL_PLAINTEXT listener; Kafka's own tool makes the SCRAM users."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

from headwater.client.blocking.connection import BlockingConnection
from headwater.client.connection import open_connection
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.credentials import SaslExchange
from headwater.security.scram_exchange import ScramExchange
from integration.cluster import LocalCluster
from integration.jvm_tools import kafka_tool

pytestmark = pytest.mark.integration

PORT = 32_000
SASL = "127.0.0.1:32090"
MODULES = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "s3cret=3D"
LISTENERS = f"PLAINTEXT://127.0.0.1:{PORT},SASL_PLAINTEXT://{SASL}"
REFUSALS = ("uthenticat", "NoBrokersAvailable", "Unable to bootstrap")
"""What clients say of a refused login."""
PREFIX = "listener.name.sasl_plaintext"
PROPERTIES = {
    "listeners": LISTENERS,
    "advertised.listeners": LISTENERS,
    f"{PREFIX}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
    f"{PREFIX}.plain.sasl.jaas.config": (
        f'{MODULES}.plain.PlainLoginModule required user_alice="{PASSWORD}";'
    ),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("sasl")
    with LocalCluster(folder, PORT, brokers=1, properties=PROPERTIES) as running:
        running.create_topic("t", partitions=1)
        rows = f"SCRAM-SHA-256=[iterations=8192,password={PASSWORD}]"
        users(running, "--alter", "--add-config", rows)
        users(running, "--alter", "--add-config", f"SCRAM-SHA-512=[password={PASSWORD}]")
        yield running


def users(cluster: LocalCluster, *arguments: str) -> str:
    user = ("--entity-type", "users", "--entity-name", "alice")
    server = ("--bootstrap-server", cluster.bootstrap)
    return kafka_tool("kafka.admin.ConfigCommand", *server, *user, *arguments)


def librdkafka(mechanism: str, password: str) -> int:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": SASL,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
            "error_cb": lambda error: None,
            "log_level": 0,
        }
    )
    producer.produce("t", b"x")
    return 1 - int(producer.flush(10 if password == PASSWORD else 1))


def kafka_python(mechanism: str, password: str) -> int:
    producer = kafka.KafkaProducer(
        bootstrap_servers=SASL,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=password,
        # It tries a wrong password for as long.
        bootstrap_timeout_ms=10_000 if password == PASSWORD else 1_000,
    )
    producer.send("t", b"x").get(10)
    producer.close()
    return 1


def aio(mechanism: str, password: str) -> int:
    async def run() -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=SASL,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
        )
        try:
            await producer.start()
            await producer.send_and_wait("t", b"x")
        finally:
            await producer.stop()
        return 1

    return asyncio.run(run())


def java(mechanism: str, password: str, folder: Path) -> int:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    config = folder / "client.properties"
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={MODULES}.{module} required username="alice" password="{password}";\n'
    )
    told = kafka_tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", SASL, "--command-config", str(config), "--list"),
    )
    return int("t" in told.split())


@pytest.mark.parametrize(
    ("client", "mechanism"),
    [
        pytest.param(c, m, marks=pytest.mark.long if c == "java" and m != MECHANISMS[-1] else ())
        for c in ("librdkafka", "kafka_python", "aio", "java")
        for m in MECHANISMS
    ],
)
def test_a_stock_client_logs_in_with_the_right_password_only(
    cluster: LocalCluster, tmp_path: Path, mechanism: str, client: str
) -> None:
    def login(password: str) -> int:
        if client == "java":
            return java(mechanism, password, tmp_path)
        return int(
            {"librdkafka": librdkafka, "kafka_python": kafka_python, "aio": aio}[client](
                mechanism, password
            )
        )

    assert login(PASSWORD) == 1
    try:
        logged_in = login("wrong")
    except Exception as error:  # noqa: BLE001 (each client has its own)
        assert any(words in repr(error) for words in REFUSALS), error
        logged_in = 0
    assert logged_in == 0


def test_kafka_configs_describes_and_removes_a_user_while_brokers_run(
    cluster: LocalCluster,
) -> None:
    assert "SCRAM-SHA-256=iterations=8192" in users(cluster, "--describe")
    own_clients(PASSWORD)
    users(cluster, "--alter", "--delete-config", "SCRAM-SHA-512")
    try:
        with pytest.raises(KafkaError) as caught:
            own_clients(PASSWORD)
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    finally:
        users(cluster, "--alter", "--add-config", f"SCRAM-SHA-512=[password={PASSWORD}]")
    own_clients(PASSWORD)


class Alice:
    def __init__(self, password: str) -> None:
        self._password = password

    def tls(self) -> None: ...

    def sasl(self, host: str) -> SaslExchange:
        return ScramExchange("SCRAM-SHA-512", "alice", self._password)


def own_clients(password: str) -> None:
    """Headwater's two kinds of connections."""
    host, _, port = SASL.partition(":")
    credentials = Alice(password)
    BlockingConnection(
        host, int(port), client_id="c", timeout_s=10, credentials=credentials
    ).close()

    async def run() -> None:
        (await open_connection(host, int(port), credentials=credentials)).close()

    asyncio.run(run())


def test_no_password_is_in_the_logs(cluster: LocalCluster) -> None:
    assert PASSWORD not in cluster.log_text(0)
