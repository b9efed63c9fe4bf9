"""A mirror between two real brokers of ours, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import Admin, NewTopic, Producer
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.errors import UsageError
from headwater.mirror.parts import PromotedError
from headwater.operations.mirror_metrics import MirrorCollector
from mirror_pair import (
    RunningMirror,
    mirrored,
    payloads,
    properties,
    read_all,
    run_cli,
    until,
)
from whole_cluster import ServedCluster


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Bootstrap servers of the source and of the target."""
    folder = tmp_path_factory.mktemp("mirror")
    with ServedCluster(folder / "a", 1) as a, ServedCluster(folder / "b", 1) as b:
        yield a.bootstrap, b.bootstrap


def send(servers: str, topic: str, *values: str) -> None:
    with Producer(servers) as producer:
        for value in values:
            producer.send(topic, value.encode())


def values(servers: str, topic: str) -> list[str]:
    return [(r.value or b"").decode() for r in read_all(servers, topic)[0]]


def stopped(folder: Path, given: dict[str, str]) -> list[str]:
    try:
        document = json.loads(run_cli(folder, given, "status", "--json")[1])
    except UsageError:  # it never ran
        return []
    return [p["stopped"] for p in document["partitions"] if p["stopped"]]


def create(servers: str, name: str, partitions: int = 2, **configs: str) -> None:
    with Admin(servers) as admin:
        rows = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topics([NewTopic(name, partitions, 1, rows)])


def test_records_arrive_once_in_order_with_every_codec_and_without_aborted_ones(
    pair: tuple[str, str],
) -> None:
    source, target = pair
    create(source, "codecs", 2)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        with Producer(source, compression_type=codec) as producer:
            for n in range(40):
                producer.send(
                    "codecs", b"%s-%d" % (codec.encode(), n), key=b"k%d" % (n % 3),
                    headers=[("h", None)], timestamp=1_700_000_000_000 + n, partition=n % 2,
                )  # fmt: skip
    with Producer(source, transactional_id="writer") as producer:
        for end in (producer.commit_transaction, producer.abort_transaction) * 2:
            producer.begin_transaction()
            for n in range(6):
                producer.send("codecs", b"%s-%d" % (end.__name__.encode(), n), partition=n % 2)
            end()
    with RunningMirror(properties(source, target, topics="codecs", mirror_id="codecs")) as running:
        until(lambda: mirrored(source, target, "codecs"), "everything is mirrored")
        with Producer(source) as producer:
            producer.send("codecs", b"later", partition=1)
        until(lambda: mirrored(source, target, "codecs"), "what came later too")
        buckets = running.service.buckets
        metrics = {m.name: m.samples for m in MirrorCollector(running.service).collect()}
        assert sum(s.value for s in metrics["headwater_mirror_records"]) == 5 * 40 + 12 + 1
        assert [s.value for s in metrics["headwater_mirror_partition_stopped"]] == [0, 0]
        assert {s.labels["topic"] for s in metrics["headwater_mirror_lag_offsets"]} == {"codecs"}
        assert sorted(buckets) == [0, 1, 2, 3]
        assert sum(b.records for b in buckets.values()) == 5 * 40 + 12 + 1
    ours = payloads(read_all(target, "codecs"))
    assert ours == payloads(read_all(source, "codecs"))
    assert not any(b"abort" in (row[2] or b"") for rows in ours.values() for row in rows)


def test_a_mirror_that_begins_again_goes_on_where_it_was(pair: tuple[str, str]) -> None:
    source, target = pair
    create(source, "again", 3, retention_ms="86400000")
    given = properties(source, target, topics="again", mirror_id="again")
    for turn in range(3):
        with Producer(source) as producer:
            for n in range(30):
                producer.send("again", b"%d-%d" % (turn, n), partition=n % 3)
        with RunningMirror(given):
            until(lambda: mirrored(source, target, "again"), "everything is mirrored")
    assert payloads(read_all(target, "again")) == payloads(read_all(source, "again"))
    with Admin(target) as admin:
        assert admin.describe_configs("topic", "again")["retention.ms"].value == "86400000"


def test_what_is_added_begins_at_its_start_whatever_the_reset_says(pair: tuple[str, str]) -> None:
    source, target = pair
    create(source, "late", 1)
    send(source, "late", "before the mirror")
    given = properties(
        source, target, topics="late.*", mirror_id="late", source_auto_offset_reset="latest"
    )

    def grow(count: int, value: str) -> None:
        with Admin(source) as admin, Producer(source) as producer:
            admin.create_partitions({"late": count})
            producer.send("late", value, partition=count - 1).result(30)

    def found(partition: int) -> list[bytes | None]:
        return [row.value for row in read_all(target, "late").get(partition, [])]

    with RunningMirror(given) as running:
        until(
            lambda: any(
                copy.stored == 1
                for bucket in running.service.buckets.values()
                for copy in list(bucket.copies.values())
            ),
            "the topic has a position",
        )
        grow(2, "while it runs")
        create(source, "later", 1)
        send(source, "later", "a topic of its own")
        until(lambda: mirrored(source, target, "later") and found(1), "what came later is there")
    grow(3, "while it was down")
    with RunningMirror(given):
        until(lambda: found(2), "so is that")
    assert (found(0), found(1), found(2)) == ([], [b"while it runs"], [b"while it was down"])
    assert values(target, "later") == ["a topic of its own"]


def test_status_and_positions_tell_the_lag_and_promote_fences_and_reports_the_gap(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    source, target = pair
    create(source, "dr", 2)
    given = properties(source, target, topics="dr", mirror_id="dr")

    def cli(*arguments: str) -> tuple[int, str]:
        return run_cli(tmp_path, given, *arguments)

    with pytest.raises(UsageError, match="mirror dr never ran"):
        cli("status")
    with Producer(source) as producer:
        for n in range(10):
            producer.send("dr", b"%d" % n, partition=n % 2)
    with RunningMirror(given):
        until(lambda: mirrored(source, target, "dr"), "everything is mirrored")
        until(lambda: json.loads(cli("status", "--json")[1])["lag"] == 0, "0")
        _, text = cli("status", "--json")
        found = json.loads(text)
        assert (found["state"], found["source_reachable"], found["stopped"]) == ("running", True, 0)
        assert [(p["partition"], p["position"]) for p in found["partitions"]] == [(0, 5), (1, 5)]
    with Producer(source) as producer:
        for _ in range(3):
            producer.send("dr", b"tail", partition=1)
    code, text = cli("positions", "--json")
    assert (code, [row["position"] for row in json.loads(text)]) == (0, [5, 5])
    with RunningMirror({**given, "topics": "other"}) as running:
        until(lambda: running.service.buckets, "it runs")
        _, text = cli("promote", "--json")
        assert isinstance(running.ended(), PromotedError)
    report = json.loads(text)
    assert (report["gap_records"], report["gap_offsets"]) == (3, 3)
    assert [p["gap_records"] for p in report["partitions"]] == [0, 3]
    with RunningMirror(given) as running:
        assert isinstance(running.ended(), PromotedError)
    assert json.loads(cli("status", "--json")[1])["state"] == "promoted"
    assert json.loads(cli("promote", "--json")[1])["gap_records"] == 3


def test_an_offset_that_the_target_committed_itself_stays(pair: tuple[str, str]) -> None:
    source, target = pair
    with Admin(source) as admin:
        admin.create_topics([NewTopic("groups", 1, 1)])
    tp = TopicPartition("groups", 0)
    send(source, "groups", *map(str, range(9)))
    with Admin(source) as admin:
        admin.alter_group_offsets("moving", {tp: OffsetAndMetadata(4, "note")})
        admin.alter_group_offsets("own", {tp: 4})
        admin.alter_group_offsets("ahead", {tp: 9})
        admin.alter_group_offsets("denied", {tp: 4})
    given = properties(source, target, topics="groups", mirror_id="g", groups_deny="denied")
    with Admin(target) as admin, RunningMirror(given):
        for group in ("moving", "own", "ahead"):
            until(lambda g=group: admin.list_group_offsets(g), "translated")  # type: ignore[misc]
        assert admin.list_group_offsets("moving")[tp] == OffsetAndMetadata(4, "note", -1)
        assert admin.list_group_offsets("ahead")[tp].offset == 9
        admin.alter_group_offsets("own", {tp: 1})
        with Admin(source) as there:
            there.alter_group_offsets("own", {tp: 6})
            there.alter_group_offsets("moving", {tp: 2})
        until(lambda: admin.list_group_offsets("moving")[tp].offset == 2, "it may go back")
        assert admin.list_group_offsets("own")[tp].offset == 1
        assert not admin.list_group_offsets("denied")


def test_a_topic_that_holds_other_records_in_the_target_is_not_appended_to(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    source, target = pair
    for servers, value in ((source, "source"), (target, "target")):
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("held", 1, 1)])
        send(servers, "held", value)
    given = properties(source, target, topics="held", mirror_id="held")
    for _ in range(2):
        with RunningMirror(given):
            assert "has records up to offset 1" in until(lambda: stopped(tmp_path, given), "")[0]
    assert values(target, "held") == ["target"]
    with RunningMirror({**given, "target.existing": "append"}):
        until(lambda: values(target, "held") == ["target", "source"], "appended")
