"""Clients of the world: producers that repeat batches until acked, and consumers.

They use the protocol over `headwater.client.connection`, in processes of their own, and record
every reply in the ledger.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode, KafkaError
from headwater.records.builder import BatchBuilder
from headwater.records.record import read_records
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.wire.apis.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headwater.wire.apis.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from headwater.wire.apis.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.wire.apis.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater.wire.schema import Message
from sim.invariants import ViolationError
from sim.ledger import Acked
from sim.network import DATA_PORT
from sim.plan import REPLICAS

if TYPE_CHECKING:
    from sim.world import World

R = TypeVar("R", bound=Message)

CALL_TIMEOUT_S = 3.0
PRODUCE_TIMEOUT_MS = 1500
RETRY_S = (0.01, 0.15)
LOST = (OSError, TimeoutError)
RETRIED = frozenset({ErrorCode.BROKER_NOT_AVAILABLE})
"""Codes that these clients retry in addition to `ErrorCode.retriable`."""


class Client:
    """A client: connections to brokers, and the look-up of a partition's leader."""

    is_awaited = False
    """Whether the healed cluster is whole only once this client has ended."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.loop = world.process(name, name)
        self.is_done = False
        self._connections: dict[str, Connection] = {}

    def run(self) -> None:
        """Start its work."""
        task = self.loop.create_task(self.work())
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.is_done = True
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.world.broken(error)

    async def work(self) -> None:
        """The work of this client."""
        raise NotImplementedError

    async def ask(
        self,
        host: str,
        request: Message,
        reply: type[R],
        version: int,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> R:
        """Send a request. Raises OSError, TimeoutError, and drops the connection then."""
        try:
            connection = self._connections.get(host)
            if connection is None or not connection.is_open:
                connection = await self.connect(host)
            return await connection.call(request, reply, version=version, timeout_s=timeout_s)
        except LOST:
            self._connections.pop(host, None)
            raise

    async def connect(self, host: str) -> Connection:
        """Open the connection to a broker anew. Raises OSError, TimeoutError."""
        connection = await open_connection(
            host, DATA_PORT, timeout_s=CALL_TIMEOUT_S, negotiate=False
        )
        self._connections[host] = connection
        return connection

    async def any_broker(self) -> str:
        """The host of any broker."""
        return self.world.random.choice(self.world.brokers).host

    async def leader(self, topic: str, index: int) -> str | None:
        """The leader's host, from the metadata of any broker."""
        request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
        try:
            reply = await self.ask(await self.any_broker(), request, MetadataResponse, 12)
        except LOST:
            return None
        hosts = {b.node_id: b.host for b in reply.brokers}
        for row in reply.topics:
            for partition in row.partitions:
                if partition.partition_index == index:
                    return hosts.get(partition.leader_id)
        return None

    async def pause(self) -> None:
        """Wait before a retry."""
        await asyncio.sleep(self.world.random.uniform(*RETRY_S))


class Creator(Client):
    """Creates the topics."""

    async def work(self) -> None:
        plan = self.world.plan
        for topic, partitions in plan.topics.items():
            request = CreateTopicsRequest(
                topics=(
                    CreatableTopic(
                        name=topic,
                        num_partitions=partitions,
                        replication_factor=plan.replicas.get(topic, REPLICAS),
                        configs=tuple(
                            CreatableTopicConfig(name=k, value=v)
                            for k, v in plan.topic_configs.items()
                        ),
                    ),
                ),
                timeout_ms=2000,
            )
            while not await self._is_made(request):
                await self.pause()

    async def _is_made(self, request: CreateTopicsRequest) -> bool:
        try:
            reply = await self.ask(await self.any_broker(), request, CreateTopicsResponse, 7)
        except LOST:
            return False
        code = reply.topics[0].error_code
        return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class Producer(Client):
    """Writes to one partition with acks=all, one batch after the other."""

    is_awaited = True

    def __init__(self, world: World, name: str, topic: str, index: int, pause_s: float) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.index = index
        self._pause_s = pause_s
        self._number = 0
        self._host: str | None = None
        self._sequence = 0
        self._producer_id = -1
        self._producer_epoch = -1

    async def work(self) -> None:
        await self.prepare()
        random = self.world.random
        while not self.world.is_healing:
            count = random.randint(1, 3)
            values = tuple(b"%b:%d" % (self.name.encode(), self._number + i) for i in range(count))
            self._number += count
            await self._send(values)
            await asyncio.sleep(random.random() * self._pause_s)

    async def prepare(self) -> None:
        """Preparation before the first batch."""

    def _batch(self, values: tuple[bytes, ...]) -> bytes:
        builder = BatchBuilder()
        for value in values:
            builder.append(self.world.now_ms, None, value)
        return bytes(
            builder.build(
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=self._sequence if self._producer_id >= 0 else -1,
            )
        )

    async def _send(self, values: tuple[bytes, ...]) -> None:
        batch = self._batch(values)
        while True:
            offset = await self._try(batch)
            if offset is not None:
                self.world.acked(self.topic, self.index, Acked(offset, values, self.name))
                self._sequence += len(values)
                return
            if self.world.has_given_up:
                return
            await self.pause()

    async def _try(self, batch: bytes) -> int | None:
        """Produce the batch; its base offset, or None for a retry."""
        if self._host is None:
            self._host = await self.leader(self.topic, self.index)
            if self._host is None:
                return None
        request = ProduceRequest(
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=(
                TopicProduceData(
                    name=self.topic,
                    partition_data=(PartitionProduceData(index=self.index, records=batch),),
                ),
            ),
        )
        try:
            reply = await self.ask(self._host, request, ProduceResponse, 9)
        except LOST:
            self._host = None
            return None
        row = reply.responses[0].partition_responses[0]
        code = ErrorCode(row.error_code)
        if code is ErrorCode.NONE:
            return row.base_offset
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # Every earlier batch was acked, so the leader must have its sequence.
            raise ViolationError("NoAckedRecordIsLost", f"{self.name}: {row.error_message}")
        if not code.retriable:
            raise KafkaError(code, f"{self.name}: {row.error_message}")
        if code is not ErrorCode.NOT_ENOUGH_REPLICAS:
            self._host = None
        return None


class IdempotentProducer(Producer):
    """Repeats a batch under the same sequence number."""

    async def prepare(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        while self._producer_id < 0 and not self.world.is_healing:
            try:
                reply = await self.ask(await self.any_broker(), request, InitProducerIdResponse, 4)
            except LOST:
                await self.pause()
                continue
            if reply.error_code:
                await self.pause()
                continue
            self._producer_id, self._producer_epoch = reply.producer_id, reply.producer_epoch


class Consumer(Client):
    """Reads one partition from its start, again and again."""

    def __init__(self, world: World, name: str, topic: str, index: int) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.index = index

    async def work(self) -> None:
        offset = 0
        host: str | None = None
        while not self.world.is_over:
            host = host or await self.leader(self.topic, self.index)
            if host is None:
                await self.pause()
                continue
            try:
                records, code = await self._fetch(host, offset)
            except LOST:
                host = None
                continue
            if code is not ErrorCode.NONE:
                host = None
                if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    offset = 0
                await self.pause()
                continue
            for record in read_records(records):
                if record.offset >= offset:
                    self.world.read(self.topic, self.index, record.offset, record.value or b"")
                    offset = record.offset + 1
            if self.world.random.random() < 0.02:
                offset = 0

    async def _fetch(self, host: str, offset: int) -> tuple[bytes, ErrorCode]:
        request = FetchRequest(
            max_wait_ms=300,
            min_bytes=1,
            topics=(
                FetchTopic(
                    topic=self.topic,
                    partitions=(
                        FetchPartition(
                            partition=self.index, fetch_offset=offset, partition_max_bytes=65536
                        ),
                    ),
                ),
            ),
        )
        reply = await self.ask(host, request, FetchResponse, 12)
        if not reply.responses:
            return b"", ErrorCode.NONE
        row = reply.responses[0].partitions[0]
        return bytes(row.records or b""), ErrorCode(row.error_code)
