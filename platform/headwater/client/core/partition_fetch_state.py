"""A consumer's state of one partition: its position, its fetches, and which records are visible.
Pure.

The position moves only when records are returned; `fetch_offset` is ahead of it. A seek changes
`stamp`, so that the response to an earlier fetch is dropped. Each assignment has a stamp of its
own: after a rebalance the partition is read from its committed offset, and the response to a fetch
of the assignment before would skip records.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from itertools import repeat
from typing import TypeVar

from headwater.client.core.completed_fetch import AbortedFilter, CompletedFetch
from headwater.client.errors import kafka_error
from headwater.client.values import ConsumerRecord
from headwater.errors import HeadwaterError, KafkaError
from headwater.records.batch import BatchHeader, iter_headers
from headwater.records.control import control_type
from headwater.records.record import (
    ColumnsDecoder,
    batch_columns,
    check_batch,
    decode_batch,
    decode_columns,
)

T = TypeVar("T")
NO_REPLICA = -1
_STAMPS = itertools.count(1)


class PartitionFetchState:
    """The state of one assigned partition. The lock of `SubscriptionState` guards it."""

    __slots__ = (
        "_at",
        "_current",
        "_filter",
        "_row_at",
        "_rows",
        "buffered_bytes",
        "error",
        "failing_since",
        "failure",
        "fetch_offset",
        "fetches",
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
        "required_epoch",
        "reset_to",
        "stamp",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.position: int | None = None
        self.reset_to: int | None = None
        """The ListOffsets timestamp that gives the position, after a seek to an end."""
        self.leader_epoch = -1
        """Of the record before `position`; -1 while it is not known (KIP-320)."""
        self.required_epoch = -1
        """A leader with an older epoch is not read from; -1 once the metadata cache has it."""
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
        """An error that the next `poll` raises."""
        self.failing_since: float | None = None
        """Since when the broker answers UNKNOWN_SERVER_ERROR."""
        self.failure: Exception | None = None
        """The last error that is retried, until a fetch succeeds."""
        self.fetches: deque[CompletedFetch] = deque()
        self.buffered_bytes = 0
        self._drop_buffers()

    def _drop_buffers(self) -> None:
        self.fetches.clear()
        self.buffered_bytes = 0
        self._current: CompletedFetch | None = None
        self._at = 0
        self._filter = AbortedFilter([])
        self._rows: list[ConsumerRecord] = []
        self._row_at = 0

    def seek(self, offset: int, leader_epoch: int = -1) -> None:
        """Continue at `offset`, after a record of `leader_epoch`; drop what is buffered."""
        self.stamp = next(_STAMPS)
        self.in_flight = False
        self.reset_to = None
        self.error = self.failing_since = self.failure = None
        self.position = self.fetch_offset = offset
        self.leader_epoch = leader_epoch
        # A seek does not undo an epoch that is required already.
        self.required_epoch = max(self.required_epoch, leader_epoch)
        self._drop_buffers()

    def seek_by_timestamp(self, timestamp: int) -> None:
        """Continue at the offset that ListOffsets gives for `timestamp`, once it is known."""
        self.seek(-1)
        self.position = None
        self.reset_to = timestamp

    def read_node(self, leader: int, now: float) -> int:
        """The node to fetch from at `now`: the preferred read replica (KIP-392), or the leader."""
        if now >= self.preferred_until:
            self.preferred_replica = NO_REPLICA
        return leader if self.preferred_replica == NO_REPLICA else self.preferred_replica

    def prefer_replica(self, replica: int, until: float) -> None:
        """Fetch from the replica that the leader names, `until` then (monotonic s)."""
        self.preferred_replica, self.preferred_until = replica, until

    def server_failed(self, now: float, timeout_s: float) -> bool:
        """The broker answered UNKNOWN_SERVER_ERROR at `now` (monotonic s); True once that has
        lasted for `timeout_s`."""
        if self.failing_since is None:
            self.failing_since = now
        return now - self.failing_since >= timeout_s

    def add_fetch(self, fetch: CompletedFetch, stamp: int) -> bool:
        """Buffer a fetch. False if it was requested before the last seek or assignment."""
        if stamp != self.stamp:
            return False
        self.in_flight = False
        self.failing_since = self.failure = None
        if fetch.next_offset > self.fetch_offset:
            self.fetches.append(fetch)
            self.buffered_bytes += len(fetch.records)
            self.fetch_offset = fetch.next_offset
        return True

    @property
    def unread_bytes(self) -> int:
        """Fetched bytes whose records were not returned; the fetch being read counts as a whole."""
        return self.buffered_bytes + (0 if self._current is None else len(self._current.records))

    @property
    def has_data(self) -> bool:
        """True while records may be buffered."""
        return self._row_at < len(self._rows) or self._current is not None or bool(self.fetches)

    def next_records(
        self, limit: int, *, check_crcs: bool, decode: ColumnsDecoder = decode_columns
    ) -> list[ConsumerRecord]:
        """Up to `limit` records; the position moves after them. Raises KafkaError for a batch that
        cannot be read."""
        try:
            return self._next_records(limit, check_crcs, decode)
        except KafkaError as e:
            raise kafka_error(e.code, f"{self.topic}-{self.partition}: {e.detail}") from e

    def _next_records(
        self, limit: int, check_crcs: bool, decode: ColumnsDecoder
    ) -> list[ConsumerRecord]:
        while True:
            rows, at = self._rows, self._row_at
            if at < len(rows):
                out = rows[at : at + limit]
                self._row_at = at + len(out)
                self.position = out[-1].offset + 1
                self._read_epoch(out[-1].leader_epoch)
                return out
            if not self._next_batch(check_crcs, decode):
                return []

    def _next_batch(self, check_crcs: bool, decode: ColumnsDecoder) -> bool:
        """Decode the next visible batch; False when nothing is buffered.

        A batch that cannot be read raises at every call: only a seek passes it, as with Java's
        consumer.
        """
        if self._current is None:
            if not self.fetches:
                return False
            self._current = self.fetches.popleft()
            self.buffered_bytes -= len(self._current.records)
            self._at = 0
            self._filter = AbortedFilter(self._current.aborted)
        fetch = self._current
        for at, header in iter_headers(fetch.records, self._at):
            if check_crcs:
                check_batch(fetch.records, at, header)
            hidden = header.is_transactional and self._filter.is_aborted(
                header.producer_id, header.last_offset
            )
            if header.is_control:
                rows = decode_batch(fetch.records, at, header)
                if rows:
                    self._filter.on_marker(header.producer_id, control_type(rows[0].key))
            elif not hidden:
                self._decode(fetch, at, header, decode)
                self._at = at + header.size_bytes
                return True
            self._at = at + header.size_bytes
            self._passed(header.next_offset, header.leader_epoch)
        self._passed(fetch.next_offset, fetch.leader_epoch)
        self._current = None
        return True

    def _passed(self, next_offset: int, leader_epoch: int) -> None:
        """Everything before `next_offset` is read; the last batch has `leader_epoch`."""
        if next_offset > (self.position or 0):
            self.position = next_offset
            self._read_epoch(leader_epoch)

    def _read_epoch(self, leader_epoch: int) -> None:
        if leader_epoch >= 0:  # old batches have none
            self.leader_epoch = leader_epoch

    def _decode(
        self, fetch: CompletedFetch, at: int, header: BatchHeader, decode: ColumnsDecoder
    ) -> None:
        start = max(fetch.start_offset, self.position or 0)
        kind = 1 if header.is_log_append_time else 0
        epoch = header.leader_epoch
        offsets, timestamps, keys, values, headers = batch_columns(
            fetch.records, at, header, start, decode=decode
        )
        rows = zip(
            repeat(self.topic),
            repeat(self.partition),
            offsets,
            timestamps,
            repeat(kind),
            keys,
            values,
            headers,
            repeat(epoch),
            strict=False,  # by the columns' length
        )
        # A NamedTuple's own constructor takes twice the time.
        self._rows = list(map(tuple.__new__, repeat(ConsumerRecord), rows))
        self._row_at = 0
        if not self._rows:
            self._passed(header.next_offset, epoch)

    def _next_fetch(self) -> CompletedFetch | None:
        """A whole fetch for columnar decoding; the caller moves the position.

        A fetch that was read in part starts at the position.
        """
        position = self.position or 0
        if self._current is not None:
            fetch = self._current
            self._current, self._rows, self._row_at = None, [], 0
            return fetch._replace(start_offset=max(position, fetch.start_offset))
        self._rows, self._row_at = [], 0
        if not self.fetches:
            return None
        fetch = self.fetches.popleft()
        self.buffered_bytes -= len(fetch.records)
        return fetch._replace(start_offset=max(position, fetch.start_offset))

    def next_decoded(self, decode: Callable[[str, int, CompletedFetch], T]) -> T | None:
        """A whole fetch, decoded; the position moves after it. None when nothing is buffered.

        A fetch that cannot be decoded stays buffered, and raises again.
        """
        fetch = self._next_fetch()
        if fetch is None:
            return None
        try:
            decoded = decode(self.topic, self.partition, fetch)
        except HeadwaterError:
            self.fetches.appendleft(fetch)
            self.buffered_bytes += len(fetch.records)
            raise
        self._passed(fetch.next_offset, fetch.leader_epoch)
        return decoded
