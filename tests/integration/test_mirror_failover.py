"""Failover to B and back to A, as docs/mirror.md describes it; groups, operators' commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import Admin, Consumer, NewTopic, Producer
from headwater.client.values import ConsumerRecord, OffsetAndMetadata, TopicPartition
from headwater.config.java_properties import parse_java_properties
from headwater.errors import UsageError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, AclFilter, PatternType, PermissionType
from mirror_pair import RunningMirror, mirrored, payloads, properties, read_all, run_cli, until
from whole_cluster import ServedCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
FIRST = TopicPartition("orders", 0)


def send(servers: str, topic: str, *values: str, partition: int = 0) -> None:
    with Producer(servers) as producer:
        for value in values:
            producer.send(topic, value.encode(), partition=partition)


def values(servers: str, topic: str, partition: int = 0) -> list[str]:
    return [(r.value or b"").decode() for r in read_all(servers, topic)[partition]]


def read_as(servers: str, group: str, count: int) -> list[str]:
    """What a consumer of the group reads next, committed after `count` records."""
    found: list[ConsumerRecord] = []
    with Consumer(
        "orders", bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:  # fmt: skip
        while len(found) < count:
            for batch in consumer.poll(timeout_ms=1000).values():
                found += batch
        consumer.commit({FIRST: OffsetAndMetadata(found[count - 1].offset + 1)})
    return [(r.value or b"").decode() for r in found[:count]]


def test_failover_and_failback_lose_nothing_that_was_mirrored_and_put_the_lost_tail_aside(
    tmp_path: Path,
) -> None:
    with ServedCluster(tmp_path / "a", 1) as a, ServedCluster(tmp_path / "b", 1) as b:
        with Admin(a.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", 1, 1)])
        forward = {"topics": "orders", "mirror_id": "ab"}
        ab = properties(a.bootstrap, b.bootstrap, **forward)
        send(a.bootstrap, "orders", "1", "2", "3", "4")
        assert read_as(a.bootstrap, "billing", 2) == ["1", "2"]
        with RunningMirror(ab):
            until(lambda: mirrored(a.bootstrap, b.bootstrap, "orders"), "mirrored")
            with Admin(b.bootstrap) as admin:
                until(lambda: admin.list_group_offsets("billing"), "the group is translated")
        send(a.bootstrap, "orders", "lost-1", "lost-2")
        a.stop(0)

        # Failover: fence, promote, move the clients.
        code, text = run_cli(tmp_path, ab, "promote", "--json")
        assert code == 0 and not json.loads(text)["source_reachable"]
        assert read_as(b.bootstrap, "billing", 1) == ["3"]
        send(b.bootstrap, "orders", "5", "6")

        # A is back: the report is exact, and the reverse mirror brings it up to date.
        a.start(0)
        ab = properties(a.bootstrap, b.bootstrap, **forward)
        report = json.loads(run_cli(tmp_path, ab, "promote", "--json")[1])
        assert report["gap_records"] == 2
        ba = parse_java_properties(run_cli(tmp_path, ab, "reverse", "--id", "ba")[1], "ba")
        with RunningMirror(ba):
            until(lambda: values(a.bootstrap, "orders")[-1] == "6", "the reverse mirror runs")
            with Admin(a.bootstrap) as admin:
                until(
                    lambda: admin.list_group_offsets("billing")[FIRST].offset == 3,
                    "the group is translated back",
                )
        assert values(a.bootstrap, "orders") == ["1", "2", "3", "4", "lost-1", "lost-2", "5", "6"]
        assert values(a.bootstrap, "orders.orphans") == ["lost-1", "lost-2"]
        assert values(b.bootstrap, "orders") == ["1", "2", "3", "4", "5", "6"]
        with RunningMirror(ab) as running:
            error = running.ended()
        assert isinstance(error, UsageError) and "mirror ba" in str(error)

        # Failback: end the reverse mirror, resume the first one.
        assert json.loads(run_cli(tmp_path, ba, "promote", "--json")[1])["gap_records"] == 0
        assert read_as(a.bootstrap, "billing", 1) == ["4"]
        with Admin(b.bootstrap) as admin:
            assert admin.list_group_offsets("billing")[FIRST].offset == 3
        send(a.bootstrap, "orders", "7")
        assert run_cli(tmp_path, ab, "resume")[1] == "mirror ab may run again\n"
        with RunningMirror(ab):
            until(lambda: values(b.bootstrap, "orders")[-1] == "7", "the first mirror runs again")
            send(a.bootstrap, "orders", "8")
            until(lambda: values(b.bootstrap, "orders")[-1] == "8", "and goes on")
            run_cli(tmp_path, ab, "sync-groups")
            send(a.bootstrap, "orders", "9")
            until(lambda: values(b.bootstrap, "orders")[-1] == "9", "after a moment fenced, too")
        assert read_as(b.bootstrap, "billing", 1) == ["5"]
        assert values(b.bootstrap, "orders") == list("123456789")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("failover")
    with ServedCluster(folder / "a", 1) as a, ServedCluster(folder / "b", 1) as b:
        yield a.bootstrap, b.bootstrap


def test_a_lost_source_record_stops_its_partition_until_an_operator_skips_it(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    source, target = pair
    with Admin(source) as admin:
        admin.create_topics([NewTopic("gap", 2, 1)])
    given = properties(source, target, topics="gap", mirror_id="gap")
    send(source, "gap", "0", "1")
    with RunningMirror(given):
        until(lambda: mirrored(source, target, "gap"), "mirrored")
    send(source, "gap", "2", "3", "4")
    send(source, "gap", "other", partition=1)
    with Admin(source) as admin:
        admin.delete_records({("gap", 0): 4})
    with RunningMirror(given):
        until(lambda: values(target, "gap", 1) == ["other"], "the other partition goes on")
        found = until(lambda: stopped(tmp_path, given), "it stops")
        assert "deleted offsets 2 to 3 before they were mirrored" in found[0]
        assert "headwater mirror skip gap:0 --to 4" in found[0]
        assert values(target, "gap") == ["0", "1"]
        code, text = run_cli(tmp_path, given, "skip", "gap:0", "--to", "4")
        assert (code, text) == (0, "gap-0: from source offset 2 to 4\n")
        until(lambda: values(target, "gap") == ["0", "1", "4"], "it goes on")
        until(lambda: not stopped(tmp_path, given), "the status says so")


def stopped(folder: Path, given: dict[str, str]) -> list[str]:
    try:
        document = json.loads(run_cli(folder, given, "status", "--json")[1])
    except UsageError:  # it never ran
        return []
    return [p["stopped"] for p in document["partitions"] if p["stopped"]]


def test_a_topic_created_again_stops_until_it_is_forgotten(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    source, target = pair
    with Admin(source) as admin:
        admin.create_topics([NewTopic("fresh", 1, 1)])
    given = properties(source, target, topics="fresh", mirror_id="fresh")
    send(source, "fresh", "old")
    with RunningMirror(given):
        until(lambda: mirrored(source, target, "fresh"), "mirrored")
        with Admin(source) as admin:
            admin.delete_topics(["fresh"])
            until(lambda: "fresh" not in admin.list_topics(), "deleted")
            admin.create_topics([NewTopic("fresh", 1, 1)])
        send(source, "fresh", "new")
        found = until(lambda: stopped(tmp_path, given), "it stops")
        assert "created again in the source" in found[0]
        assert "headwater mirror forget fresh" in found[0]
    with Admin(target) as admin:
        admin.delete_topics(["fresh"])
    run_cli(tmp_path, given, "forget", "fresh")
    with RunningMirror(given):
        until(lambda: mirrored(source, target, "fresh"), "mirrored anew")
    assert values(target, "fresh") == ["new"]


def test_a_topic_deleted_in_the_target_is_not_filled_from_the_middle(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    source, target = pair
    with Admin(source) as admin:
        admin.create_topics([NewTopic("gone", 1, 1)])
    given = properties(source, target, topics="gone", mirror_id="gone")
    send(source, "gone", "1", "2")
    with RunningMirror(given), Admin(target) as here:
        until(lambda: mirrored(source, target, "gone"), "mirrored")
        here.delete_topics(["gone"])
        send(source, "gone", "3")
        found = until(lambda: stopped(tmp_path, given), "it stops")
        assert "created again in the target" in found[0]
        assert values(target, "gone") == []
        run_cli(tmp_path, given, "forget", "gone")
        until(lambda: values(target, "gone") == ["1", "2", "3"], "it begins anew")


def test_partitions_grow_in_the_target_and_configs_follow(pair: tuple[str, str]) -> None:
    source, target = pair
    with Admin(source) as there, Admin(target) as here:
        there.create_topics([NewTopic("grown", 1, 1, {"retention.ms": "1000000"})])
        given = properties(source, target, topics="grown", mirror_id="grown")
        with RunningMirror(given):
            until(lambda: "grown" in here.list_topics(), "created")
            there.create_partitions({"grown": 3})
            there.alter_configs("topic", "grown", {"retention.ms": None, "segment.ms": "77777777"})
            send(source, "grown", "late", partition=2)
            until(lambda: mirrored(source, target, "grown"), "the new partition is mirrored")

            def configs() -> dict[str, str | None]:
                found = here.describe_configs("topic", "grown")
                keys = ("retention.ms", "segment.ms", "min.insync.replicas")
                return {k: found[k].value for k in keys if not found[k].is_default}

            until(lambda: configs() == {"segment.ms": "77777777"}, "the configs follow")
    assert payloads(read_all(target, "grown")) == payloads(read_all(source, "grown"))


def test_rights_to_read_are_mirrored_and_rights_to_write_come_with_promotion(
    tmp_path: Path,
) -> None:
    open_to_tests = {"super_users": "User:ANONYMOUS", "authorizer_class_name": AUTHORIZER}
    with (
        ServedCluster(tmp_path / "a", 1, **open_to_tests) as a,
        ServedCluster(tmp_path / "b", 1, **open_to_tests) as b,
        Admin(a.bootstrap) as there,
        Admin(b.bootstrap) as here,
    ):
        there.create_topics([NewTopic("secret", 1, 1)])
        reader, writer = acl(Operation.READ, "User:r"), acl(Operation.WRITE, "User:w")
        there.create_acls([reader, writer])
        own = acl(Operation.READ, "User:own")
        given = properties(a.bootstrap, b.bootstrap, topics="secret", mirror_id="acls")
        with RunningMirror(given):
            until(lambda: here.describe_acls() == [reader], "the right to read is mirrored")
            here.create_acls([own])
            later = acl(Operation.READ, "User:later")
            there.create_acls([later])
            there.delete_acls([AclFilter(principal="User:r")])
            until(lambda: here.describe_acls() == sorted([later, own]), "one more, one less")
        run_cli(tmp_path, given, "promote")
        assert here.describe_acls() == sorted([later, own, writer])


def acl(operation: Operation, principal: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, "secret", PatternType.LITERAL, principal, "*", operation,
        PermissionType.ALLOW,
    )  # fmt: skip


def test_the_mirror_goes_on_over_the_loss_of_each_broker_of_either_cluster(tmp_path: Path) -> None:
    with (
        ServedCluster(tmp_path / "a", 3, min_insync_replicas="2") as a,
        ServedCluster(tmp_path / "b", 3, min_insync_replicas="2") as b,
    ):
        with Admin(a.bootstrap) as admin:
            admin.create_topics([NewTopic("wide", 6, 3)])
        given = properties(
            a.bootstrap, b.bootstrap, topics="wide", mirror_id="wide", replication_factor="3"
        )
        with RunningMirror(given), Producer(a.bootstrap) as producer:
            for broker in range(3):
                for cluster in (a, b):
                    for n in range(60):
                        producer.send("wide", b"%d-%d" % (broker, n), partition=n % 6)
                    cluster.stop(broker)
                    for n in range(60):
                        producer.send("wide", b"without %d-%d" % (broker, n), partition=n % 6)
                    producer.flush()
                    cluster.start(broker)  # at another port, which the metadata tells
                    until(lambda: mirrored(a.bootstrap, b.bootstrap, "wide"), "it goes on", 60)
        assert payloads(read_all(b.bootstrap, "wide")) == payloads(read_all(a.bootstrap, "wide"))
