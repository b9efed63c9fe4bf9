"""The follower's side without I/O: fetch sessions, and what to do about each answer. Pure.

What a follower holds is its log's end: no offset is remembered beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from headwater.errors import ErrorCode
from headwater_broker.replica.follower_fetch_codec import FetchAsk

NO_SESSION = 0
FULL_EPOCH = 0
"""A full fetch: names every partition, and opens a session."""
_EPOCH_MAX = 2**31 - 1
FIRST_PAUSE_DIVISOR = 50
"""The first pause after an error is this part of replica.fetch.backoff.ms; it doubles."""

Key = tuple[bytes, int]


class SessionPlan(NamedTuple):
    """What one fetch names: partitions that are new or changed, and those to forget."""

    session_id: int
    session_epoch: int
    asks: list[FetchAsk]
    forgotten: list[Key]


SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Of a whole reply: a full fetch at once is the cure. Any other error it would meet again."""


class FetchSession:
    """The client's half of an incremental fetch session (KIP-227)."""

    __slots__ = ("_epoch", "_id", "_sent")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._sent: dict[Key, FetchAsk | None] = {}
        """What the leader knows; None: another ask than any that may be made now."""

    @property
    def is_full(self) -> bool:
        """The next fetch names every partition."""
        return self._epoch == FULL_EPOCH

    def is_empty_after(self, changes: Mapping[Key, FetchAsk | None]) -> bool:
        """True when a fetch with `changes` would ask for nothing at all."""
        if any(ask is not None for ask in changes.values()):
            return False
        return len(changes) >= len(self._sent) and all(key in changes for key in self._sent)

    def plan(self, changes: Mapping[Key, FetchAsk | None]) -> SessionPlan:
        """What to send when these have changed; None: not to be fetched now. `changes` of a full
        fetch are all there are.
        """
        sent = self._sent
        asks: list[FetchAsk] = []
        forgotten: list[Key] = []
        for key, ask in changes.items():
            if ask is None:
                if key in sent:
                    del sent[key]
                    forgotten.append(key)
            elif sent.get(key) != ask:
                sent[key] = ask
                asks.append(ask)
        return SessionPlan(self._id, self._epoch, asks, forgotten)

    def told(self, key: Key) -> FetchAsk | None:
        """What the leader was asked of a partition, if it answers that now."""
        return self._sent.get(key)

    def answered(self, error: ErrorCode, session_id: int) -> bool:
        """Take the reply's head. False: the session is gone, the next fetch is a full one."""
        if error is not ErrorCode.NONE:
            self.reset()
            return False
        if session_id == NO_SESSION:
            self.reset()
            return True
        self._id = session_id
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        return True

    def forget(self, key: Key) -> None:
        """Name this partition again in the next fetch, whatever was sent before."""
        if key in self._sent:
            self._sent[key] = None

    def reset(self) -> None:
        """The next fetch is full. The old session's id goes along, so that the leader drops it."""
        self._epoch = FULL_EPOCH
        self._sent = {}


class Reaction(Enum):
    """What a follower does about one partition of a reply."""

    APPEND = "append the records, follow the marks"
    TRUNCATE = "cut where the leader says that the logs part"
    FIND_RANGE = "ask the leader for its range of offsets"
    START_AT_LOCAL = "begin at the leader's local start, with its producer state"
    RETRY = "pause, then fetch again"
    AWAIT_CONTROLLER = "another leader epoch is on its way: fetch rarely until it is here"


_REACTIONS: dict[ErrorCode, Reaction] = {
    ErrorCode.NONE: Reaction.APPEND,
    ErrorCode.OFFSET_OUT_OF_RANGE: Reaction.FIND_RANGE,
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: Reaction.START_AT_LOCAL,
    ErrorCode.FENCED_LEADER_EPOCH: Reaction.AWAIT_CONTROLLER,
    ErrorCode.INCONSISTENT_TOPIC_ID: Reaction.AWAIT_CONTROLLER,
}


def reaction(error: ErrorCode, *, diverges: bool) -> Reaction:
    """The reaction to one partition's answer; every error without a row of its own is retried.

    UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER and UNKNOWN_TOPIC_ID mean that the leader has not
    heard of its role yet: the controller tells all replicas at once, in no order.
    """
    if error is ErrorCode.NONE and diverges:
        return Reaction.TRUNCATE
    return _REACTIONS.get(error, Reaction.RETRY)


class RangeDecision(NamedTuple):
    """After FIND_RANGE: cut to `offset`, or (`restart`) drop all and begin there."""

    offset: int
    restart: bool


def after_out_of_range(own_end: int, leader_start: int, leader_end: int) -> RangeDecision:
    """The leader refused our log end as an offset.

    It ends before ours: an unclean election, cut to its end and let the epochs decide the rest.
    Otherwise its log begins after our end (retention, DeleteRecords): begin where it begins.
    """
    if leader_end < own_end:
        return RangeDecision(leader_end, False)
    return RangeDecision(max(leader_start, own_end), True)


def pause_ms(failures: int, longest_ms: int) -> float:
    """How long to wait after the n-th failure in a row (1 is the first)."""
    first = longest_ms / FIRST_PAUSE_DIVISOR
    return min(float(longest_ms), first * (1 << min(failures - 1, 30)))
