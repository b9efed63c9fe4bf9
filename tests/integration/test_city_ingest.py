"""The city's ingest is killed around its write: nothing is lost, nothing doubled (B3-313). A
consumer with auto-commit in its place loses and doubles (B3-314)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from city.feeds import KEY, TIME, VehicleFeed
from city.fields import VEHICLES
from city.ingest import WIRE
from city.rows import judge
from city.tables import read_table
from city.world import WorldPlan, make_world
from headwater import Admin, NewTopic, Producer
from integration.cluster import LocalCluster
from integration.conftest import Start

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PATHS = os.pathsep.join(str(ROOT / name) for name in ("jobs", "tests", "bench"))
WAIT_S = 120
KILLED = -signal.SIGKILL

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def run(script: str, *arguments: str) -> int:
    """Run a worker to its end, in a process group of its own; its exit code."""
    env = {**os.environ, "PYTHONPATH": PATHS}
    command = [sys.executable, str(HERE / script), *arguments]
    worker = subprocess.Popen(command, env=env, start_new_session=True)
    try:
        return worker.wait(WAIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(worker.pid, signal.SIGKILL)
        raise


def make_topic(cluster: LocalCluster, partitions: int) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(VEHICLES, num_partitions=partitions, replication_factor=1)])


@pytest.mark.long
def test_killed_between_write_and_commit_the_ingest_neither_loses_nor_doubles(
    start_cluster: Start, tmp_path: Path
) -> None:
    feed = VehicleFeed(make_world(WorldPlan(vehicles=600, faces=60)))
    cluster = start_cluster(1)
    make_topic(cluster, 6)
    with Producer(cluster.bootstrap) as producer:
        half = len(feed.truth) // 2
        for rows in (np.arange(half), np.arange(half, len(feed.truth))):
            producer.send_table(
                VEHICLES, feed.table(rows), key=KEY, value=feed.columns, timestamp=TIME
            ).result(WAIT_S)
    table = tmp_path / "tables" / VEHICLES
    for when, stored in (("before-write", False), ("after-write", True)):
        code = run("city_ingest_worker.py", cluster.bootstrap, str(tmp_path), when)
        assert code == -signal.SIGKILL
        assert (table.exists() and read_table(str(table)).num_rows > 0) is stored
        assert not list((tmp_path / "checkpoints-A").glob("*/commits/[0-9]*"))
    assert run("city_ingest_worker.py", cluster.bootstrap, str(tmp_path), "never") == 0
    columns = [*WIRE[VEHICLES], "sent_time"]
    verdict = judge(feed, read_table(str(table), columns))
    assert verdict.faults == {}
    assert verdict.rows == int((~feed.truth.abnormal).sum())
    assert "ingest_time" in read_table(str(table)).column_names


def consumed(cluster: LocalCluster, file: Path, when: str) -> Counter[bytes]:
    """The lines in the file after a consumer that died there, and one that did the rest."""
    sent = [f"record {n}".encode() for n in range(300)]
    with Producer(cluster.bootstrap) as producer:
        for value in sent:
            producer.send(VEHICLES, value)
    worker = "auto_commit_worker.py"
    assert run(worker, cluster.bootstrap, VEHICLES, str(file), when) == KILLED
    assert run(worker, cluster.bootstrap, VEHICLES, str(file), "never") == 0
    found = Counter(file.read_bytes().splitlines())
    assert set(found) <= set(sent)
    return Counter({value: found[value] for value in sent})


@pytest.mark.long
@pytest.mark.parametrize(("when", "copies"), [("before-write", 0), ("after-write", 2)])
def test_a_consumer_with_auto_commit_loses_or_doubles(
    start_cluster: Start, tmp_path: Path, when: str, copies: int
) -> None:
    cluster = start_cluster(1)
    make_topic(cluster, 1)
    found = consumed(cluster, tmp_path / "lines", when)
    wrong = [value for value in found if found[value] != 1]
    assert wrong
    assert {found[value] for value in wrong} == {copies}
