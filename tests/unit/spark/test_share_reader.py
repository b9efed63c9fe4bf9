"""The queue source as Spark drives it, on a broker in this process: planned, read, accepted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater import Admin, NewTopic, Producer
from headwater.columnar.schema import arrow_schema
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


def reader(bootstrap: str) -> ShareStreamReader:
    """One run of a query that reads to the end of what is there."""
    given = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": TOPIC,
        "shareGroup": GROUP,
        "maxOffsetsPerTrigger": "100",
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


def test_a_query_takes_each_record_and_repeats_a_batch_that_failed(bootstrap: str) -> None:
    produce(bootstrap, 0, 150)
    run = reader(bootstrap)
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
    run = reader(bootstrap)
    failed = run.latestOffset(at, LIMIT)
    rows = numbers(run, at, failed)
    run.stop()  # the batch failed
    assert rows == list(range(150, 180))
    assert lag(bootstrap) == 30

    run = reader(bootstrap)
    assert numbers(run, at, failed) == rows
    assert run.latestOffset(failed, LIMIT) == failed  # nothing new: its records are accepted
    run.stop()
    assert lag(bootstrap) == 0
