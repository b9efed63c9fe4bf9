"""A log in memory with the methods of UnifiedLog that replication uses."""

from __future__ import annotations

from itertools import islice
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.records import batch
from headwater_broker.log.leader_epochs import LeaderEpochs
from headwater_broker.log.results import EMPTY, AppendOrigin, AppendResult, LogSlice

TOPIC_ID = UUID(int=7)


def make_batch(payload: bytes = b"x", records: int = 1) -> memoryview:
    """A writable batch of `records` records whose bytes are `payload`."""
    head = batch.HEADER.pack(
        0, batch.HEADER_BYTES - batch.LOG_OVERHEAD_BYTES + len(payload), -1, 2, 0, 0,
        records - 1, 0, 0, -1, -1, -1, records,
    )  # fmt: skip
    return memoryview(bytearray(head + payload))


class BytesFile:
    """Just enough of a File for reading."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size_bytes = len(data)

    def read_at(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]


class FakeLog:
    """Batches in a list; epochs by the log's own pure class."""

    def __init__(self, start: int = 0, topic: str = "t", partition: int = 0) -> None:
        self.topic, self.partition, self.topic_id = topic, partition, TOPIC_ID
        self.directory_id = UUID(int=1)
        self.batches: list[bytes] = []
        self.log_start_offset = self.local_log_start_offset = self.log_end_offset = start
        self.epochs = LeaderEpochs()
        self.first_unstable_offset: int | None = None
        self.size_bytes = 0
        self.broken = False
        self.is_closed = False
        self.truncations = 0

    def append_as_leader(
        self,
        view: memoryview,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendResult:
        if self.broken:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "Input/output error")
        base = self.log_end_offset
        batch.patch_base_offset(view, 0, base, leader_epoch)
        self._add(bytes(view))
        return AppendResult(base, self.log_end_offset - 1, -1, self.log_start_offset, False)

    def append_as_follower(self, view: memoryview, batches_max: int = 2**31) -> int:
        if self.broken:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "Input/output error")
        taken = 0
        for at, head in islice(batch.iter_headers(view), batches_max):
            assert head.base_offset == self.log_end_offset, "offset mismatch"
            if head.leader_epoch > self.epochs.latest:
                self.epochs.assign(head.leader_epoch, head.base_offset)
            self._add(bytes(view[at : at + head.size_bytes]))
            taken = at + head.size_bytes
        return taken

    def _add(self, data: bytes) -> None:
        self.batches.append(data)
        self.log_end_offset = batch.read_header(data).next_offset

    def read(self, offset: int, max_bytes: int, upper: int, *, min_one: bool) -> LogSlice:
        chosen: list[bytes] = []
        for data in self.batches:
            head = batch.read_header(data)
            if head.next_offset <= offset or head.next_offset > upper:
                continue
            if chosen and sum(map(len, chosen)) + len(data) > max_bytes:
                break
            chosen.append(data)
        if not chosen:
            return EMPTY
        whole = b"".join(chosen)
        return LogSlice(BytesFile(whole), 0, len(whole), batch.read_header(whole).base_offset)

    def high_watermark_moved(self, high_watermark: int) -> None:
        """It has no transactions to forget."""

    def last_stable_offset(self, high_watermark: int) -> int:
        first = self.first_unstable_offset
        return high_watermark if first is None else min(first, high_watermark)

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def assign_epoch_start(self, epoch: int, offset: int) -> None:
        self.epochs.assign(epoch, offset)

    def truncate_to(self, offset: int) -> None:
        self.batches = [b for b in self.batches if batch.read_header(b).next_offset <= offset]
        end = offset
        if self.batches:
            end = batch.read_header(self.batches[-1]).next_offset
        elif self.log_end_offset > self.log_start_offset:
            end = max(self.log_start_offset, min(offset, self.log_end_offset))
        self.log_end_offset = min(self.log_end_offset, end)
        self.epochs.truncate_from_end(self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int, start: int | None = None) -> None:
        self.batches = []
        self.local_log_start_offset = self.log_end_offset = offset
        self.log_start_offset = offset if start is None else start
        self.epochs.clear()

    def delete_records_before(self, offset: int) -> None:
        self.log_start_offset = max(self.log_start_offset, offset)
        self.local_log_start_offset = max(self.local_log_start_offset, self.log_start_offset)

    def offsets(self) -> list[tuple[int, int, bytes]]:
        """(base offset, epoch, payload) of every batch."""
        heads = [(batch.read_header(b), b) for b in self.batches]
        return [(h.base_offset, h.leader_epoch, bytes(b[61:])) for h, b in heads]
