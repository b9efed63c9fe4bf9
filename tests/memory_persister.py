"""The durable state of share partitions in memory: what a share coordinator keeps."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.replica.share.ports import (
    UNKNOWN_START_OFFSET,
    SharePartitionKey,
    ShareState,
    ShareStateSummary,
    StateBatch,
)


class MemoryPersister:
    """Implements `Persister`. `gate` holds writes back; `failures` are raised one by one."""

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, ShareState] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[KafkaError] = []
        self.applies_failed = False
        """True: a write that fails is made all the same: only its answer is lost."""
        self.writes = 0

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        known = self.states.get(key)
        if known is not None and state_epoch < known.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, f"{state_epoch}")
        leader_epoch = -1 if known is None else known.leader_epoch
        self.states[key] = ShareState(state_epoch, leader_epoch, start_offset)

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        await self.gate.wait()
        self._fail()
        known = self.states.get(key)
        if known is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} is not initialized")
        if leader_epoch < known.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{leader_epoch}")
        self.states[key] = known = replace(known, leader_epoch=leader_epoch)
        return known

    async def write(self, key: SharePartitionKey, state: ShareState) -> None:
        self.writes += 1
        await self.gate.wait()
        if self.failures and not self.applies_failed:
            self._fail()
        known = self.states.get(key)
        if known is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} is not initialized")
        if state.state_epoch != known.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, f"{state.state_epoch}")
        if state.leader_epoch < known.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{state.leader_epoch}")
        self.states[key] = replace(state, batches=merged(known.batches, state))
        self._fail()

    async def delete(self, key: SharePartitionKey) -> None:
        self.states.pop(key, None)

    async def read_summary(self, key: SharePartitionKey) -> ShareStateSummary:
        known = self.states.get(key, ShareState(0, -1, UNKNOWN_START_OFFSET))
        return ShareStateSummary(
            known.state_epoch,
            known.leader_epoch,
            known.start_offset,
            known.delivery_complete_count,
        )

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


def merged(known: tuple[StateBatch, ...], state: ShareState) -> tuple[StateBatch, ...]:
    """The states of all offsets from the new start offset on, one by one: slow and obvious."""
    by_offset: dict[int, tuple[int, int]] = {}
    for batch in (*known, *state.batches):
        for offset in range(max(batch.first_offset, state.start_offset), batch.last_offset + 1):
            by_offset[offset] = (batch.delivery_state, batch.delivery_count)
    found: list[StateBatch] = []
    for offset in sorted(by_offset):
        row = by_offset[offset]
        last = found[-1] if found else None
        if (
            last is not None
            and last.last_offset == offset - 1
            and (last.delivery_state, last.delivery_count) == row
        ):
            found[-1] = replace(last, last_offset=offset)
        else:
            found.append(StateBatch(offset, offset, *row))
    return tuple(found)
