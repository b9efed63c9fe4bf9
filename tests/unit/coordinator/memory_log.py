"""An `Appender` in memory, whose high watermark and failures the test decides."""

from __future__ import annotations

import asyncio

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import iter_headers, patch_base_offset
from headwater_broker.coordinator.common.appender import AppendState
from headwater_broker.coordinator.common.shard import Producer
from headwater_broker.log.results import AppendOrigin, AppendResult


class MemoryLog:
    """One partition. Everything is committed at once unless `is_held`."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.appends = 0
        self.end = 0
        self.high_watermark = 0
        self.epoch = 0
        self.batch_max_bytes = 1 << 20
        self.is_held = False
        self.rejection: KafkaError | None = None
        """What `check_append` raises."""
        self.failure: KafkaError | None = None
        """What the next append raises, though nothing foretold it."""
        self.is_written_though_failed = False
        self.is_confirmed = True
        """What the metadata store says of the leadership."""
        self.look_ups = 0
        self.coordinator_epochs: dict[int, int] = {}
        """Of markers, by producer id."""
        self.read_gate: asyncio.Event | None = None
        self.start = 0
        self.is_lone = False
        """True: `lone_log` is this log, as that of a partition without followers."""
        self._moved = asyncio.Event()

    def release(self) -> None:
        """Let the high watermark reach the log's end."""
        self.is_held = False
        self.high_watermark = self.end
        self._move()

    def depose(self) -> None:
        """Another epoch: this leadership is over."""
        self.epoch += 1
        self._move()

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def check_append(
        self, partition: int, epoch: int, producer: Producer | None = None
    ) -> AppendState:
        self._check(epoch)
        if self.rejection is not None:
            raise self.rejection
        return AppendState(self.end, self.batch_max_bytes)

    def append(self, partition: int, epoch: int, batches: memoryview) -> int:
        self._check(epoch)
        failure, self.failure = self.failure, None
        if failure is not None and not self.is_written_though_failed:
            raise failure
        first = self.end
        self.appends += 1
        for at, header in list(iter_headers(batches)):
            batch = batches[at : at + header.size_bytes]
            patch_base_offset(batch, 0, self.end, epoch)
            self.batches.append(bytes(batch))
            self.end += header.last_offset_delta + 1
        if not self.is_held:
            self.high_watermark = self.end
        if failure is not None:
            raise failure
        return first

    def lone_log(
        self, partition: int, epoch: int, producer: Producer | None = None
    ) -> LoneMemoryLog | None:
        is_lone = self.is_lone and epoch == self.epoch and self.rejection is None
        return LoneMemoryLog(self) if is_lone and not self.is_held else None

    def coordinator_epoch(self, partition: int, producer_id: int) -> int:
        return self.coordinator_epochs.get(producer_id, -1)

    async def leads(self, partition: int, epoch: int) -> bool:
        self.look_ups += 1
        await asyncio.sleep(0)
        return self.is_confirmed and epoch == self.epoch

    def committed_end(self, partition: int, epoch: int) -> int:
        self._check(epoch)
        return self.high_watermark

    async def committed(self, partition: int, epoch: int, offset: int, timeout_ms: int) -> None:
        while self.high_watermark <= offset:
            self._check(epoch)
            try:
                await asyncio.wait_for(self._moved.wait(), timeout_ms / 1000)
            except TimeoutError:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "held") from None
        self._check(epoch)

    async def read_from(self, partition: int, epoch: int, offset: int) -> bytes:
        if self.read_gate is not None:
            await self.read_gate.wait()
        self._check(epoch)
        offset = max(offset, self.start)
        for batch in self.batches:
            if next(iter(iter_headers(memoryview(batch))))[1].last_offset >= offset:
                return batch
        return b""

    def delete_before(self, partition: int, epoch: int, offset: int) -> None:
        self._check(epoch)
        self.start = max(self.start, min(offset, self.high_watermark))

    def _check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"epoch is {self.epoch}")


class LoneMemoryLog:
    """Implements `LoneLog`."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def append(
        self, view: memoryview, acks: int, now_ms: int, origin: AppendOrigin
    ) -> AppendResult:
        if len(view) > self._log.batch_max_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(view)} bytes")
        first = self._log.append(0, self._log.epoch, view)
        return AppendResult(first, self._log.end - 1, -1, self._log.start, False)
