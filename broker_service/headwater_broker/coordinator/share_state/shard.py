"""The share partitions of one `__share_group_state` partition: replay, commands, deadlines. Pure.

Kafka's `ShareCoordinatorShard`. A snapshot holds the whole state of a share partition, an update
what changed since. The topic is not compacted: the log is pruned behind the oldest snapshot that
is still needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.schema import SchemaError
from headwater_broker.coordinator.common.expiration_sweep import PART_PAUSE_MS
from headwater_broker.coordinator.common.shard import (
    Decision,
    Decisions,
    Now,
    StoredRecord,
    Token,
)
from headwater_broker.coordinator.share_state import record_schemas as schemas
from headwater_broker.coordinator.share_state.config import ShareCoordinatorConfig
from headwater_broker.coordinator.share_state.records import (
    SNAPSHOT_KIND,
    UPDATE_KIND,
    kind_of,
    read_key,
    read_snapshot,
    read_update,
    snapshot_record,
    to_rows,
    update_record,
)
from headwater_broker.coordinator.share_state.state_batches import combined
from headwater_broker.coordinator.share_state.stored_state import UNCHANGED, StoredState
from headwater_broker.replica.share.ports import (
    UNKNOWN_START_OFFSET,
    SharePartitionKey,
    ShareState,
    ShareStateSummary,
)

SNAPSHOTS_PER_TICK = 200
"""Share partitions that one tick looks at for snapshots of cold ones: some 5 ms."""
NOTHING = ShareStateSummary(0, 0, UNKNOWN_START_OFFSET, UNCHANGED)
"""The summary of a share partition that is not initialized."""

UNREAD = -1
"""The leader epoch of a state that no leader has read since it was begun."""

logger = logging.getLogger(__name__)


class ShareStateShard:
    """Implements `coordinator.common.shard.Shard`."""

    def __init__(self, config: ShareCoordinatorConfig) -> None:
        self.states: dict[SharePartitionKey, StoredState] = {}
        self._config = config
        self._next_offset = 0
        """After the last record that was replayed."""
        self._sweep_at_ms: float | None = None
        self._to_sweep: list[SharePartitionKey] = []

    # -- the log

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None
    ) -> None:
        """Apply one record. Kinds that are not known here (of a newer broker) are skipped.

        Raises NewerShareRecordError: loading fails until a broker that reads it leads.
        """
        self._next_offset = max(self._next_offset, offset + 1)
        try:
            kind = kind_of(key)
            if kind == SNAPSHOT_KIND:
                self._replay_snapshot(read_key(key), value, offset)
            elif kind == UPDATE_KIND and value is not None:
                # One without a snapshot belongs to a partition whose tombstone follows.
                known = self.states.get(read_key(key))
                if known is not None:
                    known.update(read_update(value))
        except SchemaError:
            logger.exception("skipped a record that cannot be read, key %s", key.hex())

    def _replay_snapshot(self, key: SharePartitionKey, value: bytes | None, offset: int) -> None:
        if value is None:
            self.states.pop(key, None)
        else:
            self.states[key] = StoredState.from_snapshot(read_snapshot(value), offset)

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, *, commit: bool
    ) -> None:
        """No transaction writes to this topic: a marker in it ends none."""

    def loaded(self, now: Now) -> None:
        """Plan the snapshots of cold share partitions."""
        self._sweep_at_ms = now.steady_ms + self._config.cold_snapshot_interval_ms

    # -- deadlines

    def next_deadline_ms(self) -> float | None:
        """When `tick` is due next."""
        return self._sweep_at_ms

    def tick(self, now: Now) -> Decisions:
        """Snapshots of share partitions that nobody has written for a while: theirs would keep the
        log from being pruned. None as long as fewer records are in vain than they would add."""
        out = Decision()
        if self._sweep_at_ms is None or now.steady_ms < self._sweep_at_ms:
            return out
        if not self._to_sweep:
            self._to_sweep = self._cold(now)
        for _ in range(min(SNAPSHOTS_PER_TICK, len(self._to_sweep))):
            key = self._to_sweep.pop()
            known = self.states.get(key)
            if known is not None and self._is_cold(known, now):
                out.records.append(snapshot_record(key, known.snapshot(now.wall_ms)))
        wait_ms = PART_PAUSE_MS if self._to_sweep else self._config.cold_snapshot_interval_ms
        self._sweep_at_ms = now.steady_ms + wait_ms
        return out.split()

    def _cold(self, now: Now) -> list[SharePartitionKey]:
        cold = [key for key, known in self.states.items() if self._is_cold(known, now)]
        return cold if cold and self.records_in_vain() >= len(cold) else []

    def _is_cold(self, known: StoredState, now: Now) -> bool:
        return now.wall_ms - known.written_ms >= self._config.cold_snapshot_interval_ms

    def records_in_vain(self) -> int:
        """Records behind the oldest needed one that a load does not need."""
        needed = sum(1 + known.updates for known in self.states.values())
        return self._next_offset - self.oldest_needed() - needed

    def oldest_needed(self) -> int:
        """The offset of the first record that a load needs; the log may be pruned before it."""
        if not self.states:
            return self._next_offset
        return min(known.snapshot_at for known in self.states.values())

    def is_settled(self, committed_end: int) -> bool:
        """True when everything replayed is committed: what a newer snapshot makes vain may be
        pruned, as no successor lacks the snapshot."""
        return committed_end >= self._next_offset

    # -- commands

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, now: Now, token: Token
    ) -> Decision:
        """Begin the state. A repeated request (of the same state epoch) changes nothing, and one
        without a start begins only what is not there: deliveries may have been written since."""
        known = self.states.get(key)
        out = Decision()
        if known is not None and (
            start_offset == UNKNOWN_START_OFFSET or state_epoch == known.state_epoch
        ):
            return out.reply(token, None)
        if known is not None:
            _check_state_epoch(key, known, state_epoch)
        fresh = schemas.ShareSnapshotValue(
            snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=UNREAD if known is None else known.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=UNCHANGED if start_offset == UNKNOWN_START_OFFSET else 0,
            create_timestamp=now.wall_ms,
            write_timestamp=now.wall_ms,
            state_batches=(),
        )
        out.records.append(snapshot_record(key, fresh))
        return out.confirm(token, None)

    def write(self, key: SharePartitionKey, change: ShareState, now: Now, token: Token) -> Decision:
        """A snapshot or an update; `change.batches` holds only what changed."""
        known = self._initialized(key, "write")
        if change.leader_epoch != UNCHANGED:
            _check_leader_epoch(key, known, change.leader_epoch)
        if change.state_epoch not in (UNCHANGED, known.state_epoch):
            # A higher one is of a state that was deleted meanwhile: its offsets count for nothing.
            raise _fenced_state(key, known, change.state_epoch)
        if known.leader_epoch == UNREAD:
            # A group of this name was deleted and made again, which begins at the same state
            # epoch: the leader still has the deliveries of the deleted one.
            raise KafkaError(
                ErrorCode.FENCED_STATE_EPOCH,
                f"{_name(key)} was initialized anew, and no leader has read it since",
            )
        out = Decision()
        out.records.append(self._changed(key, known, change, now))
        return out.confirm(token, None)

    def read(self, key: SharePartitionKey, leader_epoch: int, now: Now, token: Token) -> Decision:
        """Replies the ShareState; the leaders of earlier epochs are fenced once it is given."""
        known = self._initialized(key, "read")
        if leader_epoch != UNCHANGED:
            _check_leader_epoch(key, known, leader_epoch)
        out = Decision()
        if leader_epoch <= known.leader_epoch:
            return out.reply_as_leader(token, known.as_read(leader_epoch))
        fence = ShareState(UNCHANGED, leader_epoch, UNKNOWN_START_OFFSET)
        out.records.append(self._changed(key, known, fence, now))
        return out.confirm(token, known.as_read(leader_epoch))

    def read_summary(self, key: SharePartitionKey, _now: Now, token: Token) -> Decision:
        """Replies the ShareStateSummary. That of a deposed leader is outdated: start offsets would
        seem to go back."""
        known = self.states.get(key)
        return Decision().reply_as_leader(token, NOTHING if known is None else known.summary)

    def delete(self, key: SharePartitionKey, _now: Now, token: Token) -> Decision:
        """Forget the state."""
        out = Decision()
        if key not in self.states:
            return out.reply(token, None)
        out.records.append(snapshot_record(key, None))
        return out.confirm(token, None)

    def forget_topics(
        self, is_deleted: Callable[[UUID], bool], _now: Now, token: Token
    ) -> Decisions:
        """Tombstones for the share partitions of deleted topics; replies how many."""
        out = Decision()
        out.records += [
            snapshot_record(key, None) for key in self.states if is_deleted(key.topic_id)
        ]
        return out.confirm(token, len(out.records)).split()

    def _initialized(self, key: SharePartitionKey, verb: str) -> StoredState:
        known = self.states.get(key)
        if known is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{_name(key)} is not initialized: it cannot {verb} its state",
            )
        return known

    def _changed(
        self, key: SharePartitionKey, known: StoredState, change: ShareState, now: Now
    ) -> StoredRecord:
        if known.updates >= self._config.updates_per_snapshot:
            return snapshot_record(key, known.snapshot(now.wall_ms, change))
        value = schemas.ShareUpdateValue(
            snapshot_epoch=known.snapshot_epoch,
            leader_epoch=change.leader_epoch,
            start_offset=change.start_offset,
            delivery_complete_count=change.delivery_complete_count,
            state_batches=to_rows(combined(change.batches, change.start_offset)),
            holds=change.holds,
        )
        return update_record(key, value)


def _check_state_epoch(key: SharePartitionKey, known: StoredState, epoch: int) -> None:
    if epoch < known.state_epoch:
        raise _fenced_state(key, known, epoch)


def _fenced_state(key: SharePartitionKey, known: StoredState, epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_STATE_EPOCH,
        f"{_name(key)} has state epoch {known.state_epoch}, the request {epoch}",
    )


def _check_leader_epoch(key: SharePartitionKey, known: StoredState, epoch: int) -> None:
    if epoch < known.leader_epoch:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"{_name(key)} was read by a leader of epoch {known.leader_epoch}, the request is of "
            f"epoch {epoch}",
        )


def _name(key: SharePartitionKey) -> str:
    return f"share partition {key.group_id}:{key.topic_id}:{key.partition}"
