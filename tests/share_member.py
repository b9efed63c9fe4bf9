"""A member of a share group on a raw connection: what it fetches, acknowledges, and is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headwater.client.connection import Connection
from headwater.records.batch import iter_headers
from headwater.wire.apis import k78_share_fetch as k78
from headwater.wire.apis import k79_share_acknowledge as k79
from headwater_broker.replica.share.sessions import FINAL_EPOCH

Answer = tuple[int, int, int]
"""Acknowledge type, first and last offset."""


@dataclass
class Member:
    """One share session on one connection."""

    connection: Connection
    topic_id: UUID
    group: str = "g"
    member: str = "a"
    partitions: tuple[int, ...] = (0,)
    epoch: int = 0
    version: int = 2
    options: dict[str, Any] = field(default_factory=dict)

    async def fetch(self, *answers: Answer, partition: int = 0, **options: Any) -> Any:
        """The whole reply. Acknowledges `answers` of `partition` along with it."""
        acknowledged = tuple(
            k78.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=(kind,)
            )
            for kind, first, last in answers
        )
        rows = tuple(
            k78.FetchPartition(
                partition_index=index,
                acknowledgement_batches=acknowledged if index == partition else (),
            )
            for index in self.partitions
        )
        asked = {
            "max_wait_ms": 0, "min_bytes": 1, "max_records": 500, "batch_size": 500,
            **self.options, **options,
        }  # fmt: skip
        request = k78.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=asked.pop("epoch", self.epoch),
            topics=(k78.FetchTopic(topic_id=self.topic_id, partitions=rows),),
            **asked,
        )
        reply = await self.connection.call(request, k78.ShareFetchResponse, version=self.version)
        if not reply.error_code:
            self.epoch = max(request.share_session_epoch, 0) + 1
        return reply

    async def rows(self, *answers: Answer, **options: Any) -> list[tuple[int, int, int]]:
        """(first, last, delivery count) of what was acquired; there is no error."""
        reply = await self.fetch(*answers, **options)
        assert reply.error_code == 0, reply
        found = []
        for row in rows_of(reply):
            assert row.error_code == 0 and row.acknowledge_error_code == 0, row
            found += [
                (a.first_offset, a.last_offset, a.delivery_count) for a in row.acquired_records
            ]
            check_records(row)
        return found

    async def acknowledge(self, *answers: Answer, epoch: int | None = None, **options: Any) -> Any:
        """The whole reply of ShareAcknowledge."""
        batches = tuple(
            k79.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=(kind,)
            )
            for kind, first, last in answers
        )
        row = k79.AcknowledgePartition(
            partition_index=options.pop("partition", 0), acknowledgement_batches=batches
        )
        request = k79.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=(k79.AcknowledgeTopic(topic_id=self.topic_id, partitions=(row,)),)
            if batches
            else (),
            **options,
        )
        reply = await self.connection.call(
            request, k79.ShareAcknowledgeResponse, version=self.version
        )
        if not reply.error_code and epoch is None:
            self.epoch += 1
        return reply

    async def close(self) -> Any:
        """End the session: what it holds is given back."""
        return await self.acknowledge(epoch=FINAL_EPOCH)


def rows_of(reply: Any) -> Iterator[Any]:
    """The partitions of a reply."""
    for topic in reply.responses:
        yield from topic.partitions


def code_of(reply: Any) -> int:
    """The error of the only partition of a ShareAcknowledge reply."""
    (row,) = rows_of(reply)
    return int(row.error_code)


def check_records(row: k78.PartitionData) -> None:
    """The records are whole batches that begin and end where the acquired offsets do."""
    if not row.acquired_records:
        assert not row.records
        return
    headers = [header for _, header in iter_headers(bytes(row.records))]
    first, last = row.acquired_records[0].first_offset, row.acquired_records[-1].last_offset
    assert headers[0].base_offset <= first <= headers[0].last_offset
    assert headers[-1].base_offset <= last <= headers[-1].last_offset
