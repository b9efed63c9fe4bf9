"""Share sessions (KIP-932; Kafka's ShareSessionCache): what each member fetches from this broker.

A session belongs to the connection that opened it, and ends with it: the member's records are given
back then. It keeps its partitions in an order that rotates, so that a busy one cannot starve the
others of a small max_bytes or max_records. Unlike a fetch session it is never evicted.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1

PartitionId = tuple[UUID, int]
"""A topic id and a partition."""


class ShareSession:
    """The partitions that one member fetches. `epoch`: that of its next request."""

    __slots__ = ("at_close", "epoch", "group_id", "is_closed", "member_id", "partitions")

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.at_close: Callable[[], None] | None = None
        """Called when it is closed: its connection forgets it."""
        self.epoch = 1
        self.is_closed = False
        self.partitions: OrderedDict[PartitionId, None] = OrderedDict()

    def apply(self, added: Iterable[PartitionId], forgotten: Iterable[PartitionId]) -> None:
        """Add the partitions that a request names, drop those that it forgets."""
        for key in added:
            self.partitions.setdefault(key, None)
        for key in forgotten:
            self.partitions.pop(key, None)

    def rotate(self, key: PartitionId) -> None:
        """Move a partition that returned records behind the others."""
        if key in self.partitions:
            self.partitions.move_to_end(key)


class ShareSessionCache:
    """All share sessions of a broker, at most group.share.max.share.sessions."""

    def __init__(
        self, slots: Callable[[], int], on_closed: Callable[[ShareSession, bool], None]
    ) -> None:
        """`on_closed(session, whether its group has none left here)`."""
        self._slots = slots
        self._on_closed = on_closed
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._members: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(self._sessions.values())

    def has_members(self, group_id: str) -> bool:
        """True when some member of the group has a session here."""
        return group_id in self._members

    def open(self, group_id: str, member_id: str, added: Iterable[PartitionId]) -> ShareSession:
        """A new session; the member's old one is closed. Raises SHARE_SESSION_LIMIT_REACHED."""
        old = self._sessions.get((group_id, member_id))
        if old is not None:
            self.close(old)
        if len(self._sessions) >= self._slots():
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"{len(self._sessions)} share sessions (group.share.max.share.sessions)",
            )
        session = ShareSession(group_id, member_id)
        session.apply(added, ())
        self._sessions[group_id, member_id] = session
        self._members[group_id] += 1
        return session

    def find(self, group_id: str, member_id: str) -> ShareSession:
        """The session of a member. Raises SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"member {member_id} of group {group_id} has no share session here",
            )
        return session

    def go_on(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a request with this epoch, which must be the next one.

        Raises SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self.find(group_id, member_id)
        if epoch != session.epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"the share session of member {member_id} is at epoch {session.epoch}, "
                f"asked {epoch}",
            )
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def close(self, session: ShareSession) -> None:
        """End a session. Repeats do nothing."""
        if session.is_closed:
            return
        session.is_closed = True
        del self._sessions[session.group_id, session.member_id]
        self._members[session.group_id] -= 1
        is_last = not self._members[session.group_id]
        if is_last:
            del self._members[session.group_id]
        if session.at_close is not None:
            session.at_close()
        self._on_closed(session, is_last)
