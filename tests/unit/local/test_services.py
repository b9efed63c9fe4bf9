"""Processes beside the brokers: their options, their restart, their end."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from headwater.local.child import ChildFailedError
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.daemon import UpOptions, services_of
from headwater.local.secure_cluster import SecureCluster, listener_properties
from headwater.local.service_spec import TIERING, ServiceChoice, ServiceSpec
from headwater.local.services import COMMAND_CONFIG_VARIABLE, Services
from headwater.security.certificates import certificate_facts
from headwater.system import SystemClock, SystemEntropy

SCRIPT = """
import json, os, pathlib, sys
seen = {"args": sys.argv[1:], "config": os.environ["HEADWATER_COMMAND_CONFIG"]}
pathlib.Path(os.environ["HEADWATER_CLUSTER_DIR"], "seen.json").write_text(json.dumps(seen))
print(json.dumps({"ready": True}), flush=True)
sys.stdin.read()
"""


def service(name: str = "helper", code: str = SCRIPT, **fields: object) -> ServiceSpec:
    return ServiceSpec(name, (sys.executable, "-c", code), awaits_ready=True, **fields)  # type: ignore[arg-type]


def spec(folder: Path, *services: ServiceSpec, secure: bool = False) -> ClusterSpec:
    (folder / "logs").mkdir()
    properties = (("headwater.tables.uri", "s3://lake"), ("log.retention.ms", "5"))
    return ClusterSpec(
        folder, "cluster", 1, 25_000, properties=properties, secure=secure, services=services
    )


def test_a_service_gets_the_brokers_and_its_settings_and_no_file_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COMMAND_CONFIG_VARIABLE, "/home/me/other.properties")
    cluster = spec(
        tmp_path,
        service(
            settings_prefix="headwater.tables.", settings_option="--tables-config",
            takes_zookeeper=True,
        ),
    )  # fmt: skip
    services = Services(cluster, SystemClock(), properties={"headwater.tables.option.key": "s3cr"})
    services.start("h:1,h:2")
    try:
        [process] = services.processes()
        assert process.name == "helper" and process.alive()
        settings = tmp_path / "conf" / "helper.properties"
    finally:
        services.stop()
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["args"] == [
        "--bootstrap-server", "h:1,h:2",
        "--zookeeper", cluster.zookeeper,
        "--tables-config", str(settings),
    ]  # fmt: skip
    assert seen["config"] == ""
    assert settings.read_text().splitlines() == [
        "headwater.tables.option.key=s3cr",
        "headwater.tables.uri=s3://lake",
    ]
    assert os.stat(settings).st_mode & 0o077 == 0
    assert services.processes() == () and not process.alive()


def test_a_service_that_must_be_ready_and_fails_is_named_with_its_last_line(
    tmp_path: Path,
) -> None:
    services = Services(
        spec(tmp_path, service(code="import sys; sys.exit('no port is free')")), SystemClock()
    )
    with pytest.raises(ChildFailedError, match=r"helper exited with 1: no port is free"):
        services.start("h:1")
    services.stop()


def test_in_a_secure_cluster_a_service_logs_in_with_a_key_of_its_own(tmp_path: Path) -> None:
    cluster = spec(tmp_path, secure=True)
    security = SecureCluster(tmp_path, SystemClock(), SystemEntropy())
    security.prepare(cluster)
    path = security.service_properties(TIERING, cluster)
    rows = dict(line.split("=", 1) for line in path.read_text().splitlines())
    assert rows["security.protocol"] == "SSL"
    facts = certificate_facts(Path(rows["ssl.keystore.location"]).read_bytes())
    assert facts.subject == "CN=tiering" and os.stat(path).st_mode & 0o077 == 0
    listeners = listener_properties(cluster.slot(0))
    rules = listeners["listener.name.internal.ssl.principal.mapping.rules"]
    assert "RULE:^CN=(tiering|registry)$/$1/" in rules
    assert "User:tiering" in listeners["super.users"].split(";")
    assert cluster.internal_servers == f"127.0.0.1:{cluster.slot(0).internal_port}"


def test_up_runs_tiering_unless_it_is_turned_off() -> None:
    assert [s.name for s in services_of(ServiceChoice())] == [TIERING]
    assert services_of(ServiceChoice(tiering=False)) == ()


def test_up_runs_a_gateway_that_asks_the_registry_beside_it() -> None:
    chosen = ServiceChoice(tiering=False, registry_port=7081, gateway_port=7082)
    _registry, gateway = services_of(chosen)
    assert gateway.name == "gateway" and gateway.awaits_ready
    words = ("--listen", "127.0.0.1:7082", "--schema-registry", "http://127.0.0.1:7081")
    assert gateway.command[-4:] == words
    (alone,) = services_of(ServiceChoice(tiering=False, gateway_port=7082))
    assert "--schema-registry" not in alone.command


def test_tiering_asks_the_registry_beside_it() -> None:
    _registry, tiering = services_of(ServiceChoice(registry_port=7081))
    assert tiering.command[-2:] == ("--schema-registry", "http://127.0.0.1:7081")


def test_a_start_keeps_what_it_does_not_name() -> None:
    first = UpOptions("d", tiering=False, registry_port=7081, gateway_port=7082)
    kept = first.chosen(ServiceChoice())
    assert kept == ServiceChoice(tiering=False, registry_port=7081, gateway_port=7082)
    assert UpOptions("d").chosen(kept) == kept
    changed = UpOptions("d", tiering=True, registry_port=0, gateway_port=7083).chosen(kept)
    assert changed == ServiceChoice(tiering=True, gateway_port=7083)
