"""The delivery state of one share partition as its coordinator keeps it (Kafka's
`ShareGroupOffset`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater_broker.coordinator.share_state import record_schemas as schemas
from headwater_broker.coordinator.share_state.records import from_rows, to_rows
from headwater_broker.coordinator.share_state.state_batches import merge_into
from headwater_broker.replica.share.ports import (
    UNKNOWN_START_OFFSET,
    ShareState,
    ShareStateSummary,
    StateBatch,
)

UNCHANGED = -1
"""Of an epoch, a start offset or a count in a write: it stays as it is."""


@dataclass(slots=True)
class StoredState:
    """The last snapshot with the updates after it; only replay changes it."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    created_ms: int
    written_ms: int
    snapshot_at: int
    """Log offset of the last snapshot: what comes before it is not needed for this partition."""
    batches: list[StateBatch] = field(default_factory=list)
    updates: int = 0
    """Since the last snapshot."""
    holds: bytes = b""
    """The table of holds; only leaders read it."""

    @classmethod
    def from_snapshot(cls, value: schemas.ShareSnapshotValue, log_offset: int) -> StoredState:
        """The state that a snapshot holds."""
        return cls(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=value.state_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            delivery_complete_count=value.delivery_complete_count,
            created_ms=value.create_timestamp,
            written_ms=value.write_timestamp,
            snapshot_at=log_offset,
            batches=from_rows(value.state_batches),
            holds=value.holds,
        )

    def update(self, value: schemas.ShareUpdateValue) -> None:
        """Apply an update."""
        self.updates += 1
        self.leader_epoch = _changed(self.leader_epoch, value.leader_epoch)
        self._merge(value.start_offset, value.delivery_complete_count)
        self.holds = value.holds or self.holds
        merge_into(self.batches, from_rows(value.state_batches), self.start_offset)

    def snapshot(self, now_ms: int, change: ShareState | None = None) -> schemas.ShareSnapshotValue:
        """The next snapshot, with a change that is written along."""
        after = StoredState(
            snapshot_epoch=self.snapshot_epoch + 1,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            created_ms=self.created_ms,
            written_ms=now_ms,
            snapshot_at=self.snapshot_at,
            batches=list(self.batches),
            holds=self.holds,
        )
        if change is not None:
            after.leader_epoch = _changed(after.leader_epoch, change.leader_epoch)
            after._merge(change.start_offset, change.delivery_complete_count)
            after.holds = change.holds or after.holds
            merge_into(after.batches, change.batches, after.start_offset)
        return schemas.ShareSnapshotValue(
            snapshot_epoch=after.snapshot_epoch,
            state_epoch=after.state_epoch,
            leader_epoch=after.leader_epoch,
            start_offset=after.start_offset,
            delivery_complete_count=after.delivery_complete_count,
            create_timestamp=after.created_ms,
            write_timestamp=now_ms,
            state_batches=to_rows(after.batches),
            holds=after.holds,
        )

    def _merge(self, start_offset: int, delivery_complete_count: int) -> None:
        """A late write must not take the start back: what is before it was settled."""
        if start_offset != UNKNOWN_START_OFFSET:
            self.start_offset = max(self.start_offset, start_offset)
        self.delivery_complete_count = _changed(
            self.delivery_complete_count, delivery_complete_count
        )

    def as_read(self, leader_epoch: int) -> ShareState:
        """The state for a leader of `leader_epoch`; it counts completed deliveries by batches."""
        return ShareState(
            *(self.state_epoch, leader_epoch, self.start_offset, tuple(self.batches)),
            holds=self.holds,
        )

    @property
    def summary(self) -> ShareStateSummary:
        """Without the batches. Of a state that no leader has read, Kafka tells leader epoch 0."""
        return ShareStateSummary(
            *(self.state_epoch, max(0, self.leader_epoch)),
            *(self.start_offset, self.delivery_complete_count),
        )


def _changed(before: int, after: int) -> int:
    return before if after == UNCHANGED else after
