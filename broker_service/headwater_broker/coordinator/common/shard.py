"""A coordinator's shard and what its commands decide: records to append, replies. Pure values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from headwater.records.builder import RECORD_OVERHEAD_MAX_BYTES

Token = int
"""Names one waiting request. A command gets the token of its own request; a decision may also reply
to earlier ones, so a shard keeps the tokens of parked requests in its state."""
NOBODY: Token = 0
"""The token of a command whose reply is taken from its decision (`CoordinatorRuntime.at_once`): a
shard that cannot decide it now forgets it."""
DECISION_BYTES = 64 * 1024
"""Records that need not become durable together are split into decisions of this size."""
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class Now(NamedTuple):
    """The time, handed to commands."""

    wall_ms: int
    """Since 1970; stored in records."""
    steady_ms: float
    """Never steps back; deadlines are on this clock."""


class StoredRecord(NamedTuple):
    """One record of an internal topic; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


LEADERSHIP_PROOF = StoredRecord(b"\x48\x00", None)
"""Its commit proves that this broker led the partition when it was appended (`reply_as_leader`).
Shards skip it: keys of Headwater's own kinds begin with 0x48. Compaction drops it."""


def _size_max_bytes(record: StoredRecord) -> int:
    return len(record.key) + len(record.value or b"") + RECORD_OVERHEAD_MAX_BYTES


class Producer(NamedTuple):
    """The producer of a transactional decision."""

    producer_id: int
    producer_epoch: int


class Decision:
    """Records that are appended together or not at all, and replies.

    The records of one decision are in one batch, so a reader of the log sees all or none of them;
    a decision that is larger than max.message.bytes of the topic is rejected as a whole. With a
    `producer` the batch belongs to that producer's open transaction.

    A command does not change durable state itself: only `Shard.replay` of `records` does. `reply`
    answers a request in any case; `confirm` only when the records are appended, so a command that
    confirms leaves in the state what a retry needs. When the append is rejected, the command's own
    request gets the error, unless `reply` answered it.
    """

    __slots__ = ("confirmations", "leader_replies", "producer", "records", "replies")

    def __init__(self, producer: Producer | None = None) -> None:
        self.producer = producer
        self.records: list[StoredRecord] = []
        self.replies: list[tuple[Token, object]] = []
        self.confirmations: list[tuple[Token, object]] = []
        self.leader_replies: list[tuple[Token, object]] = []

    def reply(self, token: Token, value: object) -> Decision:
        """Answer `token` once everything replayed so far is committed."""
        self.replies.append((token, value))
        return self

    def confirm(self, token: Token, value: object) -> Decision:
        """Answer `token` once the records are committed."""
        self.confirmations.append((token, value))
        return self

    def reply_as_leader(self, token: Token, value: object) -> Decision:
        """Answer `token` once it is certain that this broker led the partition when it decided.

        For answers that must not come from a broker which was deposed and does not know it. All of
        one turn share a record that is committed, or one look-up where appends are rejected.
        """
        self.leader_replies.append((token, value))
        return self

    @property
    def size_max_bytes(self) -> int:
        """Most bytes that the records take in a batch."""
        return sum(map(_size_max_bytes, self.records))

    def split(self, size_max: int = DECISION_BYTES) -> list[Decision]:
        """Several decisions with the records in turn, replies on the last one.

        For records that are right each by itself: any prefix of them may be in the log.
        """
        if len(self.records) < 2 or self.size_max_bytes <= size_max:
            return [self]
        parts = [Decision(self.producer)]
        size = 0
        for record in self.records:
            record_size = _size_max_bytes(record)
            size += record_size
            if parts[-1].records and size > size_max:
                parts.append(Decision(self.producer))
                size = record_size
            parts[-1].records.append(record)
        parts[-1].replies, parts[-1].confirmations = self.replies, self.confirmations
        return parts


Decisions = Decision | Sequence[Decision]
"""One decision, or several that are appended one after the other."""


class Shard(Protocol):
    """The state behind one partition of an internal topic."""

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None
    ) -> None:
        """Apply one record. Producer id -1: it is committed. Otherwise it belongs to an open
        transaction, and counts when `replay_end_transaction` commits that.

        After a decision every record is replayed. At load the records of open transactions are,
        then the last committed record of each key, as compaction leaves them. `offset` rises, but
        for records of transactions at load. Must not raise on unknown kinds of records.
        """
        ...

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, *, commit: bool
    ) -> None:
        """A marker ended the producer's transaction; there may be no record of it here."""
        ...

    def loaded(self, now: Now) -> None:
        """The log is read to its end: start the timers."""
        ...

    def tick(self, now: Now) -> Decisions:
        """A deadline may have passed."""
        ...

    def next_deadline_ms(self) -> float | None:
        """When `tick` is due next, on the steady clock."""
        ...


S = TypeVar("S", bound=Shard)
Command = Callable[[S, Now, Token], Decisions]
"""(shard, now, token of the request) -> decisions. Raises KafkaError to refuse the request."""


def each(decisions: Decisions) -> Sequence[Decision]:
    """The decisions one by one."""
    return (decisions,) if isinstance(decisions, Decision) else decisions
