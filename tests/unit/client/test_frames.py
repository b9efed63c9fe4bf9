"""Topics as frames, frames to topics, and configurations with confluent-kafka's names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from headwater import Admin, Consumer, NewTopic, OptionError, Producer, UsageError
from headwater.aio import AsyncConsumer, AsyncProducer
from headwater.frames import read_topic
from whole_cluster import ServedCluster

NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(Path(tmp_path_factory.mktemp("frames")), 1) as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("flights", 2, 1), NewTopic("empty", 1, 1)])
        with Producer(cluster.bootstrap) as producer:
            for n in range(10):
                producer.send("flights", f'{{"n":{n}}}', f"k{n % 2}", None, 1000 + n, n % 2)
        yield cluster


def test_a_topic_as_frames(c: ServedCluster) -> None:
    frame = read_topic("flights", bootstrap_servers=c.bootstrap, text=True)
    assert len(frame) == 10 and frame.to_arrow().column("value").type == pa.string()
    assert sorted(frame.to_pandas()["offset"]) == sorted([*range(5), *range(5)])
    assert frame.to_polars().filter(pl.col("key") == "k1").height == 5
    sql = "SELECT key, count(*), max(value->>'n') FROM flights GROUP BY key ORDER BY key"
    assert frame.query(sql).fetchall() == [("k0", 5, "8"), ("k1", 5, "9")]
    shared = duckdb.connect()
    assert frame.query("SELECT count(*) FROM flights", shared).fetchall() == [(10,)]
    assert pa.table(frame).num_rows == 10


def test_a_part_of_a_topic(c: ServedCluster) -> None:
    def read(**options: Any) -> list[int]:
        frame = read_topic("flights", bootstrap_servers=c.bootstrap, **options)
        return sorted(frame.to_polars()["timestamp"].dt.timestamp("ms").to_list())

    assert read(start=1004, end=1007) == [1004, 1005, 1006]
    assert read(partitions=[1]) == [1001, 1003, 1005, 1007, 1009]
    assert read(start={0: 3, 1: 4}, end={0: 4}) == [1006, 1009]
    assert read(start=9999) == []
    assert len(read_topic("empty", bootstrap_servers=c.bootstrap)) == 0
    with pytest.raises(OptionError, match="start is 'now'"):
        read(start="now")


def test_text_has_to_be_text(c: ServedCluster) -> None:
    with Producer(c.bootstrap) as producer:
        producer.send("binary", b"\xff").result(30)
    with pytest.raises(UsageError, match="binary: a value is no UTF-8"):
        read_topic("binary", bootstrap_servers=c.bootstrap, text=True)


def test_any_frame_can_be_sent(c: ServedCluster) -> None:
    rows = {"k": ["a", "b"], "n": [1, 2]}
    frames = [
        pa.table(rows),
        pa.table(rows).to_batches()[0],
        pd.DataFrame(rows),
        pl.DataFrame(rows),
        duckdb.sql("SELECT 'a' AS k, 1 AS n UNION ALL SELECT 'b', 2"),
    ]
    with Producer(c.bootstrap) as producer:
        told: list[Any] = []
        for number, frame in enumerate(frames):
            sent = producer.send_table(f"frame-{number}", frame, key="k")
            sent.add_done_callback(told.append)
            assert sent.exception(30) is None and sent.result().rows == 2
        with pytest.raises(UsageError, match="send_table takes a pyarrow Table, a frame of"):
            producer.send_table("frame-0", [1, 2])  # type: ignore[arg-type]
        assert len(told) == len(frames)
    for number in range(len(frames)):
        found = read_topic(f"frame-{number}", bootstrap_servers=c.bootstrap, text=True).to_polars()
        assert sorted(found["value"]) == ['{"n":1}', '{"n":2}']


def test_configurations_with_confluents_names(c: ServedCluster) -> None:
    config = {
        "bootstrap.servers": c.bootstrap,
        "client.id": "mine",
        "acks": "all",
        "queue.buffering.max.ms": "5",
        "queue.buffering.max.kbytes": 1024,
        "compression.codec": "gzip",
        "enable.idempotence": "true",
        "partitioner": "murmur2_random",
    }
    with Producer.from_config(config) as producer:
        producer.send("configured", b"v").result(30)
        assert producer.statistics().buffer_bytes_max == 1024 * 1024
    options = {
        "bootstrap.servers": c.bootstrap,
        "group.id": "configured",
        "auto.offset.reset": "smallest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "partition.assignment.strategy": "range,roundrobin",
        "consumer_timeout_ms": 5000,
    }
    with Consumer.from_config(options, "configured") as consumer:
        assert next(iter(consumer)).value == b"v"
    with Admin.from_config({"metadata.broker.list": c.bootstrap}) as admin:
        assert "configured" in admin.list_topics()
    assert AsyncProducer.from_config(config) and AsyncConsumer.from_config(options, "configured")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"linger": 5}, "Producer has no option 'linger'; did you mean 'linger_ms'"),
        ({"linger.ms": "soon"}, "linger.ms is 'soon': give a number"),
        ({"enable.idempotence": "maybe"}, "enable.idempotence is 'maybe': give true or false"),
        ({"statistics.interval.ms": 5}, r"'statistics.interval.ms': call statistics\(\)"),
        ({"error_cb": print}, "'error_cb': give on_error"),
        ({"ssl.ca.location": "/nowhere.pem"}, "ssl.ca.location is '/nowhere.pem', which cannot"),
        ({"partitioner": "fnv1a"}, "partitioner is 'fnv1a'"),
    ],
)
def test_a_configuration_that_cannot_be_is_named(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Producer.from_config({"bootstrap.servers": NOWHERE, **config})
