"""Every disk and ZooKeeper gone: `headwater restore`, and stock clients of three kinds go on."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest

from headwater import ShareConsumer
from headwater.client.admin.scram import ScramUpsertion
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, PatternType, PermissionType
from headwater_tier.restore import restore_plan as plan
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.jvm_tools import kafka_tool
from integration.tiered_topics import CODE, Row, cli, consume, ends_of, produce, verify

pytestmark = pytest.mark.integration

TOPICS = ("one", "two", "three", "compacted")
PARTITIONS = 2
RECORDS = 300
READ = 40
"""Records that each group has read before the loss."""
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SHARE_STATE = {
    "share.coordinator.state.topic.replication.factor": "2",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "3",
}
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
RIGHT = AclBinding(
    ResourceType.TOPIC, "one", PatternType.LITERAL, "User:alice", "*", Operation.READ,
    PermissionType.ALLOW,
)  # fmt: skip
WAIT_S = 30.0
QUEUE = "queue"


@dataclass
class Restored:
    """The cluster that came back, and how it was before."""

    cluster: LocalCluster
    rows: dict[str, list[Row]] = field(default_factory=dict)
    ends: dict[str, dict[int, int]] = field(default_factory=dict)
    ids: dict[str, Any] = field(default_factory=dict)
    committed: dict[str, dict[Any, int]] = field(default_factory=dict)
    starts: dict[Any, int] = field(default_factory=dict)
    taken: list[tuple[int, int]] = field(default_factory=list)
    """Of the queue, before the loss."""
    shown: dict[str, int] = field(default_factory=dict)
    """Rows of the catalog."""
    said: str = ""


def at(cluster: LocalCluster) -> tuple[str, ...]:
    return ("--bootstrap-server", cluster.bootstrap, "--zookeeper", cluster.zookeeper)


def read_confluent(bootstrap: str, group: str, topic: str, count: int) -> list[tuple[int, int]]:
    """Read and commit; (partition, offset) of each record."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            found.append((message.partition(), message.offset()))  # type: ignore[arg-type]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def read_kafka_python(bootstrap: str, group: str, topic: str, count: int) -> list[tuple[int, int]]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=count,
    )
    deadline = time.monotonic() + WAIT_S
    # A leader that assigns before it knows the topic gives everybody nothing for five minutes.
    while not consumer.partitions_for_topic(topic):
        assert time.monotonic() < deadline, f"{topic} is not known"
    consumer.subscribe([topic])
    found: list[tuple[int, int]] = []
    while len(found) < count and time.monotonic() < deadline:
        polled = consumer.poll(timeout_ms=200, max_records=count - len(found))
        found += [(r.partition, r.offset) for rows in polled.values() for r in rows]
    consumer.commit()
    consumer.close()
    return found


def read_java(bootstrap: str, group: str, topic: str, count: int) -> list[tuple[int, int]]:
    """The console consumer commits what it has printed, when it ends."""
    told = kafka_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", bootstrap, "--topic", topic, "--group", group),
        *("--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000"),
        *("--property", "print.partition=true", "--property", "print.offset=true"),
        *("--property", "print.value=false"),
    )
    rows = [line.split("\t") for line in told.splitlines() if line.startswith("Partition:")]
    return [(int(p.partition(":")[2]), int(o.partition(":")[2])) for p, o, *_ in rows]


READERS = {"librdkafka": read_confluent, "kafka-python": read_kafka_python, "java": read_java}


def read_queue(bootstrap: str, count: int) -> list[tuple[int, int]]:
    """Take so many records of `one` from the queue and accept them; (partition, offset) of each."""
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + WAIT_S
    with ShareConsumer(
        "one",
        bootstrap_servers=bootstrap,
        group_id=QUEUE,
        share_acquire_mode="record_limit",
        max_poll_records=READ,
    ) as consumer:
        while len(found) < count and time.monotonic() < deadline:
            polled = consumer.poll(timeout_ms=500)
            found += [(r.partition, r.offset) for rows in polled.values() for r in rows]
            assert not any(consumer.commit().values())
    return found


def starts(cluster: LocalCluster) -> dict[Any, int]:
    """The queue's start offsets."""
    with cluster.admin() as admin:
        return {tp: at.start_offset for tp, at in admin.list_share_group_offsets(QUEUE).items()}


def offsets(cluster: LocalCluster, group: str) -> dict[Any, int]:
    with cluster.admin() as admin:
        return {tp: at.offset for tp, at in admin.list_group_offsets(group).items()}


def fill(cluster: LocalCluster, key_file: Path) -> Restored:
    """Topics, groups, ACLs, quotas and a user; tiered, and kept in the catalog."""
    before = Restored(cluster)
    for topic in TOPICS:
        policy = {"cleanup_policy": "compact"} if topic == "compacted" else {}
        cluster.create_topic(
            topic, PARTITIONS, 2, retention_ms="-1", remote_storage_enable="true", **policy
        )
        produce(cluster, topic, RECORDS)
    cluster.create_topic("plain", 1, 2)
    produce(cluster, "plain", RECORDS)
    for group, read in READERS.items():
        assert len(read(cluster.bootstrap, group, "one", READ)) == READ
        before.committed[group] = offsets(cluster, group)
    read_confluent(cluster.bootstrap, "of-plain", "plain", READ)
    with cluster.admin() as admin:
        admin.alter_configs("group", QUEUE, {"share.auto.offset.reset": "earliest"})
    before.taken = read_queue(cluster.bootstrap, RECORDS // 2)
    before.starts = starts(cluster)
    assert len(before.taken) >= RECORDS // 2 and any(before.starts.values())
    with cluster.admin() as admin:
        admin.create_acls([RIGHT])
        admin.alter_client_quotas({"user": "alice"}, {"producer_byte_rate": 5_000.0})
        admin.alter_user_scram_credentials([ScramUpsertion("alice", "wonderland")])
        described = admin.describe_topics([*TOPICS, "plain"])
        before.ids = {name: found.topic_id for name, found in described.items()}
    for topic in TOPICS:
        before.ends[topic] = ends_of(cluster, topic, PARTITIONS)
        before.rows[topic] = consume(cluster, topic, before.ends[topic])
    cli("tier", "serve", "--once", *at(cluster))
    cli("tier", "catalog", "--once", "--key-file", str(key_file), *at(cluster))
    shown = cli("tier", "catalog", "--show", "--json", "--bootstrap-server", cluster.bootstrap)
    before.shown = json.loads(shown.stdout)["rows"]
    return before


def lose_everything(directory: Path) -> None:
    for path in directory.iterdir():
        if path.name != "tables":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def restore_command(cluster: LocalCluster, key_file: Path) -> list[str]:
    directory = cluster.directory
    settings = [f"--set={key}={value}" for key, value in cluster.properties.items()]
    return [
        *("restore", "--from", str(directory / "tables"), "--dir", str(directory)),
        *("--port", str(cluster.spec.base_port), "--key-file", str(key_file), *settings),
    ]


def killed_half_way(arguments: list[str], directory: Path) -> None:
    """Start a restore, and kill -9 it while its brokers start."""
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + WAIT_S
    while not list(directory.glob("broker-*")) and time.monotonic() < deadline:
        assert process.poll() is None, "it has ended by itself"
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restored]:
    """A cluster of two brokers, lost and restored; the first restore was killed."""
    directory = tmp_path_factory.mktemp("restore")
    key_file = tmp_path_factory.mktemp("keys") / "catalog.key"
    key_file.write_text(base64.b64encode(os.urandom(32)).decode())
    cluster = LocalCluster(directory, next_base_port(directory), 2, AUTHORIZER | SHARE_STATE)
    with cluster:
        found = fill(cluster, key_file)
    lose_everything(directory)
    command = restore_command(cluster, key_file)
    killed_half_way(command, directory)
    found.said = cli(*command).stdout
    with cluster:
        yield found


def test_it_says_what_is_back_and_what_is_lost(restored: Restored) -> None:
    assert "5 topics with 9 partitions, ids as before" in restored.said
    assert "1 topics were not tiered, their records are lost: plain" in restored.said
    assert "4 groups" in restored.said
    assert f"1 share groups with {len(restored.starts)} start offsets" in restored.said
    assert restored.shown["share_group"] == 1


def test_topics_configs_rights_quotas_and_users_are_as_before(restored: Restored) -> None:
    with restored.cluster.admin() as admin:
        described = admin.describe_topics([*TOPICS, "plain"])
        assert {name: found.topic_id for name, found in described.items()} == restored.ids
        configs = admin.describe_configs("topic", "compacted")
        assert configs["cleanup.policy"].value == "compact"
        assert admin.describe_acls() == [RIGHT]
        (quota,) = admin.describe_client_quotas({"user": "alice"})
        assert quota.quotas == {"producer_byte_rate": 5_000.0}
        assert list(admin.describe_user_scram_credentials()) == ["alice"]
        broker_configs = admin.describe_configs("broker", "0")
        assert broker_configs["headwater.restore.groups.pending"].value == "false"


@pytest.mark.parametrize("topic", TOPICS)
def test_old_records_are_at_their_old_offsets(restored: Restored, topic: str) -> None:
    assert consume(restored.cluster, topic, restored.ends[topic]) == restored.rows[topic]


@pytest.mark.parametrize("client", READERS)
def test_a_stock_client_goes_on_where_its_group_was(restored: Restored, client: str) -> None:
    before = restored.committed[client]
    assert offsets(restored.cluster, client) == before
    found = READERS[client](restored.cluster.bootstrap, client, "one", READ)
    assert len(found) == READ
    read = {(tp.partition): at for tp, at in before.items()}
    for partition in range(PARTITIONS):
        own = [offset for p, offset in found if p == partition]
        if own:
            first = read.get(partition, 0)
            assert own == list(range(first, first + len(own)))


def test_a_queue_goes_on_at_its_start_offsets_and_over_the_gap(restored: Restored) -> None:
    """At least once: nothing below is delivered again, nothing above is lost."""
    assert restored.starts and starts(restored.cluster) == restored.starts
    with restored.cluster.admin() as admin:
        configs = admin.describe_configs("group", QUEUE)
        assert configs["share.auto.offset.reset"].value == "earliest"
    start = {tp.partition: at for tp, at in restored.starts.items()}
    rest = {
        (row.partition, row.offset)
        for row in restored.rows["one"]
        if row.offset >= start.get(row.partition, 0)
    }
    assert rest | set(restored.taken) == {(r.partition, r.offset) for r in restored.rows["one"]}
    found = read_queue(restored.cluster.bootstrap, len(rest))
    assert sorted(found) == sorted(rest)
    produce(restored.cluster, "one", RECORDS + 20, first=RECORDS)
    new = read_queue(restored.cluster.bootstrap, 20)
    assert len(set(new)) == len(new) == 20
    assert all(offset >= restored.ends["one"][p] + plan.OFFSET_GAP for p, offset in new)


@pytest.mark.long
def test_new_records_are_above_all_old_ones_and_tiering_goes_on(restored: Restored) -> None:
    cluster = restored.cluster
    produce(cluster, "two", RECORDS + 50, first=RECORDS)
    ends = ends_of(cluster, "two", PARTITIONS)
    rows = consume(cluster, "two", ends)
    assert [row for row in rows if row.offset < 1_000_000] == restored.rows["two"]
    new = [row for row in rows if row.offset >= 1_000_000]
    assert len(new) == 50
    assert all(row.offset >= restored.ends["two"][row.partition] + plan.OFFSET_GAP for row in new)
    cli("tier", "serve", "--once", *at(cluster))
    for topic in TOPICS:
        found = verify(cluster, topic)
        assert found["hot_offsets"] == 0


def test_readers_of_a_topic_without_a_table_get_its_first_new_record(restored: Restored) -> None:
    produce(restored.cluster, "plain", RECORDS + 5, first=RECORDS)
    found = read_confluent(restored.cluster.bootstrap, "of-plain", "plain", 5)
    first = found[0][1]
    assert first >= RECORDS + plan.OFFSET_GAP, "more if the catalog is older than 10 s"
    assert found == [(0, first + n) for n in range(5)]


def test_a_group_is_reset_to_a_version_of_the_table_and_an_offset_is_found_in_one(
    restored: Restored,
) -> None:
    cluster = restored.cluster
    at_one = ("one", "--bootstrap-server", cluster.bootstrap, "--json")
    found = json.loads(cli("tier", "offsets-of", *at_one, "--version", "1").stdout)
    ends = {int(p): end for p, end in found["ends"].items()}
    assert ends and all(end <= restored.ends["one"][p] for p, end in ends.items())
    reset = ("--topic", "one", "--to-delta-version", "1", "--execute")
    cli("groups", "reset-offsets", "by-version", *reset, "--bootstrap-server", cluster.bootstrap)
    committed = {tp.partition: at for tp, at in offsets(cluster, "by-version").items()}
    assert committed == {p: ends.get(p, 0) for p in range(PARTITIONS)}
    partition, end = next(iter(ends.items()))
    where = ("--partition", str(partition), "--offset", str(end - 1))
    held = json.loads(cli("tier", "version-of", *at_one, *where).stdout)
    assert (held["version"], held["or_earlier"]) == (1, False)


def test_a_second_restore_into_it_is_refused(restored: Restored) -> None:
    cluster = restored.cluster
    base = str(cluster.directory / "tables")
    done = cli("restore", "--from", base, "--zookeeper", cluster.zookeeper, ok=False)
    assert done.returncode != 0 and "restored already" in done.stderr
    assert "Traceback" not in done.stderr
