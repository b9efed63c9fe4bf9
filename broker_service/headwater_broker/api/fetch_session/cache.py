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
from headwater_broker.api.fetch_session.dirty_set import SessionMoves
from headwater_broker.api.fetch_session.partition import FetchItem, TopicKey
from headwater_broker.api.request_limits import FETCH_SESSION_EVICTION_MS
from headwater_broker.security.session import Session

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
EPOCH_MAX = 2**31 - 1

ItemKey = tuple[TopicKey, int]


@dataclass(slots=True)
class FetchSession:
    """One client's remembered partitions. `epoch` is the one the next request must carry."""

    session_id: int
    uses_topic_ids: bool
    is_follower: bool
    created_ms: int
    last_used_ms: int
    epoch: int = 1
    items: OrderedDict[ItemKey, FetchItem] = field(default_factory=OrderedDict)
    moves: SessionMoves | None = None
    """A follower's: what of the items is to be looked at. None: all of them, each time."""
    reader: tuple[Session, int] | None = None
    """Whose rights the located items were read with: a connection's session, and its revision."""

    def check_reader(self, reader: Session) -> None:
        """Forget where items are located when `reader`, or its rights, are others than before: each
        is then read, and its rights are looked at, again."""
        known = self.reader
        if known is None or known[0] is not reader or known[1] != reader.revision:
            self.reader = (reader, reader.revision)
            for item in self.items.values():
                item.located = None

    def apply(self, items: Iterable[FetchItem], forgotten: Iterable[ItemKey]) -> None:
        """Add and update what the request names, drop what it forgets."""
        known, moves = self.items, self.moves
        for item in items:
            cached = known.setdefault((item.topic, item.partition), item)
            if moves is not None:
                moves.name(cached)
            if cached is not item:
                cached.update(item)
        for key in forgotten:
            gone = known.pop(key, None)
            if gone is not None and moves is not None:
                moves.forget(gone)

    def rotate(self, item: FetchItem) -> None:
        """A partition that sent data goes behind the others."""
        key = (item.topic, item.partition)
        if key in self.items:
            self.items.move_to_end(key)
            if self.moves is not None:
                self.moves.rotate(item)


class FetchSessionCache:
    """All sessions of a broker, at most `slots`; the longest unused gives way when it is stale.

    Unlike in Kafka a client with more partitions does not displace one with fewer: looking for the
    smallest session at each full fetch would cost those that get none.
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
        """A new session over `items`, or None when no slot is free: the client goes without."""
        now_ms = self._clock.now_ms()
        if len(self._sessions) >= self._slots and not self._evict(now_ms, is_follower):
            return None
        session = FetchSession(self._fresh_id(), uses_topic_ids, is_follower, now_ms, now_ms)
        session.apply(items, ())
        self._sessions[session.session_id] = session
        return session

    def close(self, session_id: int) -> None:
        """Forget a session; one that is not known is no error."""
        self._sessions.pop(session_id, None)

    def continue_session(
        self, session_id: int, epoch: int, *, uses_topic_ids: bool
    ) -> FetchSession:
        """The session a request continues; its epoch moves on.

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
