"""Shared by the parts of a group shard: groups of every kind, deadlines, settings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from headwater_broker.coordinator.common.deadlines import Deadlines
from headwater_broker.coordinator.common.shard import Decision, Now, StoredRecord
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.decided_offsets import DecidedOffsets
from headwater_broker.coordinator.group.group_kind import GroupKind
from headwater_broker.coordinator.group.pending_offsets import PendingOffsets
from headwater_broker.coordinator.group.records import OffsetCommitValue, TopicPartition
from headwater_broker.coordinator.group.timer_keys import TimerKey
from headwater_broker.metadata.group_settings import GroupSettings, GroupSettingsOf


class AnyGroup(Protocol):
    """The part that every kind of group has."""

    group_id: str
    offsets: dict[TopicPartition, OffsetCommitValue]
    """Committed offsets; groups that commit none have an empty dict."""

    @property
    def kind(self) -> GroupKind:
        """Its kind."""
        ...

    @property
    def state(self) -> Enum:
        """Its value is Kafka's name of the state."""
        ...

    @property
    def protocol_type(self) -> str:
        """As ListGroups shows it."""
        ...

    @property
    def members(self) -> Mapping[str, Any]:
        """By member id."""
        ...

    @property
    def is_empty(self) -> bool:
        """True in its state Empty."""
        ...

    def subscribed_topics(self) -> set[str] | None:
        """The topics that its members read; None when unknown."""
        ...


class GroupRules(Protocol):
    """The rules of one kind of groups. A group that is in the table under an id has that id alone:
    rules that replace a group of another kind hand its offsets on."""

    @property
    def record_kinds(self) -> Set[int]:
        """The versions of record keys that are its own."""
        ...

    def replay(self, kind: int, key: bytes, value: bytes | None) -> None:
        """Apply a record of one of `record_kinds`. Raises SchemaError for one that is skipped."""
        ...

    def loaded(self, group: Any, now: Now) -> None:
        """The log is read to its end: start the group's timers."""
        ...

    def due(self, group: Any, keys: Sequence[TimerKey], now: Now) -> Sequence[Decision]:
        """Deadlines of the group have passed; the decisions are right one after the other."""
        ...

    def tombstones(self, group: Any) -> list[StoredRecord]:
        """Of an empty group's records, but not of its offsets."""
        ...


def default_settings(_group_id: str) -> GroupSettings:
    """Of a broker without group configs."""
    return GroupSettings()


@dataclass(slots=True)
class GroupTable:
    """The groups of one partition of `__consumer_offsets`."""

    config: GroupConfig
    settings_of: GroupSettingsOf = default_settings
    groups: dict[str, AnyGroup] = field(default_factory=dict)
    pending_offsets: PendingOffsets = field(default_factory=PendingOffsets)
    decided_offsets: DecidedOffsets = field(default_factory=DecidedOffsets)
    deadlines: Deadlines[TimerKey] = field(default_factory=Deadlines)

    def pending(self, group_id: str) -> Set[TopicPartition]:
        """The partitions whose offset an open transaction may still change."""
        return self.pending_offsets.of_group(group_id)

    def offsets_of(self, group_id: str) -> dict[TopicPartition, OffsetCommitValue]:
        """The offsets that a new group of this id begins with: those of the group that it takes the
        place of."""
        before = self.groups.get(group_id)
        return {} if before is None else before.offsets
