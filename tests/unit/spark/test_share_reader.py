"""The queue source as Spark drives it, on a broker in this process: planned, read, accepted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater import Admin, NewTopic, Producer, ShareConsumer
from headwater.cli.share_groups import share_groups
from headwater.columnar.schema import arrow_schema
from headwater.errors import UsageError
from headwater_spark.source.held_queue import HoldsLostError
from headwater_spark.source.share_options import share_options
from headwater_spark.source.share_reader import ShareStreamReader
from whole_cluster import ServedCluster

PROPERTIES = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "3",
}
GROUP = "packers"
TOPIC = "orders"
LOCKS = "at-least-once"
LIMIT: Any = ReadAllAvailable()


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with ServedCluster(tmp_path, 1, **PROPERTIES) as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 2, 1)])
            admin.alter_configs("group", GROUP, {"share.auto.offset.reset": "earliest"})
        yield cluster.bootstrap


def produce(bootstrap: str, first: int, end: int) -> None:
    with Producer(bootstrap) as producer:
        for number in range(first, end):
            producer.send(TOPIC, b"%d" % number, partition=number % 2)


def lag(bootstrap: str) -> int:
    with Admin(bootstrap) as admin:
        return sum(at.lag or 0 for at in admin.list_share_group_offsets(GROUP).values())


def reader(bootstrap: str, delivery: str = "exactly-once") -> ShareStreamReader:
    """One run of a query that reads to the end of what is there."""
    given = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": TOPIC,
        "shareGroup": GROUP,
        "maxOffsetsPerTrigger": "100",
        "headwater.delivery": delivery,
    }
    made = ShareStreamReader(share_options(given, streaming=True), arrow_schema(["value"]))
    made.prepareForTriggerAvailableNow()
    return made


def numbers(run: ShareStreamReader, start: Any, end: Any) -> list[int]:
    """What the tasks of a batch read, in order."""
    found = [
        int(value.as_py())
        for partition in run.partitions(start, end)
        for batch in run.read(partition)
        for value in batch.column(0)
    ]
    return sorted(found)


def test_with_locks_a_query_repeats_a_batch_that_failed(
    bootstrap: str,
) -> None:
    produce(bootstrap, 0, 150)
    run = reader(bootstrap, LOCKS)
    at, taken = run.initialOffset(), []
    while (end := run.latestOffset(at, LIMIT)) != at:
        rows = numbers(run, at, end)
        assert len(rows) <= 100
        taken += rows
        at = end
    run.stop()
    assert sorted(taken) == list(range(150))
    assert lag(bootstrap) == 0

    produce(bootstrap, 150, 180)
    run = reader(bootstrap, LOCKS)
    failed = run.latestOffset(at, LIMIT)
    rows = numbers(run, at, failed)
    run.stop()  # the batch failed
    assert rows == list(range(150, 180))
    assert lag(bootstrap) == 30

    run = reader(bootstrap, LOCKS)
    assert numbers(run, at, failed) == rows
    assert run.latestOffset(failed, LIMIT) == failed  # nothing new: its records are accepted
    run.stop()
    assert lag(bootstrap) == 0


def to_end(run: ShareStreamReader, at: Any) -> tuple[list[int], Any]:
    """(what all batches after `at` hold, the last offset)."""
    taken: list[int] = []
    while (end := run.latestOffset(at, LIMIT)) != at:
        taken += numbers(run, at, end)
        at = end
    run.stop()
    return taken, at


def drained(bootstrap: str, wanted: int) -> list[int]:
    """What another member gets of the group now, at least `wanted` records.

    A poll may answer with some partitions only, while others are loaded.
    """
    values: list[int] = []
    deadline = time.monotonic() + 30
    with ShareConsumer(TOPIC, bootstrap_servers=bootstrap, group_id=GROUP) as other:
        while (found := other.poll(timeout_ms=500)) or len(values) < wanted:
            assert time.monotonic() < deadline, values
            values += [int(row.value or b"") for rows in found.values() for row in rows]
            other.commit()
    return sorted(values)


def test_held_batches_are_repeated_with_the_same_records_while_others_get_the_rest(
    bootstrap: str,
) -> None:
    produce(bootstrap, 0, 150)
    run = reader(bootstrap)
    taken, at = to_end(run, run.initialOffset())
    assert sorted(taken) == list(range(150))
    assert lag(bootstrap) == 0

    produce(bootstrap, 150, 180)
    run = reader(bootstrap)
    failed = run.latestOffset(at, LIMIT)
    rows = numbers(run, at, failed)
    run.stop()  # the batch failed, and its driver is gone
    produce(bootstrap, 180, 190)
    assert drained(bootstrap, 10) == list(range(180, 190))

    run = reader(bootstrap)
    assert numbers(run, at, failed) == rows == list(range(150, 180))
    assert run.latestOffset(failed, LIMIT) == failed
    run.stop()
    assert lag(bootstrap) == 0


def test_a_batch_that_was_held_and_not_logged_is_the_next_ones(bootstrap: str) -> None:
    produce(bootstrap, 0, 60)
    run = reader(bootstrap)
    at = run.latestOffset(run.initialOffset(), LIMIT)
    assert numbers(run, run.initialOffset(), at) == []  # it names the owner
    planned = run.latestOffset(at, LIMIT)  # and the driver dies before Spark logs it
    older = reader(bootstrap)
    assert older.latestOffset(at, LIMIT) == planned
    with pytest.raises(HoldsLostError, match="a newer run of it"):
        run.commit(planned)
    run.stop()
    taken, _ = to_end(older, at)
    assert sorted(taken) == list(range(60))
    assert lag(bootstrap) == 0


def test_a_checkpoint_that_is_older_than_the_group_is_refused(bootstrap: str) -> None:
    produce(bootstrap, 0, 60)
    run = reader(bootstrap)
    named = run.latestOffset(run.initialOffset(), LIMIT)
    first = run.latestOffset(named, LIMIT)
    run.commit(first)
    produce(bootstrap, 60, 80)
    second = run.latestOffset(first, LIMIT)
    run.stop()
    again = reader(bootstrap)
    with pytest.raises(HoldsLostError, match="the checkpoint is older than the group"):
        again.latestOffset(named, LIMIT)
    again.stop()
    last = reader(bootstrap)
    assert numbers(last, first, second) == list(range(60, 80))
    last.stop()

    shown = command(bootstrap)
    assert [(row["owner"], row["batch"]) for row in json.loads(shown)] == 2 * [
        (second["owner"], second["batch"])
    ]
    end = ("--owner", second["owner"], "--end", "release")
    assert command(bootstrap, *end) == shown  # a dry run
    command(bootstrap, *end, "--execute")
    assert json.loads(command(bootstrap)) == []
    released = reader(bootstrap)
    with pytest.raises(HoldsLostError, match="an operator has ended its holds"):
        released.partitions(first, second)
    released.stop()
    assert drained(bootstrap, 20) == list(range(60, 80))


def command(bootstrap: str, *arguments: str) -> str:
    """`headwater share-groups holds`."""
    given = ["holds", GROUP, "--bootstrap-server", bootstrap, "--json", *arguments]
    result = CliRunner().invoke(share_groups, given, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_a_query_keeps_to_its_delivery(bootstrap: str) -> None:
    run = reader(bootstrap)
    at = run.latestOffset(run.initialOffset(), LIMIT)
    run.stop()
    other = reader(bootstrap, LOCKS)
    with pytest.raises(UsageError, match=r"a query with headwater\.delivery=exactly-once"):
        other.latestOffset(at, LIMIT)
    other.stop()
