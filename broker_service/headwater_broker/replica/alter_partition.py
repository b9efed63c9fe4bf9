"""Sends ISR changes to the controller (KIP-497): one request at a time, with all that are due."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from uuid import UUID

from headwater.clock import Clock
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.wire.control import (
    AlterPartitionItem,
    AlterPartitionReply,
    AlterPartitionRequest,
    AlterPartitionResult,
)
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.replication_config import ReplicationConfig

_log = logging.getLogger(__name__)

Call = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionReply]]


class AlterPartitionManager:
    """Collects proposed ISRs and sends them. A partition has at most one open (`pending_isr`)."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        clock: Clock,
        limits: ReplicationConfig,
        call: Call,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._backoff_s = limits.alter_partition_backoff_ms / 1000
        self._timeout_s = limits.alter_partition_timeout_ms / 1000
        self._call = call
        self._due: dict[tuple[UUID, int], Partition] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.shrinks_total = 0
        """ISRs of this broker's leaders that shrank."""
        self.expands_total = 0

    def propose(self, partition: Partition) -> None:
        """Send `partition.alter_partition_item` soon, together with the others that are due."""
        self._due[(partition.topic_id, partition.partition)] = partition
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop sending; the next leader decides the ISR anew."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            try:
                await self._task
            except asyncio.CancelledError:
                pass

    async def _run(self) -> None:
        try:
            while self._due:
                due, self._due = self._due, {}
                again = await self._send(due)
                if again:
                    await asyncio.sleep(self._backoff_s)
                    for key, partition in again.items():
                        self._due.setdefault(key, partition)
        finally:
            self._task = None

    async def _send(
        self, due: dict[tuple[UUID, int], Partition]
    ) -> dict[tuple[UUID, int], Partition]:
        """Send one request; returns the partitions whose proposal has to be sent again."""
        epoch = self._broker_epoch()
        items = {
            key: item
            for key, p in due.items()
            if (item := p.alter_partition_item(epoch)) is not None
        }
        if not items:
            return {}
        request = AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=epoch, partitions=tuple(items.values())
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._call(request)
        except (HeadwaterError, OSError, TimeoutError) as error:
            # The outcome is unknown: the proposals stay open, and are repeated as they are.
            _log.warning("AlterPartition of %d partitions: %s; again", len(items), error)
            return {key: due[key] for key in items}
        if reply.error_code != ErrorCode.NONE:
            error_name = KafkaError(ErrorCode(reply.error_code)).code.name
            _log.warning("AlterPartition of %d partitions: %s; again", len(items), error_name)
            return {key: due[key] for key in items}
        return self._settle(due, items, reply.partitions)

    def _settle(
        self,
        due: dict[tuple[UUID, int], Partition],
        items: dict[tuple[UUID, int], AlterPartitionItem],
        results: tuple[AlterPartitionResult, ...],
    ) -> dict[tuple[UUID, int], Partition]:
        retry_at = self._clock.monotonic() + self._backoff_s
        again = {}
        answered = {(result.topic_id, result.partition): result for result in results}
        for key, item in items.items():
            result = answered.get(key)
            partition = due[key]
            if result is None:
                again[key] = partition
                continue
            if result.error_code:
                name = ErrorCode(result.error_code).name
                _log.info("%r: ISR %s rejected: %s", partition, partition.pending_isr, name)
            size = len(partition.isr)
            if partition.on_isr_result(item, result, retry_at):
                again[key] = partition
            self.shrinks_total += len(partition.isr) < size
            self.expands_total += len(partition.isr) > size
        return again
