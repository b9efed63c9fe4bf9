"""Reads what the mirror stored: partitions of `__mirror.N.positions`, committed records only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial

from headwater.client.admin.topics import list_one_offset
from headwater.client.blocking.fetch import FetchedBatches, fetch_request, parse_fetch
from headwater.client.cluster import Cluster
from headwater.client.errors import kafka_error
from headwater.client.values import TopicPartition
from headwater.mirror.core.batches import visible_records
from headwater.mirror.core.state import MirrorState
from headwater.records.record import Record
from headwater.wire.apis.k01_fetch import FetchRequest, FetchResponse

READ_COMMITTED, READ_UNCOMMITTED = 1, 0
EARLIEST, LATEST = -2, -1
FETCH_BYTES = 4 << 20
WAIT_MS = 500
NAMES_VERSION = 12


async def read_state(
    cluster: Cluster, topic: str, buckets: Iterable[int], *, isolation: int = READ_COMMITTED
) -> MirrorState:
    """The fold of these buckets' records. Raises KafkaError.

    `isolation`: after `InitProducerId` READ_UNCOMMITTED, so that the reader waits for the markers
    of all that was there.
    """
    state = MirrorState()
    for bucket in buckets:
        for record in await read_records(cluster, TopicPartition(topic, bucket), isolation):
            state.apply(record.key, record.value)
    return state


async def read_records(
    cluster: Cluster, tp: TopicPartition, isolation: int = READ_COMMITTED
) -> list[Record]:
    """The committed records of a partition up to its end now, as `isolation` sees the end."""

    async def ends() -> tuple[int, int]:
        first = await list_one_offset(cluster, tp, EARLIEST, READ_UNCOMMITTED)
        last = await list_one_offset(cluster, tp, LATEST, isolation)
        return first.offset, last.offset

    what = f"read {tp.topic}-{tp.partition}"
    at, end = await cluster.retrying(what, ends, topics=(tp.topic,))
    return [record async for record in records_between(cluster, tp, at, end)]


async def records_between(
    cluster: Cluster, tp: TopicPartition, start: int, end: int
) -> AsyncIterator[Record]:
    """The committed records with offsets from `start` to `end`, exclusive. Raises KafkaError."""
    what = f"read {tp.topic}-{tp.partition}"
    while start < end:
        fetch = partial(_fetch, cluster, tp, start)
        rows, start = await cluster.retrying(what, fetch, topics=(tp.topic,))
        for record in rows:
            if record.offset < end:
                yield record


async def count_records(cluster: Cluster, tp: TopicPartition, start: int, end: int) -> int:
    """How many there are."""
    count = 0
    async for _ in records_between(cluster, tp, start, end):
        count += 1
    return count


async def _fetch(cluster: Cluster, tp: TopicPartition, start: int) -> tuple[list[Record], int]:
    """(visible records, the next offset) of one fetch."""
    fetched = await fetch_batches(cluster, tp, start)
    return visible_records(fetched.records, start, fetched.aborted), fetched.next_offset


async def fetch_batches(cluster: Cluster, tp: TopicPartition, start: int) -> FetchedBatches:
    """One read_committed fetch from the leader. Raises KafkaError, OSError."""
    node = await cluster.leader(*tp)
    connection = await cluster.connection(node, "mirror-state")
    request = fetch_request(*tp, start, FETCH_BYTES, READ_COMMITTED, WAIT_MS)
    version = connection.version_for(FetchRequest, NAMES_VERSION)
    reply = await cluster.call_on(connection, request, FetchResponse, version=version)
    if reply.responses:
        return parse_fetch(reply, *tp, start)
    if reply.error_code:
        raise kafka_error(reply.error_code, f"read {tp.topic}-{tp.partition}")
    return FetchedBatches(memoryview(b""), -1, -1, -1, [], start)
