"""What a coordinator's command decides: records to append, replies to give. Pure values."""

from __future__ import annotations

from typing import NamedTuple, Protocol

Token = int
"""Names one waiting request. A command gets its own; replies may answer earlier ones too, so a
parked request is a token kept in the state."""


class Now(NamedTuple):
    """The time, handed in."""

    wall_ms: int
    """Since 1970; stored in records."""
    steady_ms: float
    """Never steps back; deadlines are of this clock."""


class StoredRecord(NamedTuple):
    """One record of an internal topic; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Decision:
    """Collects what a command decides.

    Durable state must not be changed by the command itself: only `Shard.replay` of `records` does
    that, after they are in the log. `reply` answers in any case; `confirm` only when the records
    were written, so a command that confirms leaves in the state what a retry needs. When the
    append is refused, the command's own request gets the error unless `reply` answered it.
    Records that are large together may end up in several batches.
    """

    __slots__ = ("actions", "confirmations", "records", "replies")

    def __init__(self) -> None:
        self.records: list[StoredRecord] = []
        self.replies: list[tuple[Token, object]] = []
        self.confirmations: list[tuple[Token, object]] = []
        self.actions: list[object] = []

    def after_commit(self, action: object) -> Decision:
        """Hand `action` to the service once everything applied so far is committed."""
        self.actions.append(action)
        return self

    def reply(self, token: Token, value: object) -> Decision:
        """Answer `token`, once everything applied so far is committed."""
        self.replies.append((token, value))
        return self

    def confirm(self, token: Token, value: object) -> Decision:
        """The same, if the records are written."""
        self.confirmations.append((token, value))
        return self


class Shard(Protocol):
    """The state behind one partition of an internal topic."""

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply one record: after every append each, at load only the last one of each key (in
        their order), as compaction leaves them. Must not raise on unknown kinds.
        """
        ...

    def loaded(self, now: Now) -> None:
        """The log is read to its end: start the timers."""
        ...

    def tick(self, now: Now) -> Decision:
        """A deadline may have passed."""
        ...

    def next_deadline_ms(self) -> float | None:
        """When `tick` is wanted next, on the steady clock."""
        ...
