"""A blocking fetch by topic id never returns records of a topic that has taken the name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from headwater import Admin, Producer
from headwater.client.blocking.record_client import RecordClient, ReplacedTopicError
from headwater.client.values import NewTopic
from headwater.columnar.schema import arrow_schema
from headwater.ids import id_text
from headwater_spark.options import READ_COMMITTED
from headwater_spark.source.input_partitions import Split
from headwater_spark.source.read_task import OffsetsLostError, ReadTask, read
from whole_cluster import ServedCluster


@pytest.fixture
def c(tmp_path: Path) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path / "cluster", 1) as cluster:
        yield cluster


def filled(c: ServedCluster, text: bytes, *, anew: bool = False) -> UUID:
    """The topic's id, with three records in it."""
    with Admin(c.bootstrap) as admin:
        if anew:
            admin.delete_topics(["t"])
        admin.create_topics([NewTopic("t", 1, 1)])
    with Producer(c.bootstrap) as producer:
        for _ in range(3):
            producer.send("t", text).result(30)
    with RecordClient(c.bootstrap) as client:
        return client.metadata(["t"])["t"].topic_id


def task(c: ServedCluster, topic_id: UUID, *, fails: bool) -> ReadTask:
    return ReadTask(
        split=Split("t", 0, 0, 3, topic_id=id_text(topic_id)),
        bootstrap_servers=c.bootstrap,
        isolation_level=READ_COMMITTED,
        fail_on_data_loss=fails,
        schema=arrow_schema(["value"]),
    )


def test_a_topic_created_again_is_not_read_under_its_old_id(c: ServedCluster) -> None:
    old = filled(c, b"old")
    with RecordClient(c.bootstrap) as client:
        rows = list(client.stream_batches("t", 0, 0, 3, topic_id=old))
        assert rows[-1].next_offset == 3 and b"old" in bytes(rows[0].records)
        new = filled(c, b"new", anew=True)
        assert new != old
        with pytest.raises(ReplacedTopicError, match=f"id {old}, now {new}"):
            list(client.stream_batches("t", 0, 0, 3, topic_id=old))
        rows = list(client.stream_batches("t", 0, 0, 3, topic_id=new))
        assert b"new" in bytes(rows[0].records)


def test_a_task_of_a_replaced_topic_fails_or_reads_nothing(c: ServedCluster) -> None:
    old = filled(c, b"old")
    new = filled(c, b"new", anew=True)
    with pytest.raises(OffsetsLostError, match=r"offsets 0 to 2 of t-0 were planned, but .* gone"):
        list(read(task(c, old, fails=True)))
    assert list(read(task(c, old, fails=False))) == []
    (batch,) = read(task(c, new, fails=True))
    assert batch.column(0).to_pylist() == [b"new"] * 3
