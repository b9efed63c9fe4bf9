"""`Cluster.start(secure=True)` as a notebook meets it, and what it leaves behind: no secret."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError

import headwater_spark
from backfill import backfill
from compact import compact
from headwater import Admin
from headwater.cli.main import run_command
from headwater.client.security_options import security_keywords
from headwater.client.values import NewTopic
from headwater.config.java_properties import read_java_properties
from headwater.errors import UsageError
from headwater.local import cluster_file
from headwater.local.security_folder import SecurityFolder
from headwater.local.zk_client import kazoo_client, readable_znodes
from headwater.security.certificates import certificate_facts
from headwater.system import SystemClock
from headwater.testing.secret_search import search, secrets_of
from headwater_spark.cluster.cluster import Cluster
from headwater_spark.cluster.handle import ClusterHandle
from integration.conftest import next_base_port
from integration.spark_sessions import spark_session

pytestmark = pytest.mark.integration

ROWS = 50
WAIT_S = 60


class Notebook:
    """A secure cluster in a session, whose event log is in `folder`."""

    def __init__(self, spark: Any, cluster: Cluster, folder: Path, link_port: int) -> None:
        self.link_port = link_port
        self.spark = spark
        self.cluster = cluster
        self.folder = folder
        self.directory = folder / "cluster"

    def admin(self) -> Admin:
        rows = read_java_properties(str(self.cluster.client_properties), "the login")
        return Admin(self.cluster.bootstrap_servers, **security_keywords(rows))

    def secrets(self) -> dict[str, str]:
        with self.admin() as admin:
            tokens = admin.describe_delegation_tokens()
        assert len(tokens) == 1, "the processes of a driver share one"
        return {**secrets_of(self.directory), "the HMAC of the token": tokens[0].password}

    def reader(self, reader: Any, topic: str) -> Any:
        options = self.cluster.spark_options()
        options |= {"subscribe": topic, "startingOffsets": "earliest"}
        return reader.format("headwater").options(**options).load()

    def values(self, topic: str) -> list[int]:
        rows = self.reader(self.spark.read, topic).select("value").collect()
        return sorted(int(bytes(row.value)) for row in rows)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    folder = tmp_path_factory.mktemp("secure")
    (folder / "events").mkdir()
    port = next_base_port(folder)
    link_port = port + 500
    conf = {
        "spark.headwater.driver.port": str(link_port),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{folder}/events",
    }
    with spark_session("local[5]", delta=True, conf=conf) as spark:
        # The test tiers by hand and counts the rows of its own round.
        cluster = Cluster.start(spark, 2, folder / "cluster", port, secure=True, tiering=False)
        found = Notebook(spark, cluster, folder, link_port)
        yield found
        found.cluster.stop()  # a test may have started it again


def test_a_notebook_writes_and_reads_and_no_secret_is_left_anywhere(notebook: Notebook) -> None:
    with notebook.admin() as admin:
        admin.create_topics([NewTopic("in", 2, 2), NewTopic("out", 2, 2)])
    rows = notebook.spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
    options = notebook.cluster.spark_options()
    rows.write.format("headwater").options(**options).option("topic", "in").mode("append").save()
    assert notebook.values("in") == list(range(ROWS))

    checkpoint = notebook.folder / "checkpoint"
    writer = notebook.reader(notebook.spark.readStream, "in").select("value").writeStream
    writer = writer.format("headwater").options(**options).option("topic", "out")
    writer = writer.option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(WAIT_S)
    assert notebook.values("out") == list(range(ROWS))

    secrets = notebook.secrets()
    assert {"key of broker-0", "key of broker-1", "the admin's password"} < secrets.keys()
    events = notebook.folder / "events"
    found, count = search(notebook.directory, secrets, [events, checkpoint])
    assert found == [] and count > 50
    log = b"".join(f.read_bytes() for f in events.rglob("*") if f.is_file())
    assert b"headwater" in log, "the search finds what there is"


def test_only_the_owner_reads_its_files(notebook: Notebook) -> None:
    d = notebook.directory
    folders = [d, d / "security", d / "security" / "broker-0"]
    assert [f.stat().st_mode & 0o777 for f in folders] == [0o700] * 3
    private = [d / "conf" / "broker-0.properties", d / "cluster.json"]
    private += [f for f in (d / "security").rglob("*") if f.is_file()]
    assert {f.stat().st_mode & 0o777 for f in private} == {0o600}
    assert not (d / "security" / "broker-0.pem").exists(), "the driver knows no broker's key"


def test_a_stranger_learns_nothing(notebook: Notebook) -> None:
    known = cluster_file.load(notebook.directory)
    assert known is not None
    shown = dict(readable_znodes(known.zookeeper))
    assert "/brokers/ids/0" in shown and "/config/users/admin" not in shown
    client = kazoo_client(known.zookeeper)
    client.start()
    try:
        with pytest.raises(NoAuthError):
            client.create("/headwater/requests/planted", b"")
    finally:
        client.stop()
        client.close()
    with socket.create_connection(("127.0.0.1", notebook.link_port), 10) as link:
        link.settimeout(10)
        link.sendall(b'{"event": "up", "broker_id": 0, "token": "", "host": "127.0.0.1"}\n')
        assert b"delegation" not in link.recv(1 << 16), "nothing but TLS is spoken here"


def test_an_operator_restarts_a_broker_and_attaches(notebook: Notebook) -> None:
    before = notebook.cluster.brokers[1].pid
    assert ClusterHandle.attach(dir=notebook.directory).restart(1) == [1]
    assert notebook.cluster.brokers[1].pid != before
    known = cluster_file.load(notebook.directory)
    assert known is not None
    security = notebook.directory / "security"
    there = ClusterHandle.attach(
        zookeeper=known.zookeeper,
        client_properties=security / "client.properties",
        zookeeper_properties=security / "secrets.properties",
    )
    assert len(there.brokers) == 2
    with pytest.raises(UsageError, match="--zookeeper-config"):
        ClusterHandle.attach(zookeeper=known.zookeeper)
    with pytest.raises(UsageError, match=r"headwater\.zookeeper\.digest"):
        ClusterHandle.attach(
            zookeeper=known.zookeeper, zookeeper_properties=security / "client.properties"
        )


@pytest.mark.long
def test_jobs_and_the_library_log_in_too(
    notebook: Notebook, capfd: pytest.CaptureFixture[str]
) -> None:
    spark, options = notebook.spark, notebook.cluster.spark_options()
    configs = {"remote.storage.enable": "true"}
    with notebook.admin() as admin:
        admin.create_topics([NewTopic("tiered", 1, 2, configs=configs), NewTopic("alerts", 1, 2)])
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("headwater").options(**options).option("topic", "tiered").mode(
        "append"
    ).save()
    assert headwater_spark.tier(spark, "tiered", options=options).rows == ROWS
    assert headwater_spark.table(spark, "tiered", options=options).count() == ROWS

    def batch(df: Any, _epoch: int, tx: Any) -> None:
        tx.delta(df)
        tx.topic(df, "alerts")

    once = headwater_spark.exactly_once(
        batch, table=str(notebook.folder / "silver"), options=options
    )
    progress = headwater_spark.commit_progress(spark, group_id="lag", options=options)
    stream = notebook.reader(spark.readStream, "tiered").select("value").writeStream
    stream = stream.foreachBatch(once).option("checkpointLocation", str(notebook.folder / "once"))
    assert stream.trigger(availableNow=True).start().awaitTermination(WAIT_S)
    progress.stop()
    assert notebook.values("alerts") == list(range(ROWS))
    with notebook.admin() as admin:
        committed = admin.list_group_offsets("lag")
    assert [o.offset for o in committed.values()] == [ROWS]

    login = ["--bootstrap-server", options["kafka.bootstrap.servers"]]
    login += ["--command-config", str(notebook.cluster.client_properties)]
    assert run_command(compact, ["tiered", *login], "compact") == 0
    target = ["tiered", "--to-table", str(notebook.folder / "copy"), "--id", "one"]
    assert run_command(backfill, [*target, *login], "backfill") == 0
    assert "50 records of tiered" in capfd.readouterr().out


@pytest.mark.long
def test_brokers_come_and_go_and_a_new_authority_reaches_them(notebook: Notebook) -> None:
    cluster = notebook.cluster
    cluster.scale(3)
    assert [b.ready for b in cluster.brokers] == [True] * 3
    own = SecurityFolder(notebook.directory, SystemClock())
    store = notebook.directory / "security" / "broker-2" / "keystore.pem"
    cluster_id = cluster.status()["cluster_id"]
    for step in (lambda: own.trust_next(cluster_id), own.reissue, own.drop_former):
        former = store.read_bytes()
        step()
        wait_until(lambda former=former: store.read_bytes() != former)
        time.sleep(own.unread_s())
        with notebook.admin() as admin:
            assert len(admin.describe_cluster().brokers) == 3
    cluster.remove([2])
    cluster.restart(rolling=True)  # with the replication factors of two brokers
    with notebook.admin() as admin:
        assert len(admin.describe_cluster().brokers) == 2


@pytest.mark.long
def test_a_killed_broker_and_the_next_start_are_secure_too(notebook: Notebook) -> None:
    cluster = notebook.cluster
    restarts = cluster.restarts
    pid = cluster.brokers[0].pid
    assert pid is not None
    os.kill(pid, 9)
    wait_until(lambda: cluster.restarts > restarts and cluster.wait_ready(0))
    cluster.stop()
    store = notebook.directory / "security" / "broker-0" / "keystore.pem"
    assert certificate_facts(store.read_bytes()).hosts == ("127.0.0.1", "localhost")
    notebook.cluster = again = Cluster.start(notebook.spark, dir=notebook.directory)
    assert again.client_properties is not None, "a cluster that was secure once stays so"
    with notebook.admin() as admin:
        assert len(admin.describe_cluster().brokers) == 2


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
