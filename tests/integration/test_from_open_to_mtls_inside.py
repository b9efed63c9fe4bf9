"""Rolling restarts take the inside of a running cluster from PLAINTEXT to mTLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from blocking_control import ControlClient
from headwater import Producer
from headwater.local.data_folders import read_properties
from headwater.ports.control import ControlUnavailableError
from headwater.security.certificates import Subject, issue, new_authority
from headwater.system import SystemClock
from integration.cluster import LocalCluster
from integration.conftest import Start

pytestmark = pytest.mark.integration

BROKERS = (0, 1)
INTERNAL_AT = 400
TOPIC = "kept"
RULE = "RULE:^CN=broker-[0-9]+$/broker/"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def write_certificates(folder: Path) -> None:
    """`ca.pem` and `broker-N.pem`."""
    now_ms = SystemClock().now_ms()
    authority = new_authority("test", now_ms)
    (folder / "ca.pem").write_bytes(authority.certificate)
    for broker_id in BROKERS:
        pair = issue(authority, Subject(f"broker-{broker_id}", ("127.0.0.1",)), now_ms)
        (folder / f"broker-{broker_id}.pem").write_bytes(pair.key + pair.certificate)


def steps(folder: Path, port: int, broker_id: int) -> list[dict[str, str]]:
    """The properties that each rolling restart adds to a broker's file."""
    listeners = f"PLAINTEXT://127.0.0.1:{port},INTERNAL://127.0.0.1:{port + INTERNAL_AT}"
    return [
        {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.location": str(folder / f"broker-{broker_id}.pem"),
            "ssl.truststore.location": str(folder / "ca.pem"),
            "listener.name.internal.ssl.client.auth": "required",
            "listener.name.internal.ssl.principal.mapping.rules": RULE,
        },
        {"inter.broker.listener.name": "INTERNAL"},
        {"authorizer.class.name": AUTHORIZER, "super.users": "User:broker;User:ANONYMOUS"},
    ]


def restart_with(cluster: LocalCluster, broker_id: int, rows: dict[str, str]) -> None:
    cluster.stop_broker(broker_id)
    path = cluster.directory / "conf" / f"broker-{broker_id}.properties"
    merged = {**read_properties(path), **rows}
    path.write_text("".join(f"{key}={value}\n" for key, value in merged.items()))
    cluster.restart(broker_id)
    cluster.wait_isr(TOPIC, len(BROKERS))


def is_open(cluster: LocalCluster, broker_id: int) -> bool:
    """Whether the control port answers who shows nothing."""
    try:
        with ControlClient(cluster.spec.slot(broker_id).control_address) as client:
            client.status()
    except ControlUnavailableError:
        return False
    return True


def test_the_inside_turns_to_mtls_without_downtime(start_cluster: Start, tmp_path: Path) -> None:
    write_certificates(tmp_path)
    cluster = start_cluster(brokers=len(BROKERS))
    cluster.create_topic(TOPIC, replication_factor=len(BROKERS))
    rows = [steps(tmp_path, cluster.spec.slot(i).port, i) for i in BROKERS]
    sent = 0
    with Producer(cluster.bootstrap) as producer:
        for step in range(len(rows[0])):
            for broker_id in BROKERS:
                restart_with(cluster, broker_id, rows[broker_id][step])
                producer.send(TOPIC, value=str(sent).encode()).result(30)
                sent += 1
            assert [is_open(cluster, i) for i in BROKERS] == [step == 0] * len(BROKERS)
    assert sent == len(BROKERS) * 3
    status = cluster.status(0)
    assert all(row["control_address"].startswith("tls://") for row in status["brokers"])
