"""Raw record batches to and from partition leaders, blocking: for Spark tasks and tools.

    with RawClient("127.0.0.1:9092") as client:
        for chunk in client.stream_raw("flights", 0, 0, 1_000_000):
            consume(chunk.records)

No asyncio, no threads, no optional libraries. `stream_raw` keeps one fetch ahead and receives into
two buffers by turns. Leader changes are followed; time is up after `retry_timeout_s` without any
success. One thread at a time; picklable arguments only (open the client inside the task).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import NamedTuple, TypeVar

from headwater.client.addresses import parse_bootstrap
from headwater.client.errors import KafkaTimeoutError, NoBrokersAvailableError, kafka_error
from headwater.client.machines.metadata import MetadataCache, Topic, metadata_request
from headwater.client.raw_connection import BlockingConnection
from headwater.client.values import OffsetAndTimestamp
from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from headwater.system import SystemClock
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.wire.apis.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headwater.wire.apis.k03_metadata import MetadataResponse
from headwater.wire.catalog import decode_response
from headwater.wire.schema import SchemaError

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
READ_UNCOMMITTED = 0
READ_COMMITTED = 1

FETCH_BYTES_DEFAULT = 4 * 1024 * 1024
FETCH_WAIT_MS_DEFAULT = 500
RETRY_TIMEOUT_S = 30.0
RETRY_BACKOFF_S = 0.1
REQUEST_TIMEOUT_S = 30.0
NAMES_FETCH_VERSION = 12
"""The last Fetch version that carries topic names, not ids."""
NAMES_PRODUCE_VERSION = 12

_BATCH_START = struct.Struct(">qi")
_OFFSET_DELTA_AT = 23
_INT32 = struct.Struct(">i")
T = TypeVar("T")


class RawFetch(NamedTuple):
    """Whole batches as stored: the first may begin below the asked offset, the last end above.

    `aborted` is [(producer_id, first_offset)] under READ_COMMITTED. `next_offset` is where to go
    on: after the last whole batch, or the asked offset when there was none.
    """

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    next_offset: int


def next_offset_after(records: memoryview, offset: int) -> tuple[int, int]:
    """(offset after the last whole batch in `records`, its end byte); (`offset`, 0) if none."""
    at, end, unpack = 0, len(records), _BATCH_START.unpack_from
    last = -1
    while end - at >= HEADER_BYTES:
        _, length = unpack(records, at)
        after = at + length + LOG_OVERHEAD_BYTES
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or after > end:
            break
        last, at = at, after
    if last < 0:
        return offset, 0
    base = unpack(records, last)[0]
    delta = _INT32.unpack_from(records, last + _OFFSET_DELTA_AT)[0]
    return max(offset, base + delta + 1), at


class RawClient:
    """A pool of blocking connections to the brokers of one cluster, and what is asked of them."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "headwater-raw",
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        retry_timeout_s: float = RETRY_TIMEOUT_S,
    ) -> None:
        self._bootstrap = parse_bootstrap(bootstrap_servers)
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._retry_timeout_s = retry_timeout_s
        self._clock = SystemClock()
        self._cache = MetadataCache()
        self._pool: dict[tuple[str, int], BlockingConnection] = {}

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._pool.values():
            connection.close()
        self._pool.clear()

    def metadata(self, topics: Iterable[str] | None = None) -> dict[str, Topic]:
        """Ask the cluster anew; these topics (None: all), by name.

        Raises UnknownTopicOrPartitionError for a named topic that does not exist.
        """
        names = None if topics is None else list(topics)
        self._refresh(names)
        for name in names or ():
            if name not in self._cache.topics:
                code = self._cache.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                raise kafka_error(code, f"topic {name}")
        wanted = self._cache.topics if names is None else names
        return {name: self._cache.topics[name] for name in wanted}

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id once metadata has been asked for."""
        return self._cache.cluster_id

    def list_offsets(
        self,
        wanted: dict[tuple[str, int], int],
        isolation: int = READ_UNCOMMITTED,
    ) -> dict[tuple[str, int], OffsetAndTimestamp]:
        """For each (topic, partition): the offset at its timestamp, or EARLIEST, LATEST, ...

        LATEST under READ_COMMITTED is the last stable offset. Offset -1: nothing that late.
        """
        out: dict[tuple[str, int], OffsetAndTimestamp] = {}
        for (topic, partition), timestamp in wanted.items():
            ask = partial(
                _list_one,
                topic=topic,
                partition=partition,
                timestamp=timestamp,
                isolation=isolation,
            )
            out[topic, partition] = self._with_leader(topic, partition, ask)
        return out

    def fetch_raw(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int = FETCH_BYTES_DEFAULT,
        isolation: int = READ_UNCOMMITTED,
        *,
        max_wait_ms: int = FETCH_WAIT_MS_DEFAULT,
        min_bytes: int = 1,
    ) -> RawFetch:
        """One fetch from the leader. The records stay valid. Raises KafkaError, also
        OffsetOutOfRangeError.
        """
        request = _fetch_request(topic, partition, offset, max_bytes, isolation, max_wait_ms)

        def ask(connection: BlockingConnection) -> RawFetch:
            version = connection.version_for(FetchRequest, NAMES_FETCH_VERSION)
            correlation_id = connection.send(request, version)
            reply = connection.receive()
            return _parse_fetch(reply, version, correlation_id, topic, partition, offset)

        return self._with_leader(topic, partition, ask)

    def stream_raw(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        max_bytes: int = FETCH_BYTES_DEFAULT,
        isolation: int = READ_UNCOMMITTED,
        max_wait_ms: int = FETCH_WAIT_MS_DEFAULT,
        idle_timeout_s: float = RETRY_TIMEOUT_S,
    ) -> Iterator[RawFetch]:
        """Fetches of [start, end) in order, one kept ahead.

        **A chunk's records are valid until the next chunk is taken.** Raises KafkaTimeoutError when
        nothing came for `idle_timeout_s` although `end` is not reached.
        """
        offset = start
        last_progress = self._clock.monotonic()
        while offset < end:
            leader = self._with_leader(topic, partition, self._check_out)
            stream = _Stream(leader, topic, partition, max_bytes, isolation, max_wait_ms)
            try:
                for chunk in stream.chunks(offset, end):
                    if chunk.next_offset > offset:
                        offset = chunk.next_offset
                        last_progress = self._clock.monotonic()
                        yield chunk
                    elif self._clock.monotonic() - last_progress > idle_timeout_s:
                        raise KafkaTimeoutError(
                            f"{topic}-{partition} stays at offset {offset}, {end} was asked for"
                        )
            except (OSError, KafkaError) as e:
                if not _worth_retrying(e):
                    raise
                self._drop(leader)
                if self._clock.monotonic() - last_progress > idle_timeout_s:
                    raise
                time.sleep(RETRY_BACKOFF_S)
                self._refresh_quietly([topic])
            finally:
                self._give_back(leader, fit=not stream.is_pending)

    def produce_raw(
        self,
        topic: str,
        partition: int,
        batches: bytes | bytearray | memoryview,
        acks: int = -1,
        *,
        timeout_ms: int = 30_000,
        transactional_id: str | None = None,
    ) -> int:
        """Send one built batch to the leader; its base offset (-1 with acks=0).

        A retry after a lost connection may double it unless the batch carries a producer id.
        """
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=(
                TopicProduceData(
                    name=topic,
                    partition_data=(
                        PartitionProduceData(index=partition, records=memoryview(batches)),
                    ),
                ),
            ),
        )

        def ask(connection: BlockingConnection) -> int:
            if acks == 0:
                connection.send(request, connection.version_for(ProduceRequest, 12))
                return -1
            reply = connection.call(request, ProduceResponse, cap=NAMES_PRODUCE_VERSION)
            answer = reply.responses[0].partition_responses[0]
            if answer.error_code:
                detail = answer.error_message or f"produce to {topic}-{partition}"
                raise kafka_error(answer.error_code, detail)
            return answer.base_offset

        return self._with_leader(topic, partition, ask)

    def _with_leader(self, topic: str, partition: int, ask: Callable[[BlockingConnection], T]) -> T:
        """`ask` the leader; on errors a new leader may cure, refresh and ask again."""
        deadline = self._clock.monotonic() + self._retry_timeout_s
        while True:
            connection: BlockingConnection | None = None
            try:
                connection = self._leader_connection(topic, partition)
                return ask(connection)
            except (OSError, KafkaError, SchemaError) as e:
                if connection is not None and not isinstance(e, KafkaError):
                    self._drop(connection)
                if not _worth_retrying(e) or self._clock.monotonic() >= deadline:
                    raise
                time.sleep(RETRY_BACKOFF_S)
                self._refresh_quietly([topic])

    def _leader_connection(self, topic: str, partition: int) -> BlockingConnection:
        if topic not in self._cache.topics:
            self.metadata([topic])
        entry = self._cache.partition(topic, partition)
        if entry is None:
            known = self._cache.topics.get(topic)
            count = len(known.partitions) if known else 0
            raise kafka_error(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic}-{partition}: the topic has {count} partitions",
            )
        broker = self._cache.brokers.get(entry.leader)
        if broker is None:
            raise kafka_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return self._connect(broker.host, broker.port)

    def _connect(self, host: str, port: int) -> BlockingConnection:
        connection = self._pool.get((host, port))
        if connection is None:
            connection = BlockingConnection(
                host, port, client_id=self._client_id, timeout_s=self._request_timeout_s
            )
            self._pool[host, port] = connection
        return connection

    def _check_out(self, connection: BlockingConnection) -> BlockingConnection:
        """Take it from the pool: a stream's replies must not meet those of other calls."""
        del self._pool[connection.host, connection.port]
        return connection

    def _give_back(self, connection: BlockingConnection, *, fit: bool) -> None:
        place = (connection.host, connection.port)
        if fit and connection.is_open and place not in self._pool:
            self._pool[place] = connection
        else:
            connection.close()

    def _drop(self, connection: BlockingConnection) -> None:
        connection.close()
        self._pool = {k: c for k, c in self._pool.items() if c is not connection}

    def _refresh_quietly(self, topics: list[str]) -> None:
        try:
            self._refresh(topics)
        except (OSError, KafkaError):
            return  # the caller retries until its deadline and then raises what it met

    def _refresh(self, topics: list[str] | None) -> None:
        known = [(b.host, b.port) for b in self._cache.brokers.values()]
        failures = []
        for host, port in [*known, *(a for a in self._bootstrap if a not in known)]:
            connection: BlockingConnection | None = None
            try:
                connection = self._connect(host, port)
                request = metadata_request(topics, auto_create=False)
                self._cache.update(connection.call(request, MetadataResponse))
                return
            except (OSError, SchemaError) as e:
                failures.append(f"{host}:{port}: {e}")
                if connection is not None:
                    self._drop(connection)
        raise NoBrokersAvailableError("; ".join(failures))


class _Stream:
    """Fetches of one partition over one connection: the next is asked before the last is used."""

    def __init__(
        self,
        connection: BlockingConnection,
        topic: str,
        partition: int,
        max_bytes: int,
        isolation: int,
        max_wait_ms: int,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._partition = partition
        self._max_bytes = max_bytes
        self._isolation = isolation
        self._max_wait_ms = max_wait_ms
        self._version = connection.version_for(FetchRequest, NAMES_FETCH_VERSION)
        self.is_pending = False
        """True while a reply is outstanding: the connection is then of no use to others."""

    def _ask(self, offset: int) -> int:
        request = _fetch_request(
            self._topic,
            self._partition,
            offset,
            self._max_bytes,
            self._isolation,
            self._max_wait_ms,
        )
        self.is_pending = True
        return self._connection.send(request, self._version)

    def chunks(self, offset: int, end: int) -> Iterator[RawFetch]:
        """Until `end`; an empty chunk (nothing new yet) is given too."""
        buffers = [bytearray(self._max_bytes + 4096), bytearray(self._max_bytes + 4096)]
        turn = 0
        correlation_id = self._ask(offset)
        while True:
            reply = self._connection.receive(buffers[turn])
            self.is_pending = False
            if isinstance(reply.obj, bytearray):
                buffers[turn] = reply.obj
            chunk = _parse_fetch(
                reply, self._version, correlation_id, self._topic, self._partition, offset
            )
            offset = chunk.next_offset
            if offset < end:
                correlation_id = self._ask(offset)
            yield chunk
            if offset >= end:
                return
            turn = 1 - turn


def _fetch_request(
    topic: str, partition: int, offset: int, max_bytes: int, isolation: int, max_wait_ms: int
) -> FetchRequest:
    row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=(FetchTopic(topic=topic, partitions=(row,)),),
    )


def _parse_fetch(
    reply: memoryview, version: int, correlation_id: int, topic: str, partition: int, offset: int
) -> RawFetch:
    response = decode_response(FetchRequest, version, reply, correlation_id)
    assert isinstance(response, FetchResponse)
    if response.error_code:
        raise kafka_error(response.error_code, f"fetch from {topic}-{partition}")
    answer: PartitionData = response.responses[0].partitions[0]
    if answer.error_code:
        detail = (
            f"fetch from {topic}-{partition} at offset {offset} "
            f"(log starts at {answer.log_start_offset}, high watermark {answer.high_watermark})"
        )
        raise kafka_error(answer.error_code, detail)
    records = memoryview(answer.records or b"")
    next_offset, end = next_offset_after(records, offset)
    aborted = [(a.producer_id, a.first_offset) for a in answer.aborted_transactions or ()]
    return RawFetch(
        records[:end],
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
        aborted,
        next_offset,
    )


def _list_one(
    connection: BlockingConnection, topic: str, partition: int, timestamp: int, isolation: int
) -> OffsetAndTimestamp:
    row = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=(ListOffsetsTopic(name=topic, partitions=(row,)),),
    )
    reply = connection.call(request, ListOffsetsResponse)
    answer = reply.topics[0].partitions[0]
    if answer.error_code:
        raise kafka_error(answer.error_code, f"offsets of {topic}-{partition}")
    return OffsetAndTimestamp(answer.offset, answer.timestamp, answer.leader_epoch)


def _worth_retrying(error: Exception) -> bool:
    """A lost connection, or an error that a new leader or a little time cures.

    An unknown topic is asked for again too (a broker may not have heard of it yet), but not one
    that the client itself found missing in fresh metadata.
    """
    if isinstance(error, KafkaError):
        unknown = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_local = isinstance(error, KafkaTimeoutError) or (unknown and "topic" in error.detail)
        return error.retriable and not is_local
    return isinstance(error, OSError)
