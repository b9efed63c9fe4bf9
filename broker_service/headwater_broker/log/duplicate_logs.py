"""Data folders with logs of one name: which of them is it?

While a folder is offline its replicas are made anew in another one, and then it may come back. The
copy that was left behind may be the longer one, and still lack what was committed since. Raft's
rule of elections tells them apart: the later epoch of the last record, then the higher end, has
everything that the other could have promised to anybody.

The topic itself may have been deleted meanwhile, and made anew: logs of two topic ids, of which the
controller tells the right one. Until then both stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from headwater_broker.log.log_creation import Key
from headwater_broker.log.unified_log import UnifiedLog


class DuplicateLogs:
    """The logs of a broker: those that have their name, and others of the same name."""

    def __init__(self, logs: dict[Key, UnifiedLog]) -> None:
        self._logs = logs
        self._others: list[UnifiedLog] = []

    def __iter__(self) -> Iterator[UnifiedLog]:
        """All of them."""
        yield from self._logs.values()
        yield from self._others

    def find(self, key: Key, topic_id: UUID) -> UnifiedLog | None:
        """The log of a topic."""
        log = self._logs.get(key)
        if log is not None and log.topic_id == topic_id:
            return log
        return next((other for other in self._named(key) if other.topic_id == topic_id), None)

    def add(self, log: UnifiedLog) -> UnifiedLog | None:
        """A log was found at start. Returns another copy of the same topic that is not to be used
        any more: this one, or the one from before."""
        key = log.topic, log.partition
        twin = self.find(key, log.topic_id)
        if twin is not None and not is_more_complete(log, twin):
            return log
        if twin is not None:
            self.remove(twin)
        if self._logs.setdefault(key, log) is not log:
            self._others.append(log)
        return twin

    def settle(self, key: Key, topic_id: UUID) -> list[UnifiedLog]:
        """The name is this topic's, and its log's, if there is one. Returns the others, which are
        logs here no more."""
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
        """It is gone."""
        key = log.topic, log.partition
        if self._logs.get(key) is log:
            del self._logs[key]
        else:
            self._others.remove(log)

    def _named(self, key: Key) -> list[UnifiedLog]:
        return [log for log in self._others if (log.topic, log.partition) == key]


def is_more_complete(one: UnifiedLog, other: UnifiedLog) -> bool:
    """True when `one` is to be kept."""
    if _is_empty(one) or _is_empty(other):
        # No record tells of an epoch, as all may have been deleted: what lies below a log's start
        # was committed, and its offsets must not be given out again.
        return one.log_end_offset > other.log_end_offset
    return _last_written(one) > _last_written(other)


def _is_empty(log: UnifiedLog) -> bool:
    return log.local_log_start_offset == log.log_end_offset


def _last_written(log: UnifiedLog) -> tuple[int, int]:
    """(leader epoch of the last record, log end offset)."""
    return log.epochs.epoch_for_offset(log.log_end_offset - 1), log.log_end_offset
