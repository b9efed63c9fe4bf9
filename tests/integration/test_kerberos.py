"""GSSAPI against a real Kerberos KDC of this machine: the SDK, Kafka's Java clients, a stranger.

Needs the packages krb5-kdc, krb5-admin-server and krb5-user, and Python's gssapi.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import kerberos_realm
from headwater import Admin, KafkaError, Producer
from integration.cluster import LocalCluster
from integration.jvm_tools import kafka_tool
from kerberos_realm import Realm

pytest.importorskip("gssapi", reason="Python's gssapi is not installed")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.integrations,
    pytest.mark.skipif(not kerberos_realm.IS_THERE, reason="no KDC: apt install krb5-kdc"),
]

PORT = 22_800
SASL_PORT = 22_890
KDC_PORT = 22_899
PRINCIPALS = ("kafka/localhost", "kafka/127.0.0.1", "alice", "mallory/admin")
LISTENER = "listener.name.sasl_plaintext."


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with kerberos_realm.started(tmp_path_factory.mktemp("kdc"), KDC_PORT, PRINCIPALS) as realm:
        yield realm


@pytest.fixture(scope="module")
def cluster(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    listeners = f"PLAINTEXT://127.0.0.1:{PORT},SASL_PLAINTEXT://localhost:{SASL_PORT}"
    properties = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        f"{LISTENER}sasl.enabled.mechanisms": "GSSAPI",
        f"{LISTENER}gssapi.sasl.jaas.config": realm.jaas("kafka/localhost"),
        "sasl.kerberos.service.name": "kafka",
    }
    folder = tmp_path_factory.mktemp("kerberos")
    with LocalCluster(folder, PORT, brokers=1, properties=properties) as running:
        running.create_topic("t", partitions=1)
        yield running


def options(realm: Realm, principal: str) -> dict[str, str]:
    return {
        "bootstrap_servers": f"localhost:{SASL_PORT}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "sasl_jaas_config": realm.jaas(principal),
    }


def test_a_ticket_logs_in_and_its_principal_gets_the_local_name(
    cluster: LocalCluster, realm: Realm
) -> None:
    with Producer(**options(realm, "alice")) as producer:
        producer.send("t", b"x").result(20)
    with Admin(**options(realm, "mallory/admin")) as admin:
        assert admin.list_topics() == ["t"]
    with pytest.raises(KafkaError, match="SASL"):
        Admin(**{**options(realm, "alice"), "sasl_mechanism": "PLAIN", "sasl_jaas_config":
                 'org.apache.kafka.common.security.plain.PlainLoginModule required '
                 'username="alice" password="x";'})  # fmt: skip


def test_javas_clients_log_in(cluster: LocalCluster, realm: Realm, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n"
        "sasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={realm.jaas('alice', is_java=True)}\n"
    )
    plaintext = ("--bootstrap-server", cluster.bootstrap)
    kafka_tool("kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics", *plaintext)
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Djava.security.krb5.conf={realm.folder}/krb5.conf"
    try:
        server = ("--bootstrap-server", f"localhost:{SASL_PORT}", "--command-config", str(config))
        listed = kafka_tool("org.apache.kafka.tools.TopicCommand", "--list", *server)
    finally:
        del os.environ["JAVA_TOOL_OPTIONS"]
    assert listed.split() == ["t"]
