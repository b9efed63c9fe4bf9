"""The sinks of one `__transaction_state` partition: their epochs and slots, as records make them.

Pure. Only replayed records change what is durable here; the rest (heartbeats, requests that wait,
markers that are written) is lost with the shard, and a load starts it anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headwater.wire.epoch_values import EpochState
from headwater.wire.sink_names import sink_and_slot
from headwater_broker.coordinator.common.shard import Token
from headwater_broker.coordinator.transaction.epoch_values import (
    SLOTS_MAX,
    EpochDecision,
    EpochKey,
    Sink,
)
from headwater_broker.coordinator.transaction.transaction import Transaction


@dataclass(eq=False, slots=True)
class OpenEpoch:
    """One attempt to write an epoch, until it is complete."""

    sink: str
    key: EpochKey
    start_ms: int
    """When its first participant joined, since 1970."""
    decision: EpochDecision | None = None
    members: dict[int, str] = field(default_factory=dict)
    """Slot -> transactional id of the participants whose transactions are not complete."""
    by_attempt: dict[tuple[int, int], int] = field(default_factory=dict)
    """(task, attempt) -> slot."""
    slots: set[int] = field(default_factory=set)
    """Every slot that the epoch has used."""
    partitions: int = 0
    """Partitions of all participants: the markers that the decision takes."""
    written: set[int] = field(default_factory=set)
    """Slots whose partitions all hold their markers."""
    deadline_ms: int = -1
    """When it is aborted while it is open, since 1970; -1: a timeout after its start."""
    waiting: list[Token] = field(default_factory=list)
    """CommitEpoch requests that are answered when the epoch is complete."""

    @property
    def state(self) -> EpochState:
        """OPEN without a decision."""
        return EpochState.OPEN if self.decision is None else self.decision.state

    @property
    def is_decided(self) -> bool:
        """True when the epoch commits or aborts, and nothing can change that."""
        return self.state in (EpochState.COMMITTING, EpochState.ABORTING)

    @property
    def is_written(self) -> bool:
        """True when no marker is missing."""
        if not self.is_decided or len(self.written) < len(self.members):
            return False
        return self.written.issuperset(self.members)


class SlotPool:
    """The slots of one sink. A slot is free once the epoch that used it is complete."""

    def __init__(self) -> None:
        self.known: dict[int, str] = {}
        """Slot -> transactional id."""
        self._used: dict[int, EpochKey] = {}
        self._free: list[int] = []
        """A heap. A slot that is used again meanwhile is dropped when it is met."""
        self._end = 0
        """Every lower slot is used, or in the heap."""

    def free(self) -> int | None:
        """The lowest free slot; None: all are in use."""
        while self._free and self._free[0] in self._used:
            heapq.heappop(self._free)
        if self._free:
            return self._free[0]
        return self._end if self._end < SLOTS_MAX else None

    def add(self, slot: int, transactional_id: str) -> None:
        """The slot has a transactional id; it is free until `use`."""
        self.known[slot] = transactional_id
        for new in range(self._end, slot + 1):
            heapq.heappush(self._free, new)
        self._end = max(self._end, slot + 1)

    def use(self, slot: int, key: EpochKey) -> None:
        """The slot belongs to an epoch."""
        self._used[slot] = key

    def release(self, slots: Iterable[int], key: EpochKey) -> None:
        """The epoch is complete."""
        for slot in slots:
            if self._used.get(slot) == key:
                del self._used[slot]
                heapq.heappush(self._free, slot)

    def remove(self, slot: int) -> None:
        """The slot's transactional id is deleted."""
        self.known.pop(slot, None)


class SinkTable:
    """The sinks of a shard."""

    def __init__(self) -> None:
        self.sinks: dict[str, Sink] = {}
        self.epochs: dict[str, dict[EpochKey, OpenEpoch]] = {}
        """By sink: its epochs that are not complete."""
        self._pools: dict[str, SlotPool] = {}

    def of(self, sink: str) -> Mapping[EpochKey, OpenEpoch]:
        """The epochs of a sink that are not complete."""
        return self.epochs.get(sink, {})

    def pool(self, sink: str) -> SlotPool:
        """The slots of a sink."""
        pool = self._pools.get(sink)
        if pool is None:
            pool = self._pools[sink] = SlotPool()
        return pool

    def has_slots(self, sink: str) -> bool:
        """Whether the sink has transactional ids."""
        pool = self._pools.get(sink)
        return pool is not None and bool(pool.known)

    def epoch_of(self, participant: Transaction) -> OpenEpoch | None:
        """The epoch that a participant belongs to, unless it is complete."""
        membership = participant.membership
        if membership is None:
            return None
        sink, _ = sink_and_slot(participant.transactional_id)
        return self.of(sink).get(EpochKey(membership.epoch, membership.ticket))

    # -- replay

    def replay_sink(self, name: str, sink: Sink | None) -> None:
        """A sink's record."""
        if sink is not None:
            self.sinks[name] = sink
            return
        self.sinks.pop(name, None)
        pool = self._pools.get(name)
        if pool is not None and not pool.known:
            del self._pools[name]

    def replay_participant(self, before: Transaction | None, after: Transaction | None) -> None:
        """A participant's record."""
        known = before or after
        assert known is not None
        sink, slot = sink_and_slot(known.transactional_id)
        if before is not None:
            left = self.epoch_of(before)
            if left is not None and left.members.pop(slot, None) is not None:
                left.partitions -= len(before.partitions)
        if after is None:
            self.pool(sink).remove(slot)
            return
        pool = self.pool(sink)
        pool.add(slot, after.transactional_id)
        if after.membership is None or after.state.is_idle:
            return
        epoch, ticket, task, attempt = after.membership
        joined = self._epoch(sink, EpochKey(epoch, ticket), after.start_ms)
        joined.members[slot] = after.transactional_id
        joined.by_attempt[task, attempt] = slot
        joined.slots.add(slot)
        joined.partitions += len(after.partitions)
        pool.use(slot, joined.key)

    def replay_decision(
        self, sink: str, key: EpochKey, decision: EpochDecision | None
    ) -> OpenEpoch | None:
        """A decision's record. The epoch, if its participants are to get markers now."""
        if decision is None:
            done = self.epochs.get(sink, {}).pop(key, None)
            if done is not None:
                self.pool(sink).release(done.slots, key)
            if not self.epochs.get(sink, True):
                del self.epochs[sink]
            return None
        decided = self._epoch(sink, key, decision.start_ms)
        decided.decision = decision
        known = self.sinks.get(sink)
        if decision.state is EpochState.COMMITTING and known is not None:
            self.sinks[sink] = known._replace(last_epoch=key.epoch)
        return decided if decided.is_decided else None

    def _epoch(self, sink: str, key: EpochKey, start_ms: int) -> OpenEpoch:
        epochs = self.epochs.setdefault(sink, {})
        found = epochs.get(key)
        if found is None:
            found = epochs[key] = OpenEpoch(sink, key, start_ms)
        elif 0 <= start_ms < found.start_ms:
            found.start_ms = start_ms
        return found
