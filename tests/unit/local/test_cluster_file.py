"""cluster.json, the lock on the folder, and which cluster a folder holds."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import UsageError
from headwater.local import cluster_file
from headwater.local.cluster_file import ClusterFile, ClusterRecord, DirectoryLock, of_spec, resolve
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.manager import ManagerState, Progress
from headwater.local.processes import ProcessRef
from headwater.local.service_spec import ServiceChoice
from headwater.local.supervisor import broker_properties
from headwater.system import SystemEntropy
from headwater_broker.app.config import from_properties


def saved(directory: Path, brokers: int = 3, base_port: int = 9092) -> ClusterFile:
    cluster = of_spec(ClusterSpec(directory, "abc", brokers, base_port))
    cluster_file.save(directory, cluster)
    return cluster


def test_the_file_round_trips(tmp_path: Path) -> None:
    cluster = ClusterFile(
        cluster_id="abc",
        brokers=2,
        base_port=9092,
        control_addresses=("127.0.0.1:9192", "127.0.0.1:9193"),
        manager=ProcessRef.of("supervisor", os.getpid()),
        processes=(ProcessRef("zookeeper", 1, 2.0),),
        services=ServiceChoice(tiering=False, gateway_port=7082),
    )
    cluster_file.save(tmp_path, cluster)
    assert cluster_file.load(tmp_path) == cluster
    assert cluster.running


def test_a_later_start_has_the_services_of_the_file(tmp_path: Path) -> None:
    chosen = ServiceChoice(tiering=False, registry_port=7081, gateway_port=7082)
    first = replace(ClusterSpec(tmp_path, "abc"), chosen=chosen)
    cluster_file.save(tmp_path, of_spec(first))
    assert resolve(tmp_path, None, None, SystemEntropy()).chosen == chosen


def test_a_file_of_before_services_were_kept_has_tiering_alone(tmp_path: Path) -> None:
    cluster_file.save(tmp_path, of_spec(ClusterSpec(tmp_path, "abc")))
    path = tmp_path / cluster_file.FILE_NAME
    document = json.loads(path.read_text())
    del document["services"]
    path.write_text(json.dumps(document))
    assert resolve(tmp_path, None, None, SystemEntropy()).chosen == ServiceChoice()


class Running:
    """A manager whose brokers moved to other ports."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec

    def start(self, progress: Progress) -> None:
        raise NotImplementedError

    def stop(self, progress: Progress) -> None:
        raise NotImplementedError

    def state(self) -> ManagerState:
        zookeeper = ProcessRef("zookeeper", 1, 2.0)
        return ManagerState("h:1", "z:2", ("h:3",), processes=(zookeeper,))


def test_the_record_follows_the_manager_and_ends_with_it(tmp_path: Path) -> None:
    spec = ClusterSpec(tmp_path, "abc", 1, 9092)
    record = ClusterRecord(spec, "spark", "spark driver")
    record.update()
    assert cluster_file.load(tmp_path) is None, "nothing runs yet"
    record.manager = Running(spec)
    record.update()
    found = cluster_file.load(tmp_path)
    assert found is not None and found.manager is not None and found.running
    assert (found.kind, found.manager.name) == ("spark", "spark driver")
    assert (found.bootstrap_servers, found.control_addresses) == ("h:1", ("h:3",))
    assert [process.name for process in found.processes] == ["zookeeper"]
    record.close()
    record.update()
    found = cluster_file.load(tmp_path)
    assert found is not None and not found.running and found.processes == ()


@pytest.mark.parametrize(
    ("change", "mode"),
    [({}, 0o644), ({"secure": True}, 0o600), ({"properties": {"ssl.key.password": "x"}}, 0o600)],
)
def test_only_the_owner_reads_what_may_hold_passwords(
    tmp_path: Path, change: dict[str, Any], mode: int
) -> None:
    former = os.umask(0o022)
    try:
        saved(tmp_path)
        (tmp_path / "cluster.json.new").write_text("of a crash")
        cluster_file.save(tmp_path, replace(saved(tmp_path), **change))
    finally:
        os.umask(former)
    assert stat.S_IMODE((tmp_path / "cluster.json").stat().st_mode) == mode


def test_no_file_is_no_cluster(tmp_path: Path) -> None:
    assert cluster_file.load(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cluster.json"),
        ("[]", "format None"),
        ('{"format": 99}', "format 99"),
        ('{"format": 1}', "missing"),
    ],
)
def test_an_unreadable_file_is_one_clear_error(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(UsageError, match=words):
        cluster_file.load(tmp_path)


def test_what_a_newer_headwater_added_is_passed_over(tmp_path: Path) -> None:
    saved(tmp_path, brokers=2)
    path = tmp_path / "cluster.json"
    document = json.loads(path.read_text())
    process = {"name": "x", "pid": 1, "started": 0.5, "cgroup": "y"}
    path.write_text(json.dumps({**document, "zone": "z", "processes": [process]}))
    found = cluster_file.load(tmp_path)
    assert found is not None and found.brokers == 2
    assert [row.name for row in found.processes] == ["x"]


def test_a_new_folder_gets_a_fresh_cluster_of_three(tmp_path: Path) -> None:
    one = resolve(tmp_path, None, None, SystemEntropy())
    other = resolve(tmp_path, None, None, SystemEntropy())
    assert (one.brokers, one.base_port) == (3, 9092)
    assert one.cluster_id != other.cluster_id
    assert len(one.cluster_id) == 22


def test_a_known_folder_keeps_its_id_size_and_ports(tmp_path: Path) -> None:
    saved(tmp_path, brokers=2, base_port=19092)
    spec = resolve(tmp_path, None, None, SystemEntropy())
    assert (spec.cluster_id, spec.brokers, spec.base_port) == ("abc", 2, 19092)


def test_a_known_folder_can_grow_but_not_shrink(tmp_path: Path) -> None:
    saved(tmp_path, brokers=2)
    (tmp_path / "broker-1").mkdir()
    assert resolve(tmp_path, 4, None, SystemEntropy()).brokers == 4
    with pytest.raises(UsageError, match="headwater cluster remove"):
        resolve(tmp_path, 1, None, SystemEntropy())


@pytest.mark.parametrize("brokers", [0, -1, 101])
def test_a_senseless_number_of_brokers_is_refused(tmp_path: Path, brokers: int) -> None:
    with pytest.raises(UsageError, match="--brokers"):
        resolve(tmp_path, brokers, None, SystemEntropy())


@pytest.mark.parametrize("port", [0, 80, 65300, 70000])
def test_a_port_that_leaves_no_room_is_refused(tmp_path: Path, port: int) -> None:
    with pytest.raises(UsageError, match="--port"):
        resolve(tmp_path, 1, port, SystemEntropy())


def write_meta(folder: Path, cluster_id: str) -> None:
    folder.mkdir(parents=True)
    (folder / "meta.properties").write_text(f"#x\nversion=1\ncluster.id={cluster_id}\n")


def test_a_data_folder_of_another_cluster_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    write_meta(tmp_path / "broker-1", "another")
    with pytest.raises(UsageError, match="broker-1 belongs to cluster another, not to abc"):
        resolve(tmp_path, None, None, SystemEntropy())


def test_a_lost_cluster_file_is_made_again_from_the_data(tmp_path: Path) -> None:
    write_meta(tmp_path / "broker-0", "abc")
    assert resolve(tmp_path, None, None, SystemEntropy()).cluster_id == "abc"
    write_meta(tmp_path / "broker-1", "other")
    with pytest.raises(UsageError, match="several clusters"):
        resolve(tmp_path, None, None, SystemEntropy())


def test_two_managers_never_share_a_folder(tmp_path: Path) -> None:
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    first.acquire()
    with pytest.raises(UsageError, match="starting"):
        second.acquire()
    cluster = of_spec(ClusterSpec(tmp_path, "abc", 1, 9092))
    document = {"pid": 4242, "name": "supervisor", "started": 1.0}
    cluster_file.save(tmp_path, cluster)
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "manager": document}))
    with pytest.raises(UsageError, match=r"pid 4242.*127.0.0.1:9092.*headwater down"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_brokers_of_managed_clusters_are_set_up_for_developers(tmp_path: Path) -> None:
    """Both managers write these rows: `headwater up`, and `Cluster.start` inside Spark."""
    spec = ClusterSpec(tmp_path, "abc", 2, 9092)
    config = from_properties(broker_properties(spec, spec.slot(1)))
    assert (config.broker_id, config.cluster_id) == (1, "abc")
    assert config.values.integer("group.initial.rebalance.delay.ms") == 0
    assert config.values.integer("default.replication.factor") == 2
    assert config.values.integer("offsets.topic.replication.factor") == 2, "or groups would wait"


def test_clusters_far_enough_apart_share_no_port(tmp_path: Path) -> None:
    one = ClusterSpec(tmp_path, "a", 3, 9092)
    other = ClusterSpec(tmp_path, "b", 3, 9096)
    assert not set(one.ports()) & set(other.ports())
    assert one.bootstrap_servers == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"


def test_settings_and_the_ensemble_are_kept_for_the_next_time(tmp_path: Path) -> None:
    asked = {"num.partitions": "3", "log.retention.ms": "5"}
    first = resolve(tmp_path, 1, 9092, SystemEntropy(), zookeeper="h:2181/k", properties=asked)
    assert first.zookeeper == "h:2181/k"
    assert "ZooKeeper" not in first.ports().values()
    cluster_file.save(tmp_path, of_spec(first))
    again = resolve(tmp_path, None, None, SystemEntropy())
    assert (again.zookeeper, dict(again.properties)) == ("h:2181/k", asked)
    changed = resolve(
        tmp_path, None, None, SystemEntropy(), properties={"num.partitions": "", "min.x": "2"}
    )
    assert dict(changed.properties) == {"log.retention.ms": "5", "min.x": "2"}
    rows = broker_properties(changed, changed.slot(0))
    assert (rows["zookeeper.connect"], rows["log.retention.ms"]) == ("h:2181/k", "5")


def test_topics_of_an_embedded_zookeeper_are_not_left_behind(tmp_path: Path) -> None:
    cluster_file.save(tmp_path, of_spec(resolve(tmp_path, 1, 9092, SystemEntropy())))
    (tmp_path / "zookeeper").mkdir()
    with pytest.raises(UsageError, match="embedded ZooKeeper"):
        resolve(tmp_path, None, None, SystemEntropy(), zookeeper="h:2181")


def test_the_file_of_a_failed_start_forbids_nothing(tmp_path: Path) -> None:
    # A port was in use, or there was no Java: the file is written, no data is.
    saved(tmp_path, brokers=3)
    (tmp_path / "logs").mkdir()
    assert resolve(tmp_path, 1, None, SystemEntropy()).brokers == 1
    outside = resolve(tmp_path, None, None, SystemEntropy(), zookeeper="h:2181")
    assert outside.external_zookeeper == "h:2181"


def test_an_ensemble_elsewhere_keeps_replicas_of_lost_folders(tmp_path: Path) -> None:
    there = replace(saved(tmp_path, brokers=2), external_zookeeper="h:2181")
    cluster_file.save(tmp_path, there)
    with pytest.raises(UsageError, match="headwater cluster remove"):
        resolve(tmp_path, 1, None, SystemEntropy())
