"""Requests of epoch transactions to one broker, for tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.system import SystemClock
from headwater.wire.apis import k10000_allocate_epoch_ticket as k10000
from headwater.wire.apis import k10001_join_epoch as k10001
from headwater.wire.apis import k10002_commit_epoch as k10002
from headwater.wire.apis import k10003_abort_epoch as k10003
from headwater.wire.apis import k10004_prepare_epoch as k10004
from headwater.wire.apis import k10005_epoch_heartbeat as k10005
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.wire.epoch_values import EpochStatus, SinkKind
from unit.log.harness import batch

RUN, NEWER_RUN = UUID(int=0xA), UUID(int=0xB)


@dataclass(frozen=True)
class Writer:
    """A run's attempt to write an epoch, over one connection."""

    c: Connection
    ticket: int
    epoch: int = 0
    run: UUID = RUN
    sink: str = "alerts"
    owner: str = "query"
    kind: SinkKind = SinkKind.QUERY

    def but(self, **changes: object) -> Writer:
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def _named(self) -> dict[str, object]:
        return {
            "sink": self.sink,
            "owner": self.owner,
            "run": self.run,
            "ticket": self.ticket,
            "epoch": self.epoch,
        }

    async def join(
        self, task: int = 0, attempt: int = 0, *partitions: int
    ) -> k10001.JoinEpochResponse:
        topics = (k10001.JoinEpochTopic(name="flights", partitions=partitions),)
        request = k10001.JoinEpochRequest(
            **self._named,
            kind=self.kind,
            task=task,
            attempt=attempt,
            topics=topics if partitions else (),
        )
        return await self.c.call(request, k10001.JoinEpochResponse, version=0)

    async def commit(
        self, *joined: k10001.JoinEpochResponse, is_prepared: bool = False
    ) -> k10002.CommitEpochResponse:
        request = k10002.CommitEpochRequest(
            **self._named, kind=self.kind, is_prepared=is_prepared, participants=named(*joined)
        )
        return await self.c.call(request, k10002.CommitEpochResponse, version=0)

    async def prepare(self, *joined: k10001.JoinEpochResponse) -> k10004.PrepareEpochResponse:
        request = k10004.PrepareEpochRequest(
            **self._named, kind=self.kind, participants=named(*joined)
        )
        return await self.c.call(request, k10004.PrepareEpochResponse, version=0)

    async def abort(self, *, is_prepared: bool = False) -> k10003.AbortEpochResponse:
        request = k10003.AbortEpochRequest(**self._named, kind=self.kind, is_prepared=is_prepared)
        return await self.c.call(request, k10003.AbortEpochResponse, version=0)

    async def heartbeat(self) -> EpochStatus:
        request = k10005.EpochHeartbeatRequest(**self._named)
        reply = await self.c.call(request, k10005.EpochHeartbeatResponse, version=0)
        assert reply.error_code == ErrorCode.NONE
        return EpochStatus(reply.status)


def named(*joined: k10001.JoinEpochResponse) -> tuple[k10002.EpochParticipant, ...]:
    """The participants of tasks 0, 1, ..."""
    return tuple(
        k10002.EpochParticipant(
            task=task,
            slot=reply.slot,
            producer_id=reply.producer_id,
            producer_epoch=reply.producer_epoch,
        )
        for task, reply in enumerate(joined)
    )


async def ticket(c: Connection) -> int:
    request = k10000.AllocateEpochTicketRequest()
    reply = await c.call(request, k10000.AllocateEpochTicketResponse, version=0)
    assert reply.error_code == ErrorCode.NONE
    return reply.ticket


async def write(
    c: Connection, joined: k10001.JoinEpochResponse, index: int = 0, sequence: int = 0
) -> ErrorCode:
    """Write a record as a participant."""
    records = batch(
        timestamp=SystemClock().now_ms(),  # an older one than the marker's would roll the log
        producer_id=joined.producer_id,
        epoch=joined.producer_epoch,
        sequence=sequence,
        transactional=True,
    )
    entry = PartitionProduceData(index=index, records=bytes(records))
    request = ProduceRequest(
        transactional_id=joined.transactional_id,
        acks=-1,
        timeout_ms=20_000,
        topic_data=(TopicProduceData(name="flights", partition_data=(entry,)),),
    )
    reply = await c.call(request, ProduceResponse, version=12)
    return ErrorCode(reply.responses[0].partition_responses[0].error_code)
