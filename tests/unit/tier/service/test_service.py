"""The service over a whole broker: topics fill their tables, failures stop one topic alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headwater import Admin, Producer
from headwater.cli.main import main
from headwater.client.values import NewTopic
from headwater.system import SystemClock, SystemEntropy
from headwater_tier.delta import LogTable
from headwater_tier.service.engine import Engine, build
from headwater_tier.service.options import ServiceOptions
from headwater_tier.table_location import locate
from headwater_tier.table_names import TableLocation
from whole_cluster import ServedCluster

TIERED = {"remote.storage.enable": "true", "delta.interval.ms": "50"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    folder = tmp_path_factory.mktemp("served")
    tables = (folder / "tables").as_uri()
    with ServedCluster(folder / "cluster", 1, headwater_tables_uri=tables) as served:
        yield served


def create(cluster: ServedCluster, name: str, partitions: int = 1, **configs: str) -> None:
    own = {key.replace("_", "."): text for key, text in configs.items()}
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions, 1, configs=TIERED | own)])


def send(cluster: ServedCluster, name: str, count: int, partition: int = 0) -> None:
    with Producer(cluster.bootstrap) as producer:
        for i in range(count):
            producer.send(name, b"%d" % i, partition=partition)


def location(cluster: ServedCluster, name: str) -> TableLocation:
    with Admin(cluster.bootstrap) as admin:
        return locate(admin, name)


def engine(cluster: ServedCluster) -> Engine:
    return build(ServiceOptions(cluster.bootstrap), SystemClock(), SystemEntropy())


def once(cluster: ServedCluster) -> Engine:
    """Run a service until all is tiered or has failed."""
    made = engine(cluster)
    made.run(threading.Event(), once=True)
    return made


def test_topics_fill_their_tables_and_new_partitions_and_topics_are_followed(
    cluster: ServedCluster,
) -> None:
    create(cluster, "a", 2)
    send(cluster, "a", 30, 0)
    send(cluster, "a", 5, 1)
    once(cluster)
    assert LogTable(location(cluster, "a")).snapshot.ends == {0: 30, 1: 5}
    create(cluster, "b")
    send(cluster, "b", 7)
    with Admin(cluster.bootstrap) as admin:
        admin.create_partitions({"a": 3})
    send(cluster, "a", 4, 2)
    once(cluster)
    assert LogTable(location(cluster, "a")).snapshot.ends == {0: 30, 1: 5, 2: 4}
    assert LogTable(location(cluster, "b")).snapshot.rows == 7


def test_a_foreign_commit_stops_its_topic_and_no_other(
    cluster: ServedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("broken", "whole"):
        create(cluster, name)
        send(cluster, name, 3)
    once(cluster)
    table = DeltaTable(location(cluster, "broken").uri)
    table.alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    for name in ("broken", "whole"):
        send(cluster, name, 2)
    made = once(cluster)
    assert "delta.enableDeletionVectors" in made.service.topics["broken"].error
    assert LogTable(location(cluster, "whole")).snapshot.rows == 5
    capsys.readouterr()
    status = ["tier", "status", "broken", "--json", "--bootstrap-server", cluster.bootstrap]
    assert main(status) == 1
    [row] = json.loads(capsys.readouterr().out)["topics"]
    assert row["state"] == "failed" and row["behind"] == 2
    assert "delta.enableDeletionVectors" in row["error"]


def test_a_declared_format_fills_the_typed_table(cluster: ServedCluster) -> None:
    create(cluster, "typed", headwater_value_format="json")
    with Producer(cluster.bootstrap) as producer:
        for i in range(20):
            producer.send("typed", b'{"id": %d, "name": "n%d"}' % (i, i))
    made = once(cluster)
    assert made.derived.problems() == {}
    assert made.derived.status("typed", {})["typed"].rows == 20


def test_a_recreated_topic_gets_a_table_of_its_own(cluster: ServedCluster) -> None:
    create(cluster, "again")
    send(cluster, "again", 9)
    made = engine(cluster)
    stop = threading.Event()
    runner = threading.Thread(target=made.run, args=(stop,))
    runner.start()
    try:
        first = location(cluster, "again")
        wait_for(lambda: rows(first) == 9)
        with Admin(cluster.bootstrap) as admin:
            admin.delete_topics(["again"])
        create(cluster, "again")
        send(cluster, "again", 4)
        second = location(cluster, "again")
        assert second != first
        wait_for(lambda: rows(second) == 4)
        assert rows(first) == 9
    finally:
        stop.set()
        runner.join()


def test_services_share_the_topics_and_one_takes_over_what_the_other_leaves(
    cluster: ServedCluster,
) -> None:
    names = [f"shared-{i}" for i in range(6)]
    for name in names:
        create(cluster, name)
        send(cluster, name, 2)
    services = [engine(cluster) for _ in range(2)]
    stops = [threading.Event() for _ in services]
    runners = [
        threading.Thread(target=made.run, args=(stop,))
        for made, stop in zip(services, stops, strict=True)
    ]
    for runner in runners:
        runner.start()
    try:
        wait_for(lambda: all(rows(location(cluster, n)) == 2 for n in names))
        wait_for(lambda: not set(services[0].service.topics) & set(services[1].service.topics))
        stops[0].set()
        runners[0].join()
        wait_for(lambda: set(names) <= set(services[1].service.topics))
        for name in names:
            send(cluster, name, 3)
        wait_for(lambda: all(rows(location(cluster, n)) == 5 for n in names))
    finally:
        for stop, runner in zip(stops, runners, strict=True):
            stop.set()
            runner.join()


def rows(at: TableLocation) -> int:
    """The rows of a table; -1 while there is none."""
    if not list((Path(at.uri.removeprefix("file://")) / "_delta_log").glob("*.json")):
        return -1
    return LogTable(at).snapshot.rows


def wait_for(condition: object) -> None:
    assert callable(condition)
    clock, pause = SystemClock(), threading.Event()
    give_up_at = clock.monotonic() + 60.0
    while not condition():
        assert clock.monotonic() < give_up_at
        pause.wait(0.05)
