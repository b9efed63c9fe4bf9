"""Open transactions that hold a partition's last stable offset, and those that hang (KIP-664).

A partition's leader knows producer ids and offsets; coordinators know transactional ids. The calls
here join both. What hangs is found as `kafka-transactions.sh find-hanging` finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.client.admin.topics import ISOLATION_LEVELS, TopicCalls
from headwater.client.admin.transactions import (
    NO_TIMEOUT_MS,
    TransactionCalls,
    TransactionFilter,
)
from headwater.client.cluster import Cluster
from headwater.client.transaction_values import (
    HangingTransaction,
    ProducerIdAndEpoch,
    TransactionBlocker,
    TransactionDescription,
)
from headwater.client.values import ProducerDescription, TopicPartition
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.sink_names import is_participant

LATEST = -1
"""The timestamp of ListOffsets that stands for the end of what a reader may get."""
ONGOING = "Ongoing"


class OpenTransaction(NamedTuple):
    """An open transaction in one partition, as the leader describes its producer."""

    partition: TopicPartition
    producer: ProducerDescription
    first_offset: int

    def is_claimed_by(self, described: TransactionDescription | None) -> bool:
        """True when the coordinator will end it: the partition belongs to the open transaction, or
        still lacks its marker."""
        return described is not None and self.partition in described.partitions


class HangingName(NamedTuple):
    """Names a hanging transaction of a partition: by its first offset, or by its producer with a
    coordinator epoch."""

    first_offset: int | None
    producer: ProducerIdAndEpoch | None
    coordinator_epoch: int


class ReadableEnds(NamedTuple):
    """Where the readers of a partition stop: of read_committed, and of read_uncommitted."""

    last_stable_offset: int
    high_watermark: int


class OpenTransactionCalls:
    """Admin calls that ask leaders and coordinators."""

    def __init__(self, cluster: Cluster, topics: TopicCalls, calls: TransactionCalls) -> None:
        self._cluster = cluster
        self._topics = topics
        self._calls = calls

    async def blockers(self, topics: list[str] | None) -> list[TransactionBlocker]:
        """The transactions that block readers of these topics, or of all."""
        partitions = await self._partitions(topics)
        held = list(first_open(await self._open(partitions)))
        known = await self._known({row.producer.producer_id for row in held})
        claimed = await self._without_ended(held, known)
        ends = await self._ends([row.partition for row in claimed])
        now_ms = self._cluster.clock.now_ms()
        return [
            blocker(row, known.get(row.producer.producer_id), ends[row.partition], now_ms)
            for row in claimed
        ]

    async def hanging(
        self,
        topics: list[str] | None,
        partitions: list[TopicPartition] | None,
        broker: int | None,
        max_timeout_ms: int,
    ) -> list[HangingTransaction]:
        """Open transactions without a batch for `max_timeout_ms` that no coordinator will end."""
        searched = await self._searched(topics, partitions, broker)
        before_ms = self._cluster.clock.now_ms() - max_timeout_ms
        candidates = [
            row
            for row in await self._open(searched)
            if not max_timeout_ms or row.producer.last_timestamp < before_ms
        ]
        known = await self._known({row.producer.producer_id for row in candidates})
        found = [
            row for row in candidates if not row.is_claimed_by(known.get(row.producer.producer_id))
        ]
        return [
            _hanging(row, known.get(row.producer.producer_id))
            for row in await self._still_open(found)
        ]

    async def abort(self, partition: TopicPartition, named: HangingName) -> None:
        """Write an abort marker for a transaction of a partition."""
        if named.producer is not None:
            await self._calls.abort(partition, named.producer, named.coordinator_epoch)
            return
        assert named.first_offset is not None
        row = (await self.find(partition, named.first_offset)).producer
        producer = ProducerIdAndEpoch(row.producer_id, row.producer_epoch)
        await self._calls.abort(partition, producer, row.coordinator_epoch)

    async def find(self, partition: TopicPartition, first_offset: int) -> OpenTransaction:
        """The transaction that is open from this offset on. Raises
        KafkaError(TRANSACTIONAL_ID_NOT_FOUND)."""
        rows = await self._open([partition])
        for row in rows:
            if row.first_offset == first_offset:
                return row
        at = f"{partition.topic}-{partition.partition}"
        starts = ", ".join(str(row.first_offset) for row in rows)
        there = f"its open transactions begin at {starts}" if rows else "it has no open transaction"
        detail = f"no open transaction of {at} begins at offset {first_offset}: {there}"
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, detail)

    async def _searched(
        self,
        topics: list[str] | None,
        partitions: list[TopicPartition] | None,
        broker: int | None,
    ) -> list[TopicPartition]:
        """`partitions`, or those of the topics; with `broker`, those that it has a replica of."""
        if partitions is None:
            return await self._partitions(topics, broker)
        if broker is None:
            return partitions
        held = set(await self._partitions(sorted({tp.topic for tp in partitions}), broker))
        return [tp for tp in partitions if tp in held]

    async def _partitions(
        self, topics: list[str] | None, broker: int | None = None
    ) -> list[TopicPartition]:
        """Partitions of these topics. Of all topics only those with a leader: the others have no
        readers, and the call would wait for their leaders."""
        described = await self._topics.describe(topics)
        return [
            TopicPartition(topic.name, row.partition)
            for topic in described
            for row in topic.partitions
            if (topics is not None or row.leader >= 0)
            and (broker is None or broker in row.replicas)
        ]

    async def _open(self, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
        found = await self._calls.describe_producers(partitions)
        return [
            OpenTransaction(tp, producer, producer.current_transaction_start_offset)
            for tp, producers in found.items()
            for producer in producers
            if producer.current_transaction_start_offset is not None
        ]

    async def _known(self, producer_ids: set[int]) -> dict[int, TransactionDescription]:
        """Producer id -> the transactional id that has it now."""
        if not producer_ids:
            return {}
        wanted = TransactionFilter(producer_ids=sorted(producer_ids))
        listed = await self._calls.list_transactions(wanted)
        # Brokers that do not know the filter list all.
        ids = {row.transactional_id for row in listed if row.producer_id in producer_ids}
        described = await self._calls.describe_known(sorted(ids))
        return {row.producer_id: row for row in described.values()}

    async def _without_ended(
        self, rows: list[OpenTransaction], known: Mapping[int, TransactionDescription]
    ) -> list[OpenTransaction]:
        """Leave out transactions that ended after their partition was asked: no coordinator claims
        those any more."""
        unclaimed = [
            row for row in rows if not row.is_claimed_by(known.get(row.producer.producer_id))
        ]
        ended = set(unclaimed) - set(await self._still_open(unclaimed))
        return [row for row in rows if row not in ended]

    async def _still_open(self, rows: list[OpenTransaction]) -> list[OpenTransaction]:
        """Those that the leaders still have, with the same producer and first offset."""
        if not rows:
            return []
        now = {_identity(row) for row in await self._open({row.partition for row in rows})}
        return [row for row in rows if _identity(row) in now]

    async def _ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, ReadableEnds]:
        wanted = dict.fromkeys(partitions, LATEST)
        stable = await self._topics.list_offsets(wanted, ISOLATION_LEVELS["read_committed"])
        marks = await self._topics.list_offsets(wanted, ISOLATION_LEVELS["read_uncommitted"])
        return {tp: ReadableEnds(stable[tp].offset, marks[tp].offset) for tp in wanted}


def first_open(rows: Iterable[OpenTransaction]) -> Iterable[OpenTransaction]:
    """Of each partition the transaction that began first: it holds the last stable offset."""
    first: dict[TopicPartition, OpenTransaction] = {}
    for row in rows:
        known = first.get(row.partition)
        if known is None or row.first_offset < known.first_offset:
            first[row.partition] = row
    return [first[tp] for tp in sorted(first)]


def blocker(
    row: OpenTransaction, described: TransactionDescription | None, ends: ReadableEnds, now_ms: int
) -> TransactionBlocker:
    """What holds a partition's last stable offset, in the words of leader and coordinator."""
    is_hanging = not row.is_claimed_by(described)
    began_ms = row.producer.last_timestamp
    if not is_hanging and described is not None and described.start_ms is not None:
        began_ms = described.start_ms
    failures = () if described is None else described.marker_failures
    return TransactionBlocker(
        topic=row.partition.topic,
        partition=row.partition.partition,
        last_stable_offset=ends.last_stable_offset,
        high_watermark=ends.high_watermark,
        producer_id=row.producer.producer_id,
        producer_epoch=row.producer.producer_epoch,
        first_offset=row.first_offset,
        last_timestamp_ms=row.producer.last_timestamp,
        is_hanging=is_hanging,
        age_ms=max(0, now_ms - began_ms),
        transactional_id=None if described is None else described.transactional_id,
        state=None if described is None else described.state,
        coordinator=None if described is None else described.coordinator,
        timeout_ms=None if described is None else described.timeout_ms,
        times_out_in_ms=None if is_hanging else times_out_in_ms(described, now_ms),
        principal=None if described is None else described.principal,
        client_id=None if described is None else described.client_id,
        client_host=None if described is None else described.client_host,
        marker_failure=next((f for f in failures if f.partition == row.partition), None),
    )


def times_out_in_ms(described: TransactionDescription | None, now_ms: int) -> int | None:
    """Time until the coordinator aborts the transaction; None: never, or its end is decided. A
    participant of an epoch ends with the epoch (`headwater sinks show`)."""
    if described is None or described.state != ONGOING or described.start_ms is None:
        return None
    if described.timeout_ms == NO_TIMEOUT_MS or is_participant(described.transactional_id):
        return None
    return described.start_ms + described.timeout_ms - now_ms


def _hanging(row: OpenTransaction, described: TransactionDescription | None) -> HangingTransaction:
    return HangingTransaction(
        topic=row.partition.topic,
        partition=row.partition.partition,
        producer_id=row.producer.producer_id,
        producer_epoch=row.producer.producer_epoch,
        coordinator_epoch=row.producer.coordinator_epoch,
        first_offset=row.first_offset,
        last_timestamp_ms=row.producer.last_timestamp,
        transactional_id=None if described is None else described.transactional_id,
    )


def _identity(row: OpenTransaction) -> tuple[TopicPartition, int, int, int]:
    return row.partition, row.producer.producer_id, row.producer.producer_epoch, row.first_offset
