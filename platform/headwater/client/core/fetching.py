"""The consumer's machine for one partition: where to fetch, what is buffered, what readers may see.

Positions move only when records are handed out; `fetch_offset` runs ahead of them. A seek changes
`stamp`, so that a reply to an older question is dropped (B3: a stale answer is never used). No two
assignments share a stamp: after a rebalance the same partition is read anew from what was
committed, and what is still on its way lies further on.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from headwater.client.errors import kafka_error
from headwater.client.values import ConsumerRecord
from headwater.errors import HeadwaterError, KafkaError
from headwater.records.batch import iter_headers
from headwater.records.control import ControlType, control_type
from headwater.records.record import check_batch, decode_batch

T = TypeVar("T")
NO_REPLICA = -1
_STAMPS = itertools.count(1)
SERVER_ERROR_PATIENCE_S = 10.0
"""A broker's unexplained error is tried again this long before the reader is told."""


class Chunk(NamedTuple):
    """One partition's answer of one fetch: whole batches, and what to leave out."""

    records: memoryview
    start_offset: int
    next_offset: int
    aborted: list[tuple[int, int]]
    leader_epoch: int = -1
    """In which the last batch was written."""


class AbortedFilter:
    """Which transactional batches of one fetch were aborted (KIP-98, read_committed)."""

    __slots__ = ("_pending", "_producers")

    def __init__(self, aborted: list[tuple[int, int]]) -> None:
        self._pending = [(first, producer) for producer, first in aborted]
        heapq.heapify(self._pending)
        self._producers: set[int] = set()

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """True when the batch of this producer ending at `last_offset` must not be seen."""
        while self._pending and self._pending[0][0] <= last_offset:
            self._producers.add(heapq.heappop(self._pending)[1])
        return producer_id in self._producers

    def on_marker(self, producer_id: int, kind: ControlType) -> None:
        """A transaction of the producer ended."""
        if kind is ControlType.ABORT:
            self._producers.discard(producer_id)


class PartitionFetch:
    """One assigned partition. The consumer's lock guards it."""

    __slots__ = (
        "_at",
        "_current",
        "_filter",
        "_row_at",
        "_rows",
        "buffered_bytes",
        "chunks",
        "error",
        "failing_since",
        "fetch_offset",
        "high_watermark",
        "in_flight",
        "is_paused",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "not_before",
        "partition",
        "position",
        "preferred_replica",
        "preferred_until",
        "reset_to",
        "stamp",
        "to_heed",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.position: int | None = None
        self.reset_to: int | None = None
        """A ListOffsets timestamp to take the position from, when it is asked for."""
        self.leader_epoch = -1
        """In which the record before `position` was written; -1 while it is not known (KIP-320)."""
        self.to_heed = -1
        """Who leads with an older epoch is not asked; -1 once the cache of leaders knows of it."""
        self.preferred_replica = NO_REPLICA
        self.preferred_until = 0.0
        self.fetch_offset = -1
        self.stamp = next(_STAMPS)
        self.in_flight = False
        self.is_paused = False
        self.not_before = 0.0
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.error: Exception | None = None
        self.failing_since: float | None = None
        self.chunks: deque[Chunk] = deque()
        self.buffered_bytes = 0
        self._drop_buffers()

    def _drop_buffers(self) -> None:
        self.chunks.clear()
        self.buffered_bytes = 0
        self._current: Chunk | None = None
        self._at = 0
        self._filter = AbortedFilter([])
        self._rows: list[ConsumerRecord] = []
        self._row_at = 0

    def seek(self, offset: int, leader_epoch: int = -1) -> None:
        """Go on at `offset`, which follows a record of `leader_epoch`; drop what is buffered."""
        self.stamp = next(_STAMPS)
        self.in_flight = False
        self.reset_to = None
        self.error = self.failing_since = None
        self.position = self.fetch_offset = offset
        self.leader_epoch = leader_epoch
        self.to_heed = max(self.to_heed, leader_epoch)  # a seek does not undo what was heard
        self._drop_buffers()

    def seek_by_timestamp(self, timestamp: int) -> None:
        """Go on where ListOffsets says, once it has said so."""
        self.seek(-1)
        self.position = None
        self.reset_to = timestamp

    def source(self, leader: int, now: float) -> int:
        """Whom to ask at `now`: the replica that the leader prefers for us (KIP-392), or itself."""
        if now >= self.preferred_until:
            self.preferred_replica = NO_REPLICA
        return leader if self.preferred_replica == NO_REPLICA else self.preferred_replica

    def prefer(self, replica: int, until: float) -> None:
        """The leader sends us to another replica; `until` then it is asked again (monotonic)."""
        self.preferred_replica, self.preferred_until = replica, until

    def failed(self, now: float) -> bool:
        """The broker failed without a reason at `now` (monotonic); True once it is to be told."""
        if self.failing_since is None:
            self.failing_since = now
        return now - self.failing_since >= SERVER_ERROR_PATIENCE_S

    def took(self, chunk: Chunk, stamp: int) -> bool:
        """A fetch came back. False when it answers an old question."""
        if stamp != self.stamp:
            return False
        self.in_flight = False
        self.failing_since = None
        if chunk.next_offset > self.fetch_offset:
            self.chunks.append(chunk)
            self.buffered_bytes += len(chunk.records)
            self.fetch_offset = chunk.next_offset
        return True

    @property
    def has_data(self) -> bool:
        """True when `take` may give something."""
        return self._row_at < len(self._rows) or self._current is not None or bool(self.chunks)

    def take(self, limit: int, *, check_crcs: bool) -> list[ConsumerRecord]:
        """Up to `limit` records, position moved behind them. Raises KafkaError on bad batches."""
        try:
            return self._take(limit, check_crcs=check_crcs)
        except KafkaError as e:
            raise kafka_error(e.code, f"{self.topic}-{self.partition}: {e.detail}") from e

    def _take(self, limit: int, *, check_crcs: bool) -> list[ConsumerRecord]:
        while True:
            rows, at = self._rows, self._row_at
            if at < len(rows):
                out = rows[at : at + limit]
                self._row_at = at + len(out)
                self.position = out[-1].offset + 1
                self._read_epoch(out[-1].leader_epoch)
                return out
            if not self._next_batch(check_crcs=check_crcs):
                return []

    def _next_batch(self, *, check_crcs: bool) -> bool:
        """Decode the next batch that may be seen; False when nothing is buffered.

        A bad batch raises at every call: only a seek passes it, as with Java's consumer.
        """
        if self._current is None:
            if not self.chunks:
                return False
            self._current = self.chunks.popleft()
            self.buffered_bytes -= len(self._current.records)
            self._at = 0
            self._filter = AbortedFilter(self._current.aborted)
        chunk = self._current
        for at, header in iter_headers(chunk.records, self._at):
            if check_crcs:
                check_batch(chunk.records, at, header)
            hidden = header.is_transactional and self._filter.is_aborted(
                header.producer_id, header.last_offset
            )
            if header.is_control:
                rows = decode_batch(chunk.records, at, header)
                if rows:
                    self._filter.on_marker(header.producer_id, control_type(rows[0].key))
            elif not hidden:
                self._decode(chunk, at)
                self._at = at + header.size_bytes
                return True
            self._at = at + header.size_bytes
            self._passed(header.next_offset, header.leader_epoch)
        self._passed(chunk.next_offset, chunk.leader_epoch)
        self._current = None
        return True

    def _passed(self, next_offset: int, leader_epoch: int) -> None:
        """All below `next_offset` is read; the batch before it was written in `leader_epoch`."""
        if next_offset > (self.position or 0):
            self.position = next_offset
            self._read_epoch(leader_epoch)

    def _read_epoch(self, leader_epoch: int) -> None:
        if leader_epoch >= 0:  # a batch from before there were any tells nothing
            self.leader_epoch = leader_epoch

    def _decode(self, chunk: Chunk, at: int) -> None:
        header = next(iter_headers(chunk.records, at))[1]
        start = max(chunk.start_offset, self.position or 0)
        kind = 1 if header.is_log_append_time else 0
        topic, partition, epoch = self.topic, self.partition, header.leader_epoch
        self._rows = [
            ConsumerRecord(topic, partition, offset, timestamp, kind, key, value, headers, epoch)
            for offset, timestamp, key, value, headers in decode_batch(
                chunk.records, at, header, start
            )
        ]
        self._row_at = 0
        if not self._rows:
            self._passed(header.next_offset, epoch)

    def _take_chunk(self) -> Chunk | None:
        """A whole chunk for columnar decoding; the caller moves the position.

        Records of a half-read chunk come as a chunk that starts at the position.
        """
        position = self.position or 0
        if self._current is not None:
            chunk = self._current
            self._current, self._rows, self._row_at = None, [], 0
            return chunk._replace(start_offset=max(position, chunk.start_offset))
        self._rows, self._row_at = [], 0
        if not self.chunks:
            return None
        chunk = self.chunks.popleft()
        self.buffered_bytes -= len(chunk.records)
        return chunk._replace(start_offset=max(position, chunk.start_offset))

    def take_decoded(self, decode: Callable[[str, int, Chunk], T]) -> T | None:
        """A whole chunk as `decode` gives it, position moved behind it; None: nothing is buffered.

        What cannot be decoded stays where it is, and raises again.
        """
        chunk = self._take_chunk()
        if chunk is None:
            return None
        try:
            decoded = decode(self.topic, self.partition, chunk)
        except HeadwaterError:
            self.chunks.appendleft(chunk)
            self.buffered_bytes += len(chunk.records)
            raise
        self._passed(chunk.next_offset, chunk.leader_epoch)
        return decoded
