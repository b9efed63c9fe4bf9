"""Brokers log in to each other by SASL; sessions of 2 s are renewed under load (KIP-368)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest

from headwater.client.admin.client import Admin
from headwater.client.admin.topics import NewTopic
from headwater.client.producer import Producer
from integration.cluster import LocalCluster

pytestmark = pytest.mark.integration

PORT = 32_030
SESSION_MS = 2_000
RUN_S = 3 * SESSION_MS / 1000
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.connections.max.reauth.ms": str(SESSION_MS),
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{MODULE} required username="broker" password="b-secret" '
        'user_broker="b-secret" user_alice="a-secret";'
    ),
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}


class SaslCluster(LocalCluster):
    """Its only listener has SASL."""

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        """As alice."""
        with Admin(
            self.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="alice",
            sasl_password="a-secret",
        ) as admin:
            yield admin


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("sasl-brokers")
    with SaslCluster(folder, PORT, brokers=2, properties=PROPERTIES) as running:
        yield running


def test_followers_replicate_and_clients_go_on_over_many_sessions(cluster: LocalCluster) -> None:
    with cluster.admin() as admin:
        admin.create_topics([NewTopic("t", 2, 2, {"min.insync.replicas": "2"})])
    cluster.wait_isr("t", 2)
    sent = [0, 0]
    threads = [
        threading.Thread(target=librdkafka, args=(cluster.bootstrap, sent)),
        threading.Thread(target=sdk, args=(cluster.bootstrap, sent)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert min(sent) > 10
    for partition in range(2):
        cluster.wait_isr("t", 2, partition)
    for broker_id in range(2):
        log = cluster.log_text(broker_id)
        assert "before authentication" not in log
        assert "failed authentication" not in log
        assert "secret" not in log


def librdkafka(bootstrap: str, sent: list[int]) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "a-secret",
        }
    )
    outcomes: list[object] = []
    until = time.monotonic() + RUN_S
    while time.monotonic() < until:
        producer.produce("t", b"x", callback=lambda error, _: outcomes.append(error))
        assert producer.flush(20) == 0
        assert not any(outcomes)
        sent[0] += 1
        time.sleep(0.05)


def sdk(bootstrap: str, sent: list[int]) -> None:
    with Producer(
        bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="a-secret",
    ) as producer:
        until = time.monotonic() + RUN_S
        while time.monotonic() < until:
            producer.send("t", b"x").result(20)
            sent[1] += 1
            time.sleep(0.05)
