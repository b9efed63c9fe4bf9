"""The metadata cache: which updates of the controller it applies, and how it merges them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from headwater.errors import ErrorCode
from headwater.wire.control import (
    ConfigEntry,
    LiveBroker,
    PartitionState,
    TopicState,
    UpdateMetadataRequest,
)
from headwater_broker.metadata.cache import MetadataCache, MetadataDelta

OLD, NEW = UUID(int=1), UUID(int=2)


def update(*partitions: PartitionState, **more: Any) -> UpdateMetadataRequest:
    values = {"controller_id": 1, "controller_epoch": 5, "broker_epoch": 7, "cluster_id": "c"}
    return UpdateMetadataRequest(partitions=partitions, **{**values, **more})


def row(partition: int, leader: int, topic_id: UUID = OLD) -> PartitionState:
    return PartitionState(
        topic="t", topic_id=topic_id, partition=partition, leader_id=leader,
        leader_epoch=0, partition_epoch=0, isr=(leader,), replicas=(1, 2),
    )  # fmt: skip


def topic(topic_id: UUID = OLD, *, deleted: bool = False, **configs: str) -> TopicState:
    entries = tuple(ConfigEntry(name=k, value=v) for k, v in configs.items())
    return TopicState(topic="t", topic_id=topic_id, configs=entries, deleted=deleted)


def brokers(*ids: int) -> tuple[LiveBroker, ...]:
    return tuple(LiveBroker(broker_id=b, broker_epoch=1, control_address="") for b in ids)


@pytest.fixture
def view() -> MetadataCache:
    made = MetadataCache("c", lambda: 7)
    told = update(row(0, 1), row(1, 2), full=True, topics=(topic(),), brokers=brokers(1, 2))
    assert made.apply(told) is ErrorCode.NONE
    return made


def leaders(view: MetadataCache) -> dict[int, int]:
    known = view.topics.get("t")
    return {} if known is None else {p: s.leader_id for p, s in known.partitions.items()}


@pytest.mark.parametrize(
    ("told", "answer"),
    [
        ({"controller_epoch": 4}, ErrorCode.STALE_CONTROLLER_EPOCH),
        ({"broker_epoch": 6}, ErrorCode.STALE_BROKER_EPOCH),
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({}, ErrorCode.NONE),
        ({"controller_epoch": 6, "broker_epoch": 8}, ErrorCode.NONE),
    ],
)
def test_updates_of_deposed_controllers_and_earlier_registrations_are_ignored(
    view: MetadataCache, told: dict[str, Any], answer: ErrorCode
) -> None:
    assert view.apply(update(row(0, 2), brokers=brokers(1), **told)) is answer
    is_taken = answer is ErrorCode.NONE
    assert leaders(view) == ({0: 2, 1: 2} if is_taken else {0: 1, 1: 2})
    assert sorted(view.brokers) == ([1] if is_taken else [1, 2])
    assert view.controller_epoch == (told.get("controller_epoch", 5) if is_taken else 5)


def test_what_was_overtaken_counts_no_more(view: MetadataCache) -> None:
    """An update that arrives after a later one would otherwise stay until the next change."""
    changes: list[MetadataDelta] = []
    newer = update(row(0, 2), topics=(topic(a="2"),), brokers=brokers(1, 2, 3), sequence=12)
    assert view.apply(newer) is ErrorCode.NONE
    view.on_change.append(changes.append)
    older = update(row(0, 1), topics=(topic(a="1"),), brokers=brokers(1, 2), sequence=11)
    assert view.apply(older) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert changes == []
    assert leaders(view) == {0: 2, 1: 2}
    assert (view.topics["t"].configs, sorted(view.brokers)) == ({"a": "2"}, [1, 2, 3])
    assert view.apply(update(row(0, 1), sequence=1, controller_epoch=6)) is ErrorCode.NONE


def test_brokers_are_replaced_and_partitions_are_merged(view: MetadataCache) -> None:
    before = view.topics["t"].partitions
    view.apply(update(row(1, 1), row(2, 3), brokers=brokers(3)))
    assert leaders(view) == {0: 1, 1: 1, 2: 3}
    assert sorted(view.brokers) == [3]
    assert {p: s.leader_id for p, s in before.items()} == {0: 1, 1: 2}, "readers keep what they saw"


def test_a_full_word_replaces_everything(view: MetadataCache) -> None:
    changes: list[MetadataDelta] = []
    view.on_change.append(changes.append)
    view.apply(update(full=True, brokers=brokers(1)))
    assert (view.topics, view.topic_by_id) == ({}, {})
    assert changes[-1].deleted == {"t"}


def test_only_the_topic_that_was_deleted_goes(view: MetadataCache) -> None:
    view.apply(update(row(0, 2, NEW), topics=(topic(NEW),), brokers=brokers(1, 2)))
    assert leaders(view) == {0: 2}, "another topic of that name takes over nothing"
    view.apply(update(topics=(topic(OLD, deleted=True),), brokers=brokers(1, 2)))
    assert leaders(view) == {0: 2}
    view.apply(update(row(1, 1, OLD), brokers=brokers(1, 2)))
    assert leaders(view) == {0: 2}, "a late word about the old one"
    view.apply(update(topics=(topic(NEW, deleted=True),), brokers=brokers(1, 2)))
    assert view.topics == {}


def test_a_topic_whose_name_another_one_has_at_once_is_deleted_all_the_same(
    view: MetadataCache,
) -> None:
    """Groups would have continued in the new topic at their offsets of the old one."""
    changes: list[MetadataDelta] = []
    view.on_change.append(changes.append)
    both = (topic(OLD, deleted=True), topic(NEW))
    view.apply(update(row(0, 1, NEW), topics=both, brokers=brokers(1, 2)))
    view.apply(update(row(0, 2, NEW), topics=(topic(NEW, a="1"),), brokers=brokers(1, 2)))
    view.apply(update(topics=(topic(OLD, deleted=True),), brokers=brokers(1, 2)))
    view.apply(update(row(0, 1), full=True, topics=(topic(),), brokers=brokers(1, 2)))
    view.apply(update(row(0, 1), full=True, topics=(topic(),), brokers=brokers(1, 2)))
    nothing: frozenset[str] = frozenset()
    assert [change.deleted for change in changes] == [{"t"}, nothing, nothing, {"t"}, nothing]
    assert leaders(view) == {0: 1}


def test_only_changed_configs_are_reported(view: MetadataCache) -> None:
    changes: list[MetadataDelta] = []
    view.on_change.append(changes.append)
    for told in (topic(a="1"), topic(a="1"), topic()):
        view.apply(update(topics=(told,), brokers=brokers(1, 2)))
    assert [change.configs for change in changes] == [{"t"}, frozenset(), {"t"}]
    assert leaders(view) == {0: 1, 1: 2}


def test_a_broker_known_to_be_dead_is_named_no_more_until_the_controller_says_so(
    view: MetadataCache,
) -> None:
    told: list[list[int]] = []
    view.on_brokers.append(lambda: told.append(sorted(view.brokers)))
    view.hide_broker(2)
    assert sorted(view.brokers) == [1]
    view.apply(update(brokers=brokers(1, 2)))
    assert sorted(view.brokers) == [1, 2]
    assert told == [[1], [1, 2]], "the status page notes when"
