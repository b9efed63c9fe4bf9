"""Record batches to and from partition leaders over blocking sockets: for Spark tasks and tools.

    with RecordClient("127.0.0.1:9092") as client:
        for fetched in client.stream_batches("flights", 0, 0, 1_000_000):
            consume(fetched.records)

It needs no asyncio, no threads and no optional libraries. `stream_batches` keeps one fetch ahead
and receives into two buffers in turn. Every call survives the death of brokers
(`headwater.client.blocking.cluster`): it is retried until nothing has succeeded for
`retry_timeout_s`. One thread at a time may use a client. Open it inside the Spark task: it cannot
be pickled, but its arguments can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TypeVar
from uuid import UUID

from headwater.client.blocking.cluster import BlockingCluster, is_retriable
from headwater.client.blocking.connection import BlockingConnection
from headwater.client.blocking.fetch import (
    NAMES_FETCH_VERSION,
    NO_TOPIC_ID,
    FetchedBatches,
    FetchStream,
    fetch_request,
    is_throttled,
    next_offset_after,
    parse_fetch,
)
from headwater.client.core.metadata import TopicMetadata
from headwater.client.errors import kafka_error
from headwater.client.values import OffsetAndTimestamp
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.ports.credentials import NO_CREDENTIALS, Credentials
from headwater.system import SystemClock
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.wire.apis.k01_fetch import FetchRequest, FetchResponse
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headwater.wire.apis.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater.wire.framing import decode_response
from headwater.wire.schema import Message

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "NO_PRODUCER",
    "RecordClient",
    "ReplacedTopicError",
    "FetchedBatches",
    "next_offset_after",
]

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
READ_UNCOMMITTED = 0
READ_COMMITTED = 1

FETCH_BYTES_DEFAULT = 4 * 1024 * 1024
FETCH_WAIT_MS_DEFAULT = 500
RETRY_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 30.0
PRODUCE_TIMEOUT_MS = 20_000
"""Less than REQUEST_TIMEOUT_S: the leader reports missing replicas before the client gives up."""
NAMES_PRODUCE_VERSION = 12
ENLISTING_PRODUCE_VERSION = 12
"""The first version whose leader enlists the partition in the transaction (KIP-890)."""
NO_PRODUCER = (-1, -1)
"""(producer id, epoch) without idempotence."""

PartitionId = tuple[str, int]
R = TypeVar("R", bound=Message)


class ReplacedTopicError(HeadwaterError):
    """The topic with the requested id was deleted; another topic has its name."""


class RecordClient:
    """Fetches, produces and asks for offsets, with retries."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "headwater-raw",
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        retry_timeout_s: float = RETRY_TIMEOUT_S,
        credentials: Credentials = NO_CREDENTIALS,
        connect: Callable[..., BlockingConnection] = BlockingConnection,
    ) -> None:
        """`connect` is for tests."""
        self._cluster = BlockingCluster(
            bootstrap_servers,
            SystemClock(),
            client_id=client_id,
            request_timeout_s=request_timeout_s,
            retry_timeout_s=retry_timeout_s,
            credentials=credentials,
            connect=connect,
        )

    def __enter__(self) -> RecordClient:
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
        self._cluster.close()

    def metadata(self, topics: Iterable[str] | None = None) -> dict[str, TopicMetadata]:
        """Fetch the metadata of these topics (None: all), by name.

        Raises UnknownTopicOrPartitionError for a topic that does not exist.
        """
        return self._cluster.metadata(topics)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, once metadata was fetched."""
        return self._cluster.cache.cluster_id

    @property
    def broker_ids(self) -> list[int]:
        """The live brokers, as metadata last named them."""
        return sorted(self._cluster.cache.brokers)

    def call_any(
        self,
        request: Message,
        reply: type[R],
        check: Callable[[R], None] = lambda _reply: None,
        *,
        cap: int | None = None,
    ) -> R:
        """Send a request to any broker. `check` raises the KafkaError of a response, so that a
        retriable one is retried.
        """

        def ask(connection: BlockingConnection) -> R:
            answer = connection.call(request, reply, cap=cap)
            check(answer)
            return answer

        return self._cluster.with_any(type(request).__name__, ask)

    def call_broker(
        self,
        broker_id: int,
        request: Message,
        reply: type[R],
        *,
        timeout_s: float | None = None,
        cap: int | None = None,
    ) -> R:
        """Send a request to this broker, with retries for `timeout_s` if it is given; `cap` is the
        highest version to use."""
        return self._cluster.with_broker(
            f"{type(request).__name__} to broker {broker_id}",
            broker_id,
            lambda connection: connection.call(request, reply, timeout_s=timeout_s, cap=cap),
            timeout_s,
        )

    def new_producer_id(self) -> tuple[int, int]:
        """A new (producer id, epoch) (KIP-98); NO_PRODUCER from brokers without InitProducerId."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)

        def check(reply: InitProducerIdResponse) -> None:
            if reply.error_code:
                raise kafka_error(reply.error_code, "producer id")

        try:
            reply = self.call_any(request, InitProducerIdResponse, check, cap=5)
        except KafkaError as e:
            if e.code == ErrorCode.UNSUPPORTED_VERSION:
                return NO_PRODUCER
            raise
        return reply.producer_id, reply.producer_epoch

    def list_offsets(
        self, wanted: Mapping[PartitionId, int], isolation: int = READ_UNCOMMITTED
    ) -> dict[PartitionId, OffsetAndTimestamp]:
        """For each (topic, partition): the offset at a timestamp (ms), or EARLIEST, LATEST, ...

        LATEST under READ_COMMITTED is the last stable offset. Offset -1: no record is that late.
        One request per leader; only the partitions that failed are retried.
        """
        found: dict[PartitionId, OffsetAndTimestamp] = {}
        timer = self._cluster.retry_timer("list offsets")
        while left := {tp: at for tp, at in wanted.items() if tp not in found}:
            failure = self._list_once(left, isolation, found)
            if failure is not None:
                timer.pause_after(failure)
                self._cluster.refresh_if_possible(sorted({topic for topic, _ in left}))
        return {tp: found[tp] for tp in wanted}

    def _list_once(
        self,
        left: Mapping[PartitionId, int],
        isolation: int,
        found: dict[PartitionId, OffsetAndTimestamp],
    ) -> Exception | None:
        """One request to each leader; the last retriable error, or None."""
        failure: Exception | None = None
        by_leader: dict[int, dict[PartitionId, int]] = {}
        for tp, at in left.items():
            try:
                by_leader.setdefault(self._cluster.leader(*tp), {})[tp] = at
            except KafkaError as e:
                failure = _retriable(e)
        for leader, rows in by_leader.items():
            try:
                connection = self._cluster.connection(leader)
            except (OSError, KafkaError) as e:
                failure = _retriable(e)
                continue
            try:
                failure = _list_at(connection, rows, isolation, found) or failure
            except OSError as e:
                self._cluster.drop(connection)
                failure = e
        return failure

    def fetch_batches(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int = FETCH_BYTES_DEFAULT,
        isolation: int = READ_UNCOMMITTED,
        *,
        max_wait_ms: int = FETCH_WAIT_MS_DEFAULT,
    ) -> FetchedBatches:
        """One fetch from the leader. The records stay valid.

        Raises KafkaError, for example OffsetOutOfRangeError.
        """
        request = fetch_request(topic, partition, offset, max_bytes, isolation, max_wait_ms)

        def ask(connection: BlockingConnection) -> FetchedBatches:
            version = connection.version_for(FetchRequest, NAMES_FETCH_VERSION)
            while True:
                correlation_id = connection.send(request, version)
                raw = connection.receive()
                response = decode_response(FetchResponse, version, raw, correlation_id)
                if not is_throttled(connection, response):
                    return parse_fetch(response, topic, partition, offset)

        return self._cluster.with_leader("fetch from", topic, partition, ask)

    def stream_batches(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        max_bytes: int = FETCH_BYTES_DEFAULT,
        isolation: int = READ_UNCOMMITTED,
        max_wait_ms: int = FETCH_WAIT_MS_DEFAULT,
        idle_timeout_s: float | None = None,
        topic_id: UUID = NO_TOPIC_ID,
    ) -> Iterator[FetchedBatches]:
        """Fetches of [start, end) in order, one ahead; at a new leader they continue.

        **The records of a fetch are valid until the next one is taken.** Raises KafkaTimeoutError
        when nothing came for `idle_timeout_s` (None: the client's `retry_timeout_s`) before `end`,
        and ReplacedTopicError when the topic no longer has `topic_id`.
        """
        cluster, offset = self._cluster, start
        timer = cluster.retry_timer(f"fetch from {topic}-{partition}", idle_timeout_s)
        while offset < end:
            leader = cluster.with_leader("fetch from", topic, partition, cluster.check_out)
            stream = FetchStream(
                leader, topic, partition, max_bytes, isolation, max_wait_ms, topic_id
            )
            try:
                for fetched in stream.fetches(offset, end):
                    if fetched.next_offset > offset:
                        offset = fetched.next_offset
                        yield fetched
                        timer.restart()
                    else:
                        timer.check(_stuck(topic, partition, offset, end))
            except (OSError, KafkaError) as e:
                timer.pause_after(e)
                cluster.refresh_if_possible([topic])
                self._check_topic_id(topic, topic_id)
            finally:
                cluster.give_back(leader, fit=not stream.is_pending)

    def _check_topic_id(self, topic: str, wanted: UUID) -> None:
        """Raises ReplacedTopicError when the known metadata has the topic under another id."""
        known = self._cluster.cache.topics.get(topic)
        if known is not None and len({wanted, known.topic_id} - {NO_TOPIC_ID}) == 2:
            raise ReplacedTopicError(
                f"topic {topic} was deleted and created again (id {wanted}, now {known.topic_id})"
            )

    def produce_batch(
        self,
        topic: str,
        partition: int,
        batches: bytes | bytearray | memoryview,
        acks: int = -1,
        *,
        timeout_ms: int = PRODUCE_TIMEOUT_MS,
        transactional_id: str | None = None,
    ) -> int:
        """Send one built batch to the leader; its base offset (-1 with acks=0).

        Without a producer id in the batch, a retry after a lost connection may write it twice.
        With `transactional_id`, batches encoded with `transactional=True` are part of its open
        transaction: the leader enlists the partition (KIP-890).
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
                connection.send_without_reply(request, connection.version_for(ProduceRequest, 12))
                return -1
            if transactional_id is not None:
                _check_enlists(connection)
            reply = connection.call(request, ProduceResponse, cap=NAMES_PRODUCE_VERSION)
            answer = reply.responses[0].partition_responses[0]
            if answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                return -1  # an earlier attempt succeeded; its offset is not known
            if answer.error_code:
                detail = answer.error_message or f"produce to {topic}-{partition}"
                raise kafka_error(answer.error_code, detail)
            return answer.base_offset

        return self._cluster.with_leader("produce to", topic, partition, ask)


def _check_enlists(connection: BlockingConnection) -> None:
    """Raise KafkaError for a leader that does not enlist partitions with Produce (KIP-890)."""
    if connection.version_for(ProduceRequest, NAMES_PRODUCE_VERSION) < ENLISTING_PRODUCE_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{connection.host}:{connection.port} does not enlist partitions of a transaction with "
            f"Produce: that needs version {ENLISTING_PRODUCE_VERSION}",
        )


def _stuck(topic: str, partition: int, offset: int, end: int) -> KafkaError:
    text = f"{topic}-{partition} stays at offset {offset}, {end} was requested"
    return kafka_error(ErrorCode.OFFSET_NOT_AVAILABLE, text)


def _retriable(error: OSError | KafkaError) -> Exception:
    """The error if it is retriable; otherwise raise it."""
    if not is_retriable(error):
        raise error
    return error


def _list_at(
    connection: BlockingConnection,
    rows: Mapping[PartitionId, int],
    isolation: int,
    found: dict[PartitionId, OffsetAndTimestamp],
) -> Exception | None:
    """One request to a leader, its answers into `found`; a retriable error is returned."""
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in rows.items():
        row = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        by_topic.setdefault(topic, []).append(row)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=tuple(ListOffsetsTopic(name=t, partitions=tuple(p)) for t, p in by_topic.items()),
    )
    failure: Exception | None = None
    for answers in connection.call(request, ListOffsetsResponse).topics:
        for answer in answers.partitions:
            tp = (answers.name, answer.partition_index)
            if answer.error_code:
                failure = _retriable(kafka_error(answer.error_code, f"offsets of {tp[0]}-{tp[1]}"))
                continue
            found[tp] = OffsetAndTimestamp(answer.offset, answer.timestamp, answer.leader_epoch)
    return failure
