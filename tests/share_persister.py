"""What every `Persister` of share partitions keeps to, and one in memory for tests of its users."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.share_state.state_batches import merge_into
from headwater_broker.replica.share.ports import (
    UNKNOWN_START_OFFSET,
    Persister,
    SharePartitionKey,
    ShareState,
    ShareStateSummary,
    StateBatch,
)


class MemoryPersister:
    """A Persister without a log, for share partitions of any topic."""

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, ShareState] = {}
        self.writes: list[tuple[SharePartitionKey, ShareState]] = []
        self.failure: KafkaError | None = None
        """What the next write raises."""

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        known = self.states.get(key)
        if known is not None and (start_offset < 0 or known.state_epoch == state_epoch):
            return
        if known is not None and state_epoch < known.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, "older")
        leader_epoch = -1 if known is None else known.leader_epoch
        count = -1 if start_offset < 0 else 0
        self.states[key] = ShareState(state_epoch, leader_epoch, start_offset, (), count)

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        known = self._known(key)
        if leader_epoch < known.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "older")
        self.states[key] = replace(known, leader_epoch=leader_epoch)
        return replace(known, leader_epoch=leader_epoch, delivery_complete_count=-1)

    async def write(self, key: SharePartitionKey, state: ShareState) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        known = self._known(key)
        if state.leader_epoch < known.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "older")
        if state.state_epoch != known.state_epoch or known.leader_epoch < 0:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, "older, or of a deleted group")
        self.writes.append((key, state))
        batches = list(known.batches)
        start = max(known.start_offset, state.start_offset)
        merge_into(batches, state.batches, start)
        count = state.delivery_complete_count
        if count < 0:
            count = known.delivery_complete_count
        self.states[key] = ShareState(
            *(state.state_epoch, state.leader_epoch, start, tuple(batches), count),
            state.holds or known.holds,
        )

    async def delete(self, key: SharePartitionKey) -> None:
        self.states.pop(key, None)

    async def read_summary(self, key: SharePartitionKey) -> ShareStateSummary:
        known = self.states.get(key)
        if known is None:
            return ShareStateSummary(0, 0, UNKNOWN_START_OFFSET, -1)
        return ShareStateSummary(
            known.state_epoch,
            max(0, known.leader_epoch),
            known.start_offset,
            known.delivery_complete_count,
        )

    def _known(self, key: SharePartitionKey) -> ShareState:
        known = self.states.get(key)
        if known is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} is not initialized")
        return known


def available(first: int, last: int, count: int = 1) -> StateBatch:
    return StateBatch(first, last, 0, count)


def acknowledged(first: int, last: int, count: int = 1) -> StateBatch:
    return StateBatch(first, last, 2, count)


async def _refused(code: ErrorCode, call: Awaitable[object]) -> None:
    try:
        await call
    except KafkaError as error:
        assert error.code is code, error
    else:
        raise AssertionError(f"{code.name} was expected")


async def a_state_that_was_not_initialized(p: Persister, key: SharePartitionKey) -> None:
    await _refused(ErrorCode.INVALID_REQUEST, p.read(key, 0))
    await _refused(ErrorCode.INVALID_REQUEST, p.write(key, ShareState(0, 0, 5)))
    assert await p.read_summary(key) == ShareStateSummary(0, 0, -1, -1)
    await p.delete(key)


async def a_state_is_read_as_written(p: Persister, key: SharePartitionKey) -> None:
    await p.initialize(key, 3, UNKNOWN_START_OFFSET)
    assert await p.read(key, 7) == ShareState(3, 7, -1)
    await p.write(key, ShareState(3, 7, 10, (acknowledged(12, 14), available(15, 19)), 3))
    await p.write(key, ShareState(3, 7, -1, (acknowledged(15, 16),)))
    expected = (acknowledged(12, 16), available(17, 19))
    assert await p.read(key, 7) == ShareState(3, 7, 10, expected)
    assert await p.read_summary(key) == ShareStateSummary(3, 7, 10, 3)
    await p.write(key, ShareState(3, 7, 18, (), 0))
    assert await p.read(key, 8) == ShareState(3, 8, 18, (available(18, 19),))


async def older_leaders_are_fenced(p: Persister, key: SharePartitionKey) -> None:
    await p.initialize(key, 3, 0)
    await p.read(key, 7)
    await _refused(ErrorCode.FENCED_LEADER_EPOCH, p.read(key, 6))
    await _refused(ErrorCode.FENCED_LEADER_EPOCH, p.write(key, ShareState(3, 6, 5)))
    await p.write(key, ShareState(3, 7, 5))


async def older_state_epochs_are_fenced(p: Persister, key: SharePartitionKey) -> None:
    await p.initialize(key, 3, 0)
    await p.read(key, 7)
    await p.write(key, ShareState(3, 7, 5, (available(6, 6),)))
    await p.initialize(key, 3, 0)  # a repeated request: nothing is lost
    await p.initialize(key, 9, UNKNOWN_START_OFFSET)  # a late one
    assert await p.read(key, 7) == ShareState(3, 7, 5, (available(6, 6),))
    await _refused(ErrorCode.FENCED_STATE_EPOCH, p.write(key, ShareState(4, 7, 6)))
    await _refused(ErrorCode.FENCED_STATE_EPOCH, p.initialize(key, 2, 0))
    await p.initialize(key, 4, 2)
    await _refused(ErrorCode.FENCED_STATE_EPOCH, p.write(key, ShareState(3, 7, 6)))
    assert await p.read(key, 7) == ShareState(4, 7, 2)


async def a_deleted_state_is_gone(p: Persister, key: SharePartitionKey) -> None:
    await p.initialize(key, 3, 9)
    await p.read(key, 7)
    await p.delete(key)
    await p.delete(key)
    assert await p.read_summary(key) == ShareStateSummary(0, 0, -1, -1)
    await p.initialize(key, 1, 4)
    assert await p.read_summary(key) == ShareStateSummary(1, 0, 4, 0)
    # The leader's deliveries are those of the deleted group, of the same state epoch.
    await _refused(ErrorCode.FENCED_STATE_EPOCH, p.write(key, ShareState(1, 7, 20)))
    assert await p.read(key, 1) == ShareState(1, 1, 4)


async def a_write_that_comes_late_changes_nothing(p: Persister, key: SharePartitionKey) -> None:
    await p.initialize(key, 1, 0)
    await p.read(key, 0)
    await p.write(key, ShareState(1, 0, 4, (acknowledged(6, 9, 2),)))
    await p.write(key, ShareState(1, 0, 2, (available(2, 9, 1),)))
    expected = (available(4, 5, 1), acknowledged(6, 9, 2))
    assert await p.read(key, 0) == ShareState(1, 0, 4, expected)


async def the_table_of_holds_stays_until_another_is_written(
    p: Persister, key: SharePartitionKey
) -> None:
    await p.initialize(key, 1, 0)
    await p.read(key, 0)
    await p.write(key, ShareState(1, 0, 0, (available(0, 4),), 0, b"one"))
    await p.write(key, ShareState(1, 0, 0, (available(5, 9),)))
    assert (await p.read(key, 1)).holds == b"one"
    await p.write(key, ShareState(1, 1, 0, (), 0, b"two"))
    assert (await p.read(key, 1)).holds == b"two"
    await p.initialize(key, 2, 0)
    assert (await p.read(key, 1)).holds == b""


CONFORMANCE: tuple[Callable[[Persister, SharePartitionKey], Awaitable[None]], ...] = (
    a_state_that_was_not_initialized,
    a_state_is_read_as_written,
    older_leaders_are_fenced,
    older_state_epochs_are_fenced,
    a_deleted_state_is_gone,
    a_write_that_comes_late_changes_nothing,
    the_table_of_holds_stays_until_another_is_written,
)
"""Each gets a Persister and a share partition without a state, of a topic that is there."""


def share_partition(topic_id: UUID, partition: int = 0, group: str = "g:1") -> SharePartitionKey:
    return SharePartitionKey(group, topic_id, partition)
