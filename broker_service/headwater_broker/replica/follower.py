"""A follower without I/O: its fetch session, and the reaction to each answer. Pure.

The fetch position of a follower is its log end offset; no other position is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from headwater.errors import ErrorCode
from headwater_broker.replica.follower_fetch_codec import PartitionFetch

NO_SESSION = 0
FULL_EPOCH = 0
"""A full fetch: it names every partition and opens a session."""
_EPOCH_MAX = 2**31 - 1
FIRST_PAUSE_DIVISOR = 50
"""The first pause after an error is replica.fetch.backoff.ms over this; then pauses double."""

Key = tuple[bytes, int]


class SessionFetch(NamedTuple):
    """One fetch of a session: partitions that are new or changed, and those to forget."""

    session_id: int
    session_epoch: int
    partitions: list[PartitionFetch]
    forgotten: list[Key]


SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Errors of a whole reply that a full fetch at once mends; others would come again."""


class FetchSession:
    """The follower's half of an incremental fetch session (KIP-227)."""

    __slots__ = ("_epoch", "_id", "_sent")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._sent: dict[Key, PartitionFetch | None] = {}
        """The partitions that the leader knows; None: to be sent again, whatever was sent."""

    @property
    def is_full(self) -> bool:
        """The next fetch names every partition."""
        return self._epoch == FULL_EPOCH

    def is_empty_after(self, changes: Mapping[Key, PartitionFetch | None]) -> bool:
        """True when a fetch with `changes` would fetch no partition at all."""
        if any(partition is not None for partition in changes.values()):
            return False
        return len(changes) >= len(self._sent) and all(key in changes for key in self._sent)

    def plan(self, changes: Mapping[Key, PartitionFetch | None]) -> SessionFetch:
        """The next fetch; `changes` of an incremental fetch are the changed partitions, of a full
        fetch all of them. None: do not fetch the partition now.
        """
        sent = self._sent
        partitions: list[PartitionFetch] = []
        forgotten: list[Key] = []
        for key, partition in changes.items():
            if partition is None:
                if key in sent:
                    del sent[key]
                    forgotten.append(key)
            elif sent.get(key) != partition:
                sent[key] = partition
                partitions.append(partition)
        return SessionFetch(self._id, self._epoch, partitions, forgotten)

    def sent(self, key: Key) -> PartitionFetch | None:
        """The fetch of a partition that the leader answers now; None: it answers an older one."""
        return self._sent.get(key)

    def on_reply(self, error: ErrorCode, session_id: int) -> bool:
        """Apply the head of a reply. False: the session is gone, the next fetch is a full one."""
        if error is not ErrorCode.NONE:
            self.reset()
            return False
        if session_id == NO_SESSION:
            self.reset()
            return True
        self._id = session_id
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        return True

    def resend(self, key: Key) -> None:
        """Name this partition in the next fetch, whatever was sent before."""
        if key in self._sent:
            self._sent[key] = None

    def reset(self) -> None:
        """Make the next fetch full; it names the old session, so that the leader drops it."""
        self._epoch = FULL_EPOCH
        self._sent = {}


class Reaction(Enum):
    """A follower's action on the answer for one partition."""

    APPEND = "append the records, follow high watermark and log start"
    TRUNCATE = "truncate where the logs diverge"
    FIND_RANGE = "look up the leader's range of offsets"
    START_AT_LOCAL = "start at the leader's local log start, with its producer state"
    RETRY = "pause, then fetch again"
    AWAIT_CONTROLLER = "LeaderAndIsr with another leader epoch follows: fetch rarely until then"


_REACTIONS: dict[ErrorCode, Reaction] = {
    ErrorCode.NONE: Reaction.APPEND,
    ErrorCode.OFFSET_OUT_OF_RANGE: Reaction.FIND_RANGE,
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: Reaction.START_AT_LOCAL,
    ErrorCode.FENCED_LEADER_EPOCH: Reaction.AWAIT_CONTROLLER,
    ErrorCode.INCONSISTENT_TOPIC_ID: Reaction.AWAIT_CONTROLLER,
}


def reaction(error: ErrorCode, *, diverges: bool) -> Reaction:
    """The reaction to one partition's answer; an error without a row of its own is retried.

    UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER and UNKNOWN_TOPIC_ID mean that the leader has not
    applied its LeaderAndIsr yet: the controller sends it to all replicas at once, in no order.
    """
    if error is ErrorCode.NONE and diverges:
        return Reaction.TRUNCATE
    return _REACTIONS.get(error, Reaction.RETRY)


class Restart(NamedTuple):
    """After FIND_RANGE: truncate to `offset`, or (`is_full`) truncate fully and start there."""

    offset: int
    is_full: bool


def after_out_of_range(own_end: int, leader_start: int, leader_end: int) -> Restart:
    """The leader answered OFFSET_OUT_OF_RANGE for the follower's log end.

    It ends before the follower's: an unclean election; truncate to its end and let the epochs
    decide the rest. Otherwise it starts behind it (retention, DeleteRecords): start there.
    """
    if leader_end < own_end:
        return Restart(leader_end, False)
    return Restart(max(leader_start, own_end), True)


def pause_ms(failures: int, longest_ms: int) -> float:
    """The pause after the n-th failure in a row (1: the first)."""
    first = longest_ms / FIRST_PAUSE_DIVISOR
    return min(float(longest_ms), first * (1 << min(failures - 1, 30)))
