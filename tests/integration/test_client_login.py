"""The SDK, the command line and blocking clients log in to Apache Kafka by PLAIN and SCRAM."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers import KafkaPeer, kafka_tool

from headwater import Admin, Consumer, KafkaError, Producer
from headwater.client.blocking.record_client import RecordClient
from headwater.client.values import NewTopic
from headwater.errors import ErrorCode
from headwater.security.client_security import credentials_of

pytestmark = pytest.mark.integration

PASSWORD = "blue-Horse-9"
MODULES = "org.apache.kafka.common.security"
LISTENER = "listener.name.plaintext."
BROKER = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    f"{LISTENER}plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required "
    f'username="admin" password="{PASSWORD}" user_admin="{PASSWORD}";',
    f"{LISTENER}scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
}
PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "admin",
    "sasl.password": PASSWORD,
}
SCRAM = {**PLAIN, "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "writer"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    peer = KafkaPeer(tmp_path_factory.mktemp("secured") / "kafka", properties=BROKER).start()
    try:
        with Admin(peer.bootstrap, **keywords(PLAIN)) as admin:
            admin.create_topics([NewTopic("orders", 1, 1)])
        add_scram_user(peer)
        yield peer
    finally:
        peer.stop()


def keywords(properties: dict[str, str]) -> dict[str, str]:
    return {name.replace(".", "_"): text for name, text in properties.items()}


def add_scram_user(peer: KafkaPeer) -> None:
    file = peer.folder / "admin.properties"
    file.write_text("".join(f"{k}={v}\n" for k, v in java_form(PLAIN).items()))
    kafka_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", peer.bootstrap, "--command-config", str(file), "--alter"),
        *("--add-config", f"SCRAM-SHA-512=[password={PASSWORD}]"),
        *("--entity-type", "users", "--entity-name", "writer"),
    )


def java_form(properties: dict[str, str]) -> dict[str, str]:
    user, word = properties["sasl.username"], properties["sasl.password"]
    line = f'{MODULES}.plain.PlainLoginModule required username="{user}" password="{word}";'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": line,
    }


@pytest.mark.parametrize("login", [PLAIN, SCRAM], ids=["PLAIN", "SCRAM"])
def test_the_sdk_and_blocking_clients_log_in(kafka: KafkaPeer, login: dict[str, str]) -> None:
    value = login["sasl.mechanism"].encode()
    with Producer(kafka.bootstrap, **keywords(login)) as producer:
        offset = producer.send("orders", value).result(30).offset
    with Consumer(bootstrap_servers=kafka.bootstrap, **keywords(login)) as consumer:
        consumer.assign([("orders", 0)])
        consumer.seek(("orders", 0), offset)
        (rows,) = consumer.poll(10_000).values()
        assert rows[0].value == value
    with RecordClient(kafka.bootstrap, credentials=credentials_of(login)) as client:
        assert client.fetch_batches("orders", 0, offset).next_offset == offset + 1


def test_a_wrong_password_is_refused_at_once_and_not_shown(kafka: KafkaPeer) -> None:
    for login in (PLAIN, SCRAM):
        wrong = {**login, "sasl.password": "wrong-Horse"}
        with pytest.raises(KafkaError) as error:
            Admin(kafka.bootstrap, **keywords(wrong))
        assert error.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "wrong-Horse" not in str(error.value)


def test_the_command_line_takes_the_file_of_kafkas_tools(kafka: KafkaPeer, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{k}={v}\n" for k, v in java_form(PLAIN).items()))
    servers = ("--bootstrap-server", kafka.bootstrap)
    config = ("--command-config", str(file))
    assert "orders" in headwater("topics", "list", *servers, *config).stdout
    sent = headwater("produce", "orders", "v", *servers, "--producer.config", str(file))
    assert sent.returncode == 0, sent.stderr
    named = {**os.environ, "HEADWATER_COMMAND_CONFIG": str(file)}
    read = headwater("consume", "orders", "--from-beginning", "--exit-at-end", *servers, env=named)
    assert "v" in read.stdout.split(), read.stderr


def headwater(
    *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    code = "import sys; from headwater.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
