"""A share partition on the leader of its partition: loading, durable changes, lock timers.

It joins the pure `share_partition` with the persister. One write is under way at a time, so that
states reach the persister in the order in which they were decided.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater_broker.metadata.group_settings import GroupSettings, GroupSettingsOf
from headwater_broker.purgatory.purgatory import Purgatory, WatchedOffset
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.share.acquired_rows import Acquired
from headwater_broker.replica.share.holds import Holds, Range
from headwater_broker.replica.share.ports import (
    UNKNOWN_START_OFFSET,
    Persister,
    SharePartitionKey,
    ShareState,
    StateBatch,
)
from headwater_broker.replica.share.runs import Change, RecordState
from headwater_broker.replica.share.share_partition import (
    Acknowledgement,
    Limits,
    SharePartition,
    Wanted,
)

RETRY_S = 1.0
"""A share partition that could not be loaded is loaded again so much later, if it is asked for."""
COUNT_MAX = 2**31 - 1
"""Of a count in the stored state: a gap that a restore left may be wider."""
_OVER = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of a write after which what is known here is outdated."""
_FENCED = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH})

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareParts:
    """The parts that share partitions are built from."""

    persister: Persister
    settings_of: GroupSettingsOf
    first_offset: Callable[[Partition, GroupSettings], Awaitable[int]]
    """Where a group begins that has read nothing of the partition. Raises KafkaError."""
    clock: Clock
    loop: asyncio.AbstractEventLoop
    purgatory: Purgatory
    """That of fetches, which wait for released records, too."""


class ShareCounts:
    """Counts of share partitions since the broker's start: records, and failed writes."""

    __slots__ = ("acquired", "archived", "expired", "redelivered", "write_failures")

    def __init__(self) -> None:
        self.acquired = self.redelivered = self.archived = self.expired = 0
        self.write_failures = 0


class _Write(NamedTuple):
    change: Change
    done: asyncio.Future[None] | None
    """None: the change is in force at once, and nobody waits."""


class LedSharePartition:
    """One share partition. `machine` is None until it is loaded; `failure`: why it could not be."""

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        parts: ShareParts,
        counts: ShareCounts,
        on_idle: Callable[[LedSharePartition], None],
    ) -> None:
        """`on_idle`: called when it is over, and whenever nothing is under way any more."""
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.machine: SharePartition | None = None
        self.failure: KafkaError | None = None
        self.is_over = False
        """Dropped: another leader, or another state epoch. What is in it counts no more."""
        self.is_reading = False
        """A fetch reads the next records from the Delta table; others wait for it."""
        self._users = 0
        """Requests that need no session; while there are any it is not dropped."""
        self.moves = 0
        """Rises when records may have become available."""
        self.gauge = WatchedOffset(parts.purgatory, lambda: self.moves)
        self._parts = parts
        self._counts = counts
        self._on_idle = on_idle
        self._retry_at = 0.0
        self._state_epoch = 0
        self._queue: list[_Write] = []
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = parts.loop.create_task(self._load())

    # -- loading

    @property
    def settings(self) -> GroupSettings:
        """The group's settings as they are now."""
        return self._parts.settings_of(self.key.group_id)

    @property
    def limits(self) -> Limits:
        """The limits as they are now."""
        settings = self.settings
        return Limits(
            settings.share_partition_max_record_locks, settings.share_delivery_count_limit
        )

    @property
    def is_stale(self) -> bool:
        """True when a new one must be loaded instead."""
        if self.is_over:
            return True
        return self.failure is not None and self._parts.clock.monotonic() >= self._retry_at

    @property
    def is_busy(self) -> bool:
        """True while it is loaded, changes are being made durable, or `use` is under way."""
        return self._task is not None or self._users > 0

    async def _load(self) -> None:
        try:
            self.machine = await self._read()
        except KafkaError as error:
            self.failure = error
            self._retry_at = self._parts.clock.monotonic() + RETRY_S
            logger.warning("%s cannot be loaded: %s", self, error)
        except Exception as error:  # the persister's way: whatever it is, this is not loaded
            self.failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
            self._retry_at = self._parts.clock.monotonic() + RETRY_S
            logger.exception("%s cannot be loaded", self)
        self._task = None
        self.wake()
        self._on_idle(self)

    async def _read(self) -> SharePartition:
        persister, log = self._parts.persister, self.partition.log
        state = await persister.read(self.key, self.leader_epoch)
        self._state_epoch = state.state_epoch
        start = state.start_offset
        if start == UNKNOWN_START_OFFSET:
            start = await self._parts.first_offset(self.partition, self.settings)
            # Durable before anything is delivered: the next leader must not choose a later one.
            await persister.write(
                self.key, ShareState(state.state_epoch, self.leader_epoch, start, (), 0)
            )
        end = log.log_end_offset
        if start > end:  # of a log that was cut: what comes at these offsets now was never read
            logger.warning("%s began at %d, the log ends at %d", self, start, end)
        machine = SharePartition(min(start, end), _below(end, state.batches), state.holds)
        machine.log_start_moved(log.log_start_offset)
        return machine

    def __str__(self) -> str:
        where = f"{self.partition.topic}-{self.partition.partition}"
        return f"share partition {where} of group {self.key.group_id}"

    # -- what members do

    def loaded(self) -> SharePartition:
        """The machine, at the present log start. Only if `machine` is not None."""
        machine = self.machine
        assert machine is not None
        machine.log_start_moved(self.partition.log.log_start_offset)
        return machine

    def acquire(
        self, member: str, fetch_offset: int, batches: list[tuple[int, int]], wanted: Wanted
    ) -> list[Acquired]:
        """See `SharePartition.acquire`; the locks last as long as the group's settings say."""
        machine = self.loaded()
        acquired, redelivered = machine.acquired, machine.redelivered
        duration_s = self.settings.share_record_lock_duration_ms / 1000
        deadline = self._parts.clock.monotonic() + duration_s
        rows = machine.acquire(member, fetch_offset, batches, wanted, self.limits, deadline)
        self._counts.acquired += machine.acquired - acquired
        self._counts.redelivered += machine.redelivered - redelivered
        if rows:
            self._arm(deadline)
        return rows

    def acknowledge(
        self, member: str, acknowledgements: Iterable[Acknowledgement]
    ) -> asyncio.Future[None] | None:
        """None: it is done. Else the future ends when it is durable, or with the KafkaError.

        Raises the KafkaErrors of `SharePartition.acknowledge`.
        """
        settings = self.settings
        renewed = None
        if settings.share_renew_acknowledge_enable:
            duration_s = settings.share_record_lock_duration_ms / 1000
            renewed = self._parts.clock.monotonic() + duration_s
        change = self.loaded().acknowledge(member, acknowledgements, self.limits, renewed=renewed)
        if change is None:
            return None
        done: asyncio.Future[None] = self._parts.loop.create_future()
        self._write(_Write(change, done))
        return done

    def release(self, member: str) -> None:
        """Give back all that the member holds."""
        if self.machine is not None and not self.is_over:
            self._given_back(self.loaded().release(member, self.limits))

    @asynccontextmanager
    async def use(self) -> AsyncIterator[SharePartition]:
        """The machine, loaded, for a request that needs no share session. Raises KafkaError."""
        self._users += 1
        try:
            while self.machine is None and self.failure is None:
                assert self._task is not None
                await asyncio.wait({self._task})
            if self.failure is not None:
                raise self.failure
            yield self.loaded()
        finally:
            self._users -= 1
            if not self._users and self._task is None:
                self._on_idle(self)

    async def change_holds(
        self, ranges: Sequence[Range], decide: Callable[[Holds, Sequence[Range]], Change | None]
    ) -> None:
        """Decide on holds, and return when that is durable. Offsets below the log start are passed
        over. Only within `use`. Raises KafkaError."""
        machine, start = self.loaded(), self.partition.log.log_start_offset
        left = [(max(first, start), last) for first, last in ranges if last >= start]
        change = decide(machine.holds, left)
        if change is not None:
            done: asyncio.Future[None] = self._parts.loop.create_future()
            self._write(_Write(change, done))
            await done

    def _expire(self) -> None:
        self._timer = None
        machine = self.loaded()
        change = machine.expire(self._parts.clock.monotonic(), self.limits)
        if change is not None:
            self._counts.expired += sum(b.last_offset - b.first_offset + 1 for b in change.batches)
        self._given_back(change)
        deadline = machine.next_deadline()
        if deadline is not None:
            self._arm(deadline)

    def _given_back(self, change: Change | None) -> None:
        if change is not None:
            self._counts.archived += change.archived
            self._write(_Write(change, None))
            self.wake()

    def _arm(self, deadline: float) -> None:
        loop, timer = self._parts.loop, self._timer
        at = loop.time() + max(deadline - self._parts.clock.monotonic(), 0)
        if timer is not None:
            if timer.when() <= at:
                return
            timer.cancel()
        self._timer = loop.call_at(at, self._expire)

    def wake(self) -> None:
        """Try the fetches that wait for records of this share partition."""
        self.moves += 1
        self.gauge.moved()

    # -- durability

    def _write(self, write: _Write) -> None:
        self._queue.append(write)
        if self._task is None:
            self._task = self._parts.loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        while self._queue and not self.is_over:
            writes = self._next_writes()
            error: KafkaError | None = None
            try:
                await self._parts.persister.write(self.key, self._state_after(writes))
            except KafkaError as failed:
                error = failed
            except Exception as failed:
                error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(failed))
                logger.exception("%s: a write failed", self)
            if error is not None:
                self._counts.write_failures += 1
                logger.warning("%s: a change is not durable: %s", self, error)
            self._settle(writes, error)
            if error is not None and error.code in _OVER:
                self.end(error)
        self._task = None
        if self._queue or self.is_over:
            self._fail_queue()
        else:
            self._on_idle(self)

    def _next_writes(self) -> list[_Write]:
        """The longest part of the queue in which no offset stands twice."""
        taken: list[_Write] = []
        ranges: list[StateBatch] = []
        for write in self._queue:
            if any(_overlap(a, b) for a in ranges for b in write.change.batches):
                break
            ranges += write.change.batches
            taken.append(write)
        del self._queue[: len(taken)]
        return taken

    def _state_after(self, writes: list[_Write]) -> ShareState:
        machine = self.loaded()
        complete = machine.complete
        batches: list[StateBatch] = []
        for write in writes:
            batches += write.change.batches
            if write.done is not None:
                complete += sum(
                    batch.last_offset - max(batch.first_offset, machine.start_offset) + 1
                    for batch in write.change.batches
                    if batch.delivery_state >= RecordState.ACKNOWLEDGED
                    and batch.last_offset >= machine.start_offset
                )
        batches.sort(key=lambda batch: batch.first_offset)
        holds = b""
        if any(write.change.has_holds for write in writes):
            holds = machine.holds.encoded({write.change for write in writes})
        return ShareState(
            *(self._state_epoch, self.leader_epoch, machine.start_offset),
            *(tuple(batches), min(complete, COUNT_MAX), holds),
        )

    def _settle(self, writes: list[_Write], error: KafkaError | None) -> None:
        machine = self.loaded()
        for change, done in writes:
            if done is None:
                continue
            if error is None:
                machine.commit(change)
                self._counts.archived += change.archived
                if not done.done():
                    done.set_result(None)
            else:
                machine.roll_back(change)
                _fail(done, error)
        deadline = machine.next_deadline()
        if deadline is not None and not self.is_over:
            self._arm(deadline)
        self.wake()

    def end(self, error: KafkaError) -> None:
        """It counts no more: another broker leads, or the group's offsets were set anew."""
        if self.is_over:
            return
        self.is_over = True
        self.failure = error
        if self._timer is not None:
            self._timer.cancel()
        if self._task is None:
            self._fail_queue()
        self._on_idle(self)
        self.wake()

    def _fail_queue(self) -> None:
        queue, self._queue = self._queue, []
        error = self.failure or KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is over")
        for write in queue:
            if write.done is not None:
                _fail(write.done, error)

    async def close(self) -> None:
        """The broker stops: changes that are under way are waited for."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail_queue()


def answer_of(error: KafkaError) -> KafkaError:
    """The error as clients get it: they know none of the share coordinator's."""
    if error.code in _FENCED:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.detail)
    return error


def _fail(done: asyncio.Future[None], error: KafkaError) -> None:
    if not done.done():
        done.set_exception(answer_of(error))


def _overlap(a: StateBatch, b: StateBatch) -> bool:
    return a.first_offset <= b.last_offset and b.first_offset <= a.last_offset


def _below(end: int, batches: Iterable[StateBatch]) -> list[StateBatch]:
    """The states of offsets below `end`."""
    return [
        StateBatch(b.first_offset, min(b.last_offset, end - 1), b.delivery_state, b.delivery_count)
        for b in batches
        if b.first_offset < end
    ]
