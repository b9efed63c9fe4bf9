"""A group coordinator over a log in memory, and a transaction coordinator run by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.testing.clocks import ManualClock
from headwater.topic_names import OFFSETS_TOPIC
from headwater_broker.coordinator.common.service import CoordinatorParts
from headwater_broker.coordinator.common.shard import Producer
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.offset_commands import OffsetCommit, TransactionalCommit
from headwater_broker.coordinator.group.offsets import Commit, Committed
from headwater_broker.coordinator.group.service import GroupService
from headwater_broker.replica.ports import at_once
from share_persister import MemoryPersister
from unit.coordinator.memory_log import MemoryLog

GROUP = "g"
T = ("t", 0)
PRODUCER = Producer(7, 3)
OFFSETS_ID = UUID(int=9)
PARTITION = (OFFSETS_TOPIC, 0)


class TransactionCoordinator:
    """Implements the port `Enlistment`."""

    def __init__(self, offsets_id: UUID = OFFSETS_ID) -> None:
        self.offsets_id = offsets_id
        self.code = ErrorCode.NONE
        self.next_codes: list[ErrorCode] = []
        """Answers after the first one; then `code` again."""
        self.calls: list[tuple[str, Producer, bool]] = []
        self.coordinator_epoch = -1
        """That of the last call."""
        self.gate = asyncio.Event()
        self.gate.set()

    async def enlist(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Mapping[tuple[str, int], UUID],
        *,
        verify_only: bool,
        coordinator_epoch: int = -1,
    ) -> Mapping[tuple[str, int], ErrorCode]:
        assert partitions == {PARTITION: self.offsets_id}
        self.calls.append((transactional_id, producer, verify_only))
        self.coordinator_epoch = coordinator_epoch
        await self.gate.wait()
        is_first = len(self.calls) == 1
        code = self.code if is_first or not self.next_codes else self.next_codes.pop(0)
        return {PARTITION: code}


class Groups:
    """One partition of `__consumer_offsets`, led here."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.transactions = TransactionCoordinator()
        placed = SimpleNamespace(partition_count=lambda: 1, leads=lambda _partition: True)
        parts = SimpleNamespace(
            clock=ManualClock(),
            entropy=None,
            off_loop=at_once,
            view=SimpleNamespace(topics={OFFSETS_TOPIC: SimpleNamespace(topic_id=OFFSETS_ID)}),
            appender=lambda _topic: self.log,
            placement=lambda _topic: placed,
        )
        self.service = GroupService(cast(CoordinatorParts, parts), GroupConfig(), MemoryPersister())
        self.runtime = self.service.coordinator.runtime

    async def lead(self) -> None:
        """A new leader epoch: the shard is loaded from the log."""
        self.log.epoch += 1
        self.runtime.on_leader(0, self.log.epoch)
        while not self.runtime.is_ready(0):
            await asyncio.sleep(0)

    async def transact(
        self,
        offset: int,
        producer: Producer = PRODUCER,
        *,
        is_enlisting: bool = True,
        connection: int = 0,
        group_id: str = GROUP,
    ) -> ErrorCode:
        """A TxnOffsetCommit of t-0."""
        request = TransactionalCommit(
            group_id=group_id,
            transactional_id="app",
            producer=producer,
            is_enlisting=is_enlisting,
            connection=connection,
            rows=(Commit(*T, offset, -1, ""),),
        )
        return (await self.service.transactional_commit(request, self.transactions))[T]

    async def commit(self, offset: int, group_id: str = GROUP) -> None:
        """An OffsetCommit of t-0."""
        request = OffsetCommit(
            group_id=group_id,
            generation=-1,
            member_id="",
            instance_id=None,
            retention_ms=-1,
            rows=(Commit(*T, offset, -1, ""),),
        )
        assert await self.service.commit(request) == {T: ErrorCode.NONE}

    async def end(self, *, commit: bool, producer: Producer = PRODUCER, bump: int = 1) -> None:
        """The transaction's marker; in transaction version 1 it does not raise the epoch."""
        await self.runtime.end_transaction(
            0, producer.producer_id, producer.producer_epoch + bump, 1, commit=commit
        )

    async def fetched(self, *, require_stable: bool = False) -> Committed:
        """An OffsetFetch of t-0."""
        return (await self.service.fetch(GROUP, (T,), require_stable=require_stable))[T]

    async def committed(self) -> int:
        """The committed offset of t-0; -1: none."""
        return (await self.fetched()).offset

    async def is_stable(self) -> bool:
        """Whether t-0 is answered to a consumer that requires stable offsets."""
        return (await self.fetched(require_stable=True)).error is ErrorCode.NONE


def play(story: Callable[[Groups], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        groups = Groups()
        await groups.lead()
        await story(groups)
        await groups.service.close()

    asyncio.run(asyncio.wait_for(run(), 30))
