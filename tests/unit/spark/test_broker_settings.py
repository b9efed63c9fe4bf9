"""What a broker under Spark is told, plain and secure, on one host and on several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwater.local.cluster_spec import ClusterSpec
from headwater.local.secure_cluster import SecureCluster
from headwater.system import SystemClock, SystemEntropy
from headwater_broker.app.config import from_properties
from headwater_spark.cluster.broker_files import BrokerFiles
from headwater_spark.cluster.broker_settings import BrokerSettings
from headwater_spark.cluster.executor_host import ExecutorHost

ZOOKEEPER = "zk:2181/headwater"


@pytest.fixture
def spec(tmp_path: Path) -> ClusterSpec:
    return ClusterSpec(tmp_path / "d", "cluster", brokers=2, base_port=20_500, secure=True)


def secured(spec: ClusterSpec) -> SecureCluster:
    made = SecureCluster(spec.directory, SystemClock(), SystemEntropy())
    made.prepare(spec, leaves=False)
    return made


def test_a_secure_broker_on_another_machine(spec: ClusterSpec) -> None:
    settings = BrokerSettings(ZOOKEEPER, {"num.partitions": "7"}, secured(spec), one_host=False)
    rows = settings.rows(spec, spec.slot(1))
    assert rows["listeners"] == "SECURE://0.0.0.0:20501,INTERNAL://0.0.0.0:20901"
    assert rows["advertised.listeners"] == "SECURE://{host}:20501,INTERNAL://{host}:20901"
    assert rows["control.advertised.listener"] == "{host}:20601"
    assert rows["status.listener"] == "127.0.0.1:20701", "it has no login"
    assert rows["zookeeper.connect"] == ZOOKEEPER
    assert rows["num.partitions"] == "7"
    folder = spec.directory / "security" / "broker-1"
    assert rows["ssl.keystore.location"] == str(folder / "keystore.pem")
    assert rows["ssl.truststore.location"] == str(folder / "truststore.pem")
    assert rows["headwater.zookeeper.digest"].startswith("broker:")


def test_a_secure_broker_on_the_drivers_machine(spec: ClusterSpec) -> None:
    rows = BrokerSettings(ZOOKEEPER, {}, secured(spec), one_host=True).rows(spec, spec.slot(0))
    assert rows["listeners"] == "SECURE://127.0.0.1:20500,INTERNAL://127.0.0.1:20900"
    assert from_properties(rows)


@pytest.mark.parametrize(("one_host", "host"), [(True, "127.0.0.1"), (False, "10.0.0.7")])
def test_a_certificate_names_the_host_where_the_broker_listens(
    spec: ClusterSpec, one_host: bool, host: str
) -> None:
    settings = BrokerSettings(ZOOKEEPER, {}, secured(spec), one_host=one_host)
    assert settings.host_of(spec.slot(0), "10.0.0.7") == host


def test_a_plain_broker_has_no_security(spec: ClusterSpec) -> None:
    plain = replace(spec, secure=False)
    rows = BrokerSettings(ZOOKEEPER, {}, None, one_host=False).rows(plain, plain.slot(0))
    assert rows["listeners"] == "PLAINTEXT://0.0.0.0:20500"
    assert not [key for key in rows if key.startswith(("ssl.", "sasl."))]


def test_the_task_fills_in_its_host_and_only_the_owner_reads(tmp_path: Path) -> None:
    d = tmp_path / "d"
    data = tmp_path / "disk" / "broker-0"
    data.mkdir(parents=True)
    config = d / "conf" / "broker-0.properties"
    files = BrokerFiles("broker-0", config, d / "security" / "broker-0")
    rows = [("advertised.listeners", "SECURE://{host}:1"), ("broker.rack", "{rack}")]
    files.write_config([*rows, ("log.dirs", str(data))], ExecutorHost("10.0.0.7", "r1"))
    assert config.read_text().splitlines()[:2] == [
        "advertised.listeners=SECURE://10.0.0.7:1",
        "broker.rack=r1",
    ]
    assert config.stat().st_mode & 0o777 == 0o600
    assert [p.stat().st_mode & 0o777 for p in (d, data)] == [0o700, 0o700]
