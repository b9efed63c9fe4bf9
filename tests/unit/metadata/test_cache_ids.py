"""The metadata cache's topics by name and by id, after any updates."""

from __future__ import annotations

from uuid import UUID

from headwater.errors import ErrorCode
from headwater.wire.control import PartitionState, TopicState, UpdateMetadataRequest
from headwater_broker.metadata.cache import MetadataCache


def tell(view: MetadataCache, *topics: TopicState, full: bool = False, led: str = "") -> None:
    ids = {t.topic: t.topic_id for t in topics} | {n: t.topic_id for n, t in view.topics.items()}
    states = [PartitionState(topic=led, topic_id=ids[led], partition=0, leader_id=1)] if led else []
    request = UpdateMetadataRequest(
        controller_id=1, controller_epoch=1, broker_epoch=1, cluster_id="c", full=full,
        topics=topics, partitions=tuple(states),
    )  # fmt: skip
    assert view.apply(request) is ErrorCode.NONE
    assert view.topic_by_id == {t.topic_id: t for t in view.topics.values()}


def topic(name: str, number: int, *, deleted: bool = False) -> TopicState:
    return TopicState(topic=name, topic_id=UUID(int=number), deleted=deleted)


def test_the_ids_follow_the_names() -> None:
    view = MetadataCache("c", lambda: 1)
    tell(view, topic("a", 1), topic("b", 2), full=True)
    tell(view, topic("c", 3), led="c")
    tell(view, led="a")
    assert sorted(view.topics) == ["a", "b", "c"]
    assert view.topic_by_id[UUID(int=1)].partitions[0].leader_id == 1
    tell(view, topic("b", 2, deleted=True))
    tell(view, topic("c", 3, deleted=True), topic("c", 4))
    assert sorted(t.int for t in view.topic_by_id) == [1, 4]
    tell(view, topic("a", 5), full=True)
    assert sorted(t.int for t in view.topic_by_id) == [5]
