"""Fifty topics of a gigabyte are lost and restored; groups of three languages go on.

Minutes, so `make long`; the clients in Java and Go come as for `make integrations`.
"""

from __future__ import annotations

import base64
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import pytest

from headwater.client.blocking.record_client import RecordClient
from headwater.client.values import OffsetAndMetadata
from headwater_tier.table_location import locate
from headwater_tier.verify_command import verify_topic
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.tiered_topics import cli
from suites.group_members import CLASSIC, GROUP_MEMBERS, Member
from suites.killing import wait_until
from suites.parts import MissingPartError

pytestmark = [pytest.mark.integration, pytest.mark.long]

TOPICS = [f"topic-{number:02}" for number in range(50)]
PARTITIONS = 4
VALUE_BYTES = 10_000
RECORDS = 2_000
"""Of each topic: 20 MB."""
GROUP_AT = 300
NEW = 40
LANGUAGES = ("confluent-kafka", "Java", "franz-go")
READ_S = 300.0
COMMAND_S = 600.0


def produce(bootstrap: str, topic: str, values: Sequence[bytes], count: int) -> None:
    """`count` values in turn, to the partitions in turn."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(count):
        while True:
            try:
                value = values[number % len(values)]
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def large_values() -> list[bytes]:
    """Texts, as the members print what they read."""
    return [base64.b64encode(os.urandom(VALUE_BYTES * 3 // 4)) for _ in range(16)]


@pytest.mark.timeout(1_800)
def test_a_gigabyte_of_fifty_topics_is_back(tmp_path: Path) -> None:
    try:
        for language in LANGUAGES:
            GROUP_MEMBERS[language]()
    except MissingPartError as error:
        pytest.skip(str(error))
    cluster = LocalCluster(tmp_path, next_base_port(tmp_path), 1)
    at = ("--bootstrap-server", cluster.bootstrap, "--zookeeper", cluster.zookeeper)
    with cluster:
        for topic in TOPICS:
            cluster.create_topic(
                topic, PARTITIONS, 1, retention_ms="-1", remote_storage_enable="true"
            )
            produce(cluster.bootstrap, topic, large_values(), RECORDS)
        with cluster.admin() as admin:
            for topic in TOPICS:
                rows = {(topic, p): OffsetAndMetadata(GROUP_AT + p) for p in range(PARTITIONS)}
                admin.alter_group_offsets(f"group-{topic}", rows)
        cli("tier", "serve", "--once", *at, within_s=COMMAND_S)
        cli("tier", "catalog", "--once", *at)
    for path in tmp_path.iterdir():
        if path.name != "tables":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    began = time.monotonic()
    base, port = str(tmp_path / "tables"), str(cluster.spec.base_port)
    cli("restore", "--from", base, "--dir", str(tmp_path), "--port", port, within_s=COMMAND_S)
    print(f"restored in {time.monotonic() - began:.1f} s")
    with cluster:
        _tables_and_groups_are_as_before(cluster)
        _groups_go_on_in_three_languages(cluster)


def _tables_and_groups_are_as_before(cluster: LocalCluster) -> None:
    with (
        cluster.admin() as admin,
        RecordClient(cluster.bootstrap, client_id="headwater-verify") as client,
    ):
        for topic in TOPICS:
            found = verify_topic(client, locate(admin, topic))
            assert found.equal, found
            assert sum(p.table_digest.rows for p in found.partitions) == RECORDS
            assert found.hot_offsets == 0
            offsets = admin.list_group_offsets(f"group-{topic}")
            assert {p: o.offset for (_, p), o in offsets.items()} == {
                p: GROUP_AT + p for p in range(PARTITIONS)
            }


def _groups_go_on_in_three_languages(cluster: LocalCluster) -> None:
    """A member of each group reads on from where its group was, and what is produced now."""
    topics = dict(zip(TOPICS, LANGUAGES, strict=False))
    with ExitStack() as stack:
        members = {
            topic: stack.enter_context(
                Member(GROUP_MEMBERS[name], cluster.bootstrap, f"group-{topic}", CLASSIC, topic)
            )
            for topic, name in topics.items()
        }
        new = [b"new-%d" % number for number in range(NEW)]
        for topic in topics:
            produce(cluster.bootstrap, topic, new, NEW)
        end = RECORDS // PARTITIONS
        old = {(p, o) for p in range(PARTITIONS) for o in range(GROUP_AT + p, end)}
        for topic, member in members.items():
            wait_until(
                lambda member=member: len(member.records) >= len(old) + NEW,
                f"{topic} is read to its end",
                READ_S,
            )
            found = [(r.partition, r.offset) for r in member.records]
            assert len(found) == len(set(found)) and old < set(found)
            above = [r for r in member.records if (r.partition, r.offset) not in old]
            assert sorted(r.value for r in above) == sorted(value.decode() for value in new)
            assert min(r.offset for r in above) > end
            member.close()
