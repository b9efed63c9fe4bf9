"""Logs of the same name in several data folders: which of them is the replica's.

While a data folder is offline its replicas are created in another one; then the folder may come
back. The copy in it may be the longer one, and still lack what was committed since. Raft's election
rule decides: the log whose last record has the later epoch, then the one with the higher end
offset, has everything that the other one could have acknowledged.

The topic itself may have been deleted and created again meanwhile. The two logs then have different
topic ids; both stay as they are until the controller names the topic id.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from headwater_broker.log.log_creation import Key
from headwater_broker.log.unified_log import UnifiedLog


class DuplicateLogs:
    """All logs of a broker: one for each name, and others of the same name."""

    def __init__(self, logs: dict[Key, UnifiedLog]) -> None:
        self._logs = logs
        self._others: list[UnifiedLog] = []

    def __iter__(self) -> Iterator[UnifiedLog]:
        """All logs, duplicates included."""
        yield from self._logs.values()
        yield from self._others

    def find(self, key: Key, topic_id: UUID) -> UnifiedLog | None:
        """The log of a topic, or None."""
        log = self._logs.get(key)
        if log is not None and log.topic_id == topic_id:
            return log
        return next((other for other in self._named(key) if other.topic_id == topic_id), None)

    def add(self, log: UnifiedLog) -> UnifiedLog | None:
        """Add a log found at start. Returns the copy of the same topic that must not be used: this
        log or the one added before; None when there is only one."""
        key = log.topic, log.partition
        copy = self.find(key, log.topic_id)
        if copy is not None and not is_more_complete(log, copy):
            return log
        if copy is not None:
            self.remove(copy)
        if self._logs.setdefault(key, log) is not log:
            self._others.append(log)
        return copy

    def assign_name(self, key: Key, topic_id: UUID) -> list[UnifiedLog]:
        """Give the name to this topic, and to its log if there is one. The logs of other topics
        with this name are removed and returned."""
        mine = self.find(key, topic_id)
        named = [self._logs[key]] if key in self._logs else []
        others = [log for log in (*named, *self._named(key)) if log is not mine]
        for log in others:
            self.remove(log)
        if mine is not None and self._logs.get(key) is not mine:
            self._others.remove(mine)
            self._logs[key] = mine
        return others

    def remove(self, log: UnifiedLog) -> None:
        """The log is deleted or its disk failed."""
        key = log.topic, log.partition
        if self._logs.get(key) is log:
            del self._logs[key]
        else:
            self._others.remove(log)

    def _named(self, key: Key) -> list[UnifiedLog]:
        return [log for log in self._others if (log.topic, log.partition) == key]


def is_more_complete(one: UnifiedLog, other: UnifiedLog) -> bool:
    """Whether `one` is to be kept rather than `other`."""
    if _is_empty(one) or _is_empty(other):
        # An empty log has no last epoch: all its records may have been deleted. Everything below a
        # log's start was committed, so its offsets must not be assigned again.
        return one.log_end_offset > other.log_end_offset
    return _last_written(one) > _last_written(other)


def _is_empty(log: UnifiedLog) -> bool:
    return log.local_log_start_offset == log.log_end_offset


def _last_written(log: UnifiedLog) -> tuple[int, int]:
    """(leader epoch of the last record, log end offset)."""
    return log.epochs.epoch_for_offset(log.log_end_offset - 1), log.log_end_offset
