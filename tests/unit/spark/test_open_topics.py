"""What a union read is bound to; connections and the table stay open between reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import Admin, Producer
from headwater.client.values import NewTopic
from headwater.errors import UsageError
from headwater.testing.clocks import ManualClock
from headwater_spark.source.open_topics import LOCATION_S, OpenTopics, Place, UnionTopic
from headwater_spark.task_security import NO_SECURITY
from headwater_tier.delta import Change, LogTable
from headwater_tier.table_names import TableLocation
from whole_cluster import ServedCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    folder = tmp_path_factory.mktemp("union")
    tables = (folder / "tables").as_uri()
    with ServedCluster(folder / "cluster", 1, headwater_tables_uri=tables) as served:
        yield served


def create(cluster: ServedCluster, topic: str) -> Place:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    return Place(cluster.bootstrap, topic, NO_SECURITY, None, ())


def send(cluster: ServedCluster, topic: str, count: int) -> None:
    with Producer(cluster.bootstrap) as producer:
        for i in range(count):
            producer.send(topic, b"%d" % i, partition=0)


def tier(at: TableLocation, end: int) -> None:
    LogTable.create(at, 1).commit(Change("tier", 0, ends={0: end}, starts={0: 0}))


def test_a_kept_topic_sees_what_came_since_its_last_read(cluster: ServedCluster) -> None:
    place, topics = create(cluster, "seen"), OpenTopics()
    with topics.use(place) as first:
        at = first.find()
        assert first.history(at) is None
        assert first.offsets() == ({("seen", 0): 0}, {("seen", 0): 0})
    send(cluster, "seen", 5)
    tier(at, 3)
    with topics.use(place) as second:
        assert second is first
        found = second.history(second.find())
        assert found is not None and found.ranges == {0: (0, 3)}
        assert second.offsets() == ({("seen", 0): 0}, {("seen", 0): 5})
    tier(at, 5)
    with topics.use(place) as third, topics.use(place) as beside:
        assert beside is not third
        found = third.history(third.find())
        assert found is not None and (found.version, found.ranges) == (2, {0: (0, 5)})
    with topics.use(place) as kept:
        assert kept in (third, beside)
        kept.close()


def test_a_topic_that_was_created_again_has_another_table(cluster: ServedCluster) -> None:
    place, topics = create(cluster, "again"), OpenTopics()
    with topics.use(place) as topic:
        before, topic_id = topic.find(), topic.topic_id
        tier(before, 9)
        assert topic.history(before) is not None
    with Admin(cluster.bootstrap) as admin:
        admin.delete_topics(["again"])
    create(cluster, "again")
    with topics.use(place) as topic:
        now = topic.find()
        assert now != before and topic.topic_id != topic_id
        assert topic.history(now) is None
        topic.close()


def test_a_topic_is_not_kept_after_an_error(cluster: ServedCluster) -> None:
    place, topics = create(cluster, "refused"), OpenTopics()
    with pytest.raises(UsageError, match="the caller's"), topics.use(place) as first:
        raise UsageError("the caller's error")
    with topics.use(place) as second:
        assert second is not first
        second.close()


def test_a_tables_place_is_asked_for_again_after_a_while(
    cluster: ServedCluster, tmp_path: Path
) -> None:
    place, clock = create(cluster, "moved"), ManualClock()
    topic = UnionTopic(place, clock)
    before = topic.find()
    with Admin(cluster.bootstrap) as admin:
        admin.alter_configs("topic", "moved", {"headwater.table.uri": tmp_path.as_uri()})
    assert topic.find() == before
    clock.advance(int(LOCATION_S * 1000))
    assert topic.find().uri.startswith(tmp_path.as_uri())
    topic.close()
