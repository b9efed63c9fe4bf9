"""Appends transaction markers to the partitions that this broker leads (KIP-98, KIP-890, KIP-1228).

Kafka does so in its handler of WriteTxnMarkers. The coordinator of this broker calls the writer
directly, those of other brokers by WriteTxnMarkers. A partition gets all markers of one call in one
append, and each marker is answered once the high watermark has passed it.

A marker of a coordinator's topic (`__consumer_offsets`) goes through that coordinator's runtime: it
is answered after the shard has replayed it, so that whoever then asks for the offsets finds them
(KAFKA-17507).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater.records.control import ControlType, build_marker
from headwater_broker.log.producer_state_manager import EPOCH_PER_TRANSACTION
from headwater_broker.log.results import AppendOrigin
from headwater_broker.replica.append_service import AppendService
from headwater_broker.replica.partition import ACKS_ALL, Partition
from headwater_broker.replica.replica_manager import ReplicaManager
from headwater_broker.runtime.first_step import Finished, first_step

COMMIT_TIMEOUT_MS = 30_000
"""Kafka: request.timeout.ms. The coordinator sends a marker again that is not replicated by then.
"""
NO_TOPIC_ID = UUID(int=0)
_COORDINATOR_AWAY = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""The sender takes these as its own: as in Kafka it gets NOT_LEADER_OR_FOLLOWER instead."""

TopicPartition = tuple[str, int]


class TransactionMarker(NamedTuple):
    """The end of one transaction on some partitions."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int
    """Below 2 a marker has the epoch of the transaction's batches; since 2 the one after it."""
    partitions: Mapping[TopicPartition, UUID]
    """Partition -> topic id; the zero UUID is not checked."""


Results = list[dict[TopicPartition, ErrorCode]]
"""One mapping per marker."""
_Rows = list[tuple[int, TransactionMarker]]
"""Markers of one partition, each with its place in the call."""


class EndTransaction(Protocol):
    """`CoordinatorRuntime.end_transaction` of a coordinator's topic."""

    def __call__(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
    ) -> Awaitable[None]:
        """Append and replay a marker before the first await; return when it is committed. Raises
        KafkaError."""
        ...


class MarkerWriter:
    """Writes markers to partitions led here. All methods run on the broker's loop."""

    def __init__(
        self,
        replicas: ReplicaManager,
        appends: AppendService,
        clock: Clock,
        coordinators: Mapping[str, EndTransaction],
        *,
        timeout_ms: int = COMMIT_TIMEOUT_MS,
    ) -> None:
        """`coordinators`: internal topic -> its coordinator, which appends and replays."""
        self._replicas = replicas
        self._appends = appends
        self._clock = clock
        self._coordinators = coordinators
        self._timeout_ms = timeout_ms
        self._connections: dict[int, int] = {}
        """Broker -> the newest of its connections that has sent markers."""

    def is_late(self, broker_id: int, connection: int) -> bool:
        """True when a broker's markers come on an older connection than the last ones.

        The broker has given that connection up and sent them again, so nobody waits for them; and
        before transaction version 2 a late marker would end the producer's next transaction, which
        has the same epoch. `connection` rises with each accepted connection.
        """
        newest = self._connections.get(broker_id, connection)
        self._connections[broker_id] = max(newest, connection)
        return connection < newest

    async def write(self, markers: Sequence[TransactionMarker]) -> Results:
        """Append the markers; one mapping per marker, its partitions with their error codes.

        NONE: the marker, or the same one before it, is below the high watermark. Errors of a
        partition: NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, INCONSISTENT_TOPIC_ID (the
        partition is of a later topic of that name), INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED, and those of an append.
        """
        results: Results = [{} for _ in markers]
        appends, now_ms = self._appends, self._clock.now_ms()
        is_usual = (
            not appends.lowest
            and not appends.has_any_waiting
            and len({marker.producer_id for marker in markers}) == len(markers)
        )
        waits: list[Awaitable[None]] = []
        for key, rows in _by_partition(markers).items():
            if key[0] in self._coordinators:
                _begin(self._replay_all(key, rows, results), waits)
            elif is_usual and self._append_alone(key, rows, results, now_ms):
                continue
            elif (wait := self._append(key, rows, results)) is not None:
                waits.append(wait)
        if len(waits) == 1:
            await waits[0]  # as most often: no task
        elif waits:
            await asyncio.gather(*waits)
        return results

    # -- partitions of topics

    def _append_alone(
        self, key: TopicPartition, rows: _Rows, results: Results, now_ms: int
    ) -> bool:
        """Append the markers of a partition without followers, each of another producer and of a
        newer epoch than is known: they are new, and committed at once. False, and nothing is
        appended: `_append` takes them, with all the rules."""
        partition = self._replicas.partitions.get(key)
        if partition is None or not partition.is_sole_replica or partition.cannot_commit:
            return False
        entries, topic_id = partition.log.producers.entries, partition.topic_id
        data = bytearray()
        for _, marker in rows:
            known = entries.get(marker.producer_id)
            if (
                known is None
                or marker.producer_epoch <= known.epoch
                or marker.coordinator_epoch < known.coordinator_epoch
                or marker.partitions[key] is not topic_id
            ):
                return False
            data += _marker_batch(*marker[:4], now_ms)
        try:
            partition.append(memoryview(data), ACKS_ALL, now_ms, AppendOrigin.MARKERS)
        except KafkaError as error:
            for place, _ in rows:
                results[place][key] = error.code
            return True
        partition.log.high_watermark_moved(partition.high_watermark)
        for place, _ in rows:
            results[place][key] = ErrorCode.NONE
        return True

    def _append(self, key: TopicPartition, rows: _Rows, results: Results) -> Awaitable[None] | None:
        """Append the markers of a partition; the wait for their replication, None if it is over."""
        groups = [rows] if len(rows) == 1 else _by_producer(rows)
        if len(groups) > 1:
            return self._append_in_turn(key, groups, results)
        appended: list[TransactionMarker] = []
        awaited: list[int] = []
        try:
            partition = self._replicas.lookup(*key)
            partition.check_append()
            for place, marker in rows:
                try:
                    if self._is_new(partition, marker):
                        appended.append(marker)
                    awaited.append(place)
                except KafkaError as error:
                    results[place][key] = error.code
            if not awaited:
                return None
            if appended:
                self._append_new(partition, appended)
        except KafkaError as error:
            for place, _ in rows:
                results[place].setdefault(key, error.code)
            return None
        # A marker that the log has already may not be replicated yet: it lies below the log end.
        last = partition.log.log_end_offset - 1
        if partition.high_watermark <= last:
            return self._committed(partition, last, awaited, results)
        self._succeed(partition, awaited, results)
        return None

    async def _append_in_turn(
        self, key: TopicPartition, groups: Sequence[_Rows], results: Results
    ) -> None:
        for group in groups:
            if (wait := self._append(key, group, results)) is not None:
                await wait

    def _append_new(self, partition: Partition, markers: Sequence[TransactionMarker]) -> None:
        now_ms = self._clock.now_ms()
        partition.append(_batches(markers, now_ms), ACKS_ALL, now_ms, AppendOrigin.MARKERS)
        appends = self._appends
        if not appends.lowest and not appends.has_any_waiting:
            return
        for marker in markers:
            appends.lowest.forget(partition, marker.producer_id)
            if appends.has_waiting(partition, marker.producer_id):
                self._drop_waiting(partition, marker)

    async def _committed(
        self, partition: Partition, last: int, awaited: Sequence[int], results: Results
    ) -> None:
        epoch = partition.leader_epoch
        try:
            await self._appends.committed(partition, last, epoch, self._timeout_ms)
        except KafkaError as error:
            for place in awaited:
                results[place][partition.topic, partition.partition] = error.code
        else:
            self._succeed(partition, awaited, results)

    @staticmethod
    def _succeed(partition: Partition, awaited: Sequence[int], results: Results) -> None:
        partition.log.high_watermark_moved(partition.high_watermark)
        for place in awaited:
            results[place][partition.topic, partition.partition] = ErrorCode.NONE

    def _drop_waiting(self, partition: Partition, marker: TransactionMarker) -> None:
        """Batches of the ended transaction that wait for a verification must not follow its marker.

        With an epoch per transaction those of the marker's own epoch belong to the next one.
        """
        pid, epoch, drop = marker.producer_id, marker.producer_epoch, self._appends.drop_waiting
        where = f"{partition!r}: the transaction of producer {pid} has ended"
        fenced = KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, f"{where}, epoch {epoch} began")
        drop(partition, pid, epoch, fenced)
        if marker.transaction_version < EPOCH_PER_TRANSACTION:
            drop(partition, pid, epoch + 1, KafkaError(ErrorCode.INVALID_TXN_STATE, where))

    # -- partitions of coordinators

    async def _replay_all(self, key: TopicPartition, rows: _Rows, results: Results) -> None:
        if len(rows) == 1:
            await self._replay(key, rows[0], results)
            return
        for group in _by_producer(rows):
            waits: list[Awaitable[None]] = []
            for row in group:
                _begin(self._replay(key, row, results), waits)
            if waits:
                await asyncio.gather(*waits)

    async def _replay(
        self, key: TopicPartition, row: tuple[int, TransactionMarker], results: Results
    ) -> None:
        place, marker = row
        end_transaction = self._coordinators[key[0]]
        try:
            partition = self._replicas.lookup(*key)
            partition.check_append()
            if self._is_new(partition, marker):
                await end_transaction(
                    partition.partition,
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.coordinator_epoch,
                    commit=marker.commit,
                )
            else:
                last, epoch = partition.log.log_end_offset - 1, partition.leader_epoch
                await self._appends.committed(partition, last, epoch, self._timeout_ms)
            partition.log.high_watermark_moved(partition.high_watermark)
            results[place][key] = ErrorCode.NONE
        except KafkaError as error:
            is_away = error.code in _COORDINATOR_AWAY
            results[place][key] = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_away else error.code

    def _is_new(self, partition: Partition, marker: TransactionMarker) -> bool:
        """False when the log has the marker already. Raises KafkaError."""
        wanted = marker.partitions[partition.topic, partition.partition]
        known = partition.topic_id
        if wanted is not known and wanted not in (NO_TOPIC_ID, known):  # UUIDs compare slowly
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{partition!r}: the marker is for topic id {wanted}, not {partition.topic_id}",
            )
        return partition.log.producers.check_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            f"{partition.topic}-{partition.partition}",
            transaction_version=marker.transaction_version,
        )


def _by_partition(markers: Sequence[TransactionMarker]) -> Mapping[TopicPartition, _Rows]:
    """The markers of each partition."""
    if len(markers) == 1:  # its partitions share their rows
        rows = [(0, markers[0])]
        return dict.fromkeys(markers[0].partitions, rows)
    found: dict[TopicPartition, _Rows] = {}
    for place, marker in enumerate(markers):
        for key in marker.partitions:
            found.setdefault(key, []).append((place, marker))
    return found


def _begin(work: Coroutine[Any, Any, None], waits: list[Awaitable[None]]) -> None:
    """Run `work` until it waits, and add the rest of it to `waits`."""
    begun = first_step(work)
    if not isinstance(begun, Finished):
        waits.append(begun)


def _by_producer(rows: _Rows) -> list[_Rows]:
    """The rows in groups with one marker per producer: each is checked against those before it."""
    groups: list[_Rows] = []
    counts: dict[int, int] = {}
    for row in rows:
        number = counts.get(row[1].producer_id, 0)
        counts[row[1].producer_id] = number + 1
        if number == len(groups):
            groups.append([])
        groups[number].append(row)
    return groups


def _batches(markers: Sequence[TransactionMarker], now_ms: int) -> memoryview:
    data = bytearray()
    for marker in markers:
        data += _marker_batch(*marker[:4], now_ms)
    return memoryview(data)


@lru_cache(maxsize=64)
def _marker_batch(
    producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, now_ms: int
) -> bytes:
    """A marker goes to every partition of its transaction: it is built once."""
    return bytes(
        build_marker(
            ControlType.COMMIT if commit else ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
    )
