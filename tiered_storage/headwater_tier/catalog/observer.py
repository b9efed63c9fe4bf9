"""What the catalog takes from the brokers: log ends, leader epochs, and the groups' offsets."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from headwater.client.admin.client import Admin
from headwater.client.blocking.record_client import LATEST
from headwater.client.values import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
)
from headwater.errors import HeadwaterError
from headwater.ids import id_text
from headwater_tier.catalog.rows import COORDINATOR_TOPICS, NOT_KEPT_GROUPS, Key, Kind, dump

logger = logging.getLogger(__name__)

NO_LEADER = -1


class BrokerView(Protocol):
    """The calls of `Admin` that the observer makes."""

    def list_topics(self, *, include_internal: bool = False) -> list[str]: ...

    def describe_topics(self, topics: Any) -> dict[str, TopicDescription]: ...

    def list_offsets(self, wanted: Any) -> dict[TopicPartition, OffsetAndTimestamp]: ...

    def list_groups(self) -> list[Any]: ...

    def list_group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]: ...


class BrokerObserver:
    """Reads from brokers by public requests. What does not answer keeps its former row."""

    def __init__(self, admin: Admin | BrokerView) -> None:
        self._admin = admin

    def ends(self) -> dict[Key, str]:
        """Topic -> its id, and per partition (log end, leader epoch); partitions without a leader
        are left out."""
        names = [
            name
            for name in self._admin.list_topics(include_internal=True)
            if name not in COORDINATOR_TOPICS
        ]
        topics = self._admin.describe_topics(names) if names else {}
        led = {
            TopicPartition(name, p.partition): p.leader_epoch
            for name, topic in topics.items()
            for p in topic.partitions
            if p.leader != NO_LEADER
        }
        found = self._admin.list_offsets(dict.fromkeys(led, LATEST)) if led else {}
        rows: dict[Key, str] = {}
        for name, topic in topics.items():
            ends = {
                str(p.partition): [found[key].offset, led[key]]
                for p in topic.partitions
                if (key := TopicPartition(name, p.partition)) in found
            }
            rows[Kind.ENDS, name] = dump({"id": id_text(topic.topic_id), "ends": ends})
        return rows

    def groups(self) -> dict[Key, str]:
        """Group -> its committed offsets."""
        rows: dict[Key, str] = {}
        for listing in self._admin.list_groups():
            if listing.group_id in NOT_KEPT_GROUPS:
                continue
            try:
                offsets = self._admin.list_group_offsets(listing.group_id)
            except HeadwaterError as error:
                logger.info("offsets of group %s are not read: %s", listing.group_id, error)
                continue
            if offsets:
                rows[Kind.GROUP, listing.group_id] = dump({"offsets": _by_topic(offsets)})
        return rows


def _by_topic(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> dict[str, dict[str, list[Any]]]:
    found: dict[str, dict[str, list[Any]]] = {}
    for (topic, partition), at in offsets.items():
        found.setdefault(topic, {})[str(partition)] = [at.offset, at.metadata]
    return found


def merged_ends(former: str | None, now: str) -> str:
    """The ends of `now`; partitions that are missing there as they were in `former`, if it is the
    same topic. An end never falls: the larger one counts."""
    if former is None:
        return now
    before, after = json.loads(former), json.loads(now)
    if before["id"] != after["id"]:
        return now
    ends = dict(before["ends"])
    for partition, (end, epoch) in after["ends"].items():
        known_end, known_epoch = ends.get(partition, (0, 0))
        ends[partition] = [max(end, known_end), max(epoch, known_epoch)]
    return dump({"id": after["id"], "ends": ends})
