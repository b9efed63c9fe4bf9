"""One scrape of a cluster: brokers, partitions, offsets, groups (by `Admin` only)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.client.admin.client import EARLIEST, LATEST, Admin
from headwater.client.values import Broker, PartitionDescription, TopicPartition
from headwater.errors import KafkaError, UsageError

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A consumer group: its members and committed offsets."""

    members: int
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """One look at a cluster. Offsets are absent for partitions whose leader did not answer."""

    brokers: tuple[Broker, ...] = ()
    partitions: Mapping[TopicPartition, PartitionDescription] = field(default_factory=dict)
    oldest: Mapping[TopicPartition, int] = field(default_factory=dict)
    newest: Mapping[TopicPartition, int] = field(default_factory=dict)
    groups: Mapping[str, GroupFacts] = field(default_factory=dict)

    def lag(self, group: str, partition: TopicPartition) -> int | None:
        """Offsets that `group` has not committed; None while the partition's end is unknown."""
        end = self.newest.get(partition)
        if end is None:
            return None
        return max(end - self.groups[group].offsets[partition], 0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The topics and groups to tell of: whole names that match, as in kafka_exporter."""

    topics: re.Pattern[str]
    groups: re.Pattern[str]

    @classmethod
    def parse(cls, topics: str, groups: str) -> Wanted:
        """Raises UsageError for a pattern that is none."""
        return cls(_pattern("--topics", topics), _pattern("--groups", groups))


def read_facts(admin: Admin, wanted: Wanted) -> ClusterFacts:
    """Ask the cluster once. Raises KafkaError when it cannot be reached."""
    cluster = admin.describe_cluster()
    names = [name for name in admin.list_topics() if wanted.topics.fullmatch(name)]
    partitions = {
        TopicPartition(topic.name, one.partition): one
        for topic in admin.describe_topics(names).values()
        for one in topic.partitions
    }
    led = [name for name, one in partitions.items() if one.leader != NO_LEADER]
    return ClusterFacts(
        brokers=cluster.brokers,
        partitions=partitions,
        oldest=_offsets(admin, led, EARLIEST),
        newest=_offsets(admin, led, LATEST),
        groups=_groups(admin, wanted),
    )


def _offsets(admin: Admin, names: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
    if not names:
        return {}
    found = admin.list_offsets(dict.fromkeys(names, at))
    return {name: row.offset for name, row in found.items()}


def _groups(admin: Admin, wanted: Wanted) -> dict[str, GroupFacts]:
    names = [g.group_id for g in admin.list_groups() if wanted.groups.fullmatch(g.group_id)]
    if not names:
        return {}
    facts = {}
    for name, description in admin.describe_groups(names).items():
        try:
            offsets = admin.list_group_offsets(name)
        except KafkaError:  # deleted since it was listed, or its coordinator moves: the next scrape
            continue
        committed = {
            partition: row.offset
            for partition, row in offsets.items()
            if row.offset >= 0 and wanted.topics.fullmatch(partition.topic)
        }
        facts[name] = GroupFacts(len(description.members), committed)
    return facts


def _pattern(option: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"{option} {text!r} is no regular expression: {error}") from None
