"""The cache of incremental fetch sessions (KIP-227; Kafka's FetchSessionCache), with its eviction.

A session keeps its partitions in an order that rotates: a partition that sent data goes to the
end, so that one busy partition cannot starve the others of a small max_bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError
from headwater_broker.api.api_config import FETCH_SESSION_EVICTION_MS
from headwater_broker.api.fetch_session.dirty_set import DirtyPartitions
from headwater_broker.api.fetch_session.partition import FetchItem, TopicKey
from headwater_broker.security.session import Session

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
EPOCH_MAX = 2**31 - 1

ItemKey = tuple[TopicKey, int]


@dataclass(slots=True)
class FetchSession:
    """The partitions of one session. `epoch`: that of its next request."""

    session_id: int
    uses_topic_ids: bool
    is_follower: bool
    created_ms: int
    last_used_ms: int
    epoch: int = 1
    items: OrderedDict[ItemKey, FetchItem] = field(default_factory=OrderedDict)
    dirty: DirtyPartitions | None = None
    """The partitions that a follower's fetch reads; None: every fetch reads all of them."""
    reader: tuple[Session, int] | None = None
    """Session of the connection that the items were authorized for, and its revision."""

    def check_reader(self, reader: Session) -> None:
        """Locate and authorize all items again when the connection or its rights have changed."""
        known = self.reader
        if known is None or known[0] is not reader or known[1] != reader.revision:
            self.reader = (reader, reader.revision)
            for item in self.items.values():
                item.located = None

    def apply(self, items: Iterable[FetchItem], forgotten: Iterable[ItemKey]) -> None:
        """Add and update the partitions that the request names, drop those that it forgets."""
        known, dirty = self.items, self.dirty
        for item in items:
            cached = known.setdefault((item.topic, item.partition), item)
            if dirty is not None:
                dirty.mark_dirty(cached)
            if cached is not item:
                cached.update(item)
        for key in forgotten:
            gone = known.pop(key, None)
            if gone is not None and dirty is not None:
                dirty.forget(gone)

    def rotate(self, item: FetchItem) -> None:
        """Move a partition that returned records behind the others."""
        key = (item.topic, item.partition)
        if key in self.items:
            self.items.move_to_end(key)
            if self.dirty is not None:
                self.dirty.rotate(item)


class FetchSessionCache:
    """All sessions of a broker, at most `slots`; the longest unused is evicted when it is stale.

    Unlike in Kafka a session with more partitions does not evict one with fewer: the search for the
    smallest session at each full fetch would be paid by clients that get none.
    """

    def __init__(self, slots: int, clock: Clock, entropy: Entropy) -> None:
        self._slots = slots
        self._clock = clock
        self._entropy = entropy
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.evictions_total = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def create(
        self, items: Iterable[FetchItem], *, uses_topic_ids: bool, is_follower: bool
    ) -> FetchSession | None:
        """A new session with `items`; None when no slot is free: the client sends full fetches."""
        now_ms = self._clock.now_ms()
        if len(self._sessions) >= self._slots and not self._evict(now_ms, is_follower):
            return None
        session = FetchSession(self._fresh_id(), uses_topic_ids, is_follower, now_ms, now_ms)
        session.apply(items, ())
        self._sessions[session.session_id] = session
        return session

    def close(self, session_id: int) -> None:
        """Remove a session, if it exists."""
        self._sessions.pop(session_id, None)

    def continue_session(
        self, session_id: int, epoch: int, *, uses_topic_ids: bool
    ) -> FetchSession:
        """The session of an incremental request, with the next epoch.

        Raises KafkaError(FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
        FETCH_SESSION_TOPIC_ID_ERROR).
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {session_id}")
        if session.epoch != epoch:
            detail = f"session {session_id} is at epoch {session.epoch}, asked {epoch}"
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, detail)
        if session.uses_topic_ids is not uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, f"session {session_id}")
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = self._clock.now_ms()
        self._sessions.move_to_end(session_id)
        return session

    def _fresh_id(self) -> int:
        while True:
            session_id = int.from_bytes(self._entropy.randbytes(4), "big") & 0x7FFFFFFF
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id

    def _evict(self, now_ms: int, for_follower: bool) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        victim: FetchSession | None = None
        if now_ms - oldest.last_used_ms > FETCH_SESSION_EVICTION_MS:
            victim = oldest
        elif for_follower:  # replication may take a consumer's slot (KIP-227, "privileged")
            victim = next((s for s in self._sessions.values() if not s.is_follower), None)
        if victim is None:
            return False
        del self._sessions[victim.session_id]
        self.evictions_total += 1
        return True
