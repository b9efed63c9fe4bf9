"""First batches of a transaction that are verified and appended within their request, and rejected.

They follow the rules of batches that wait for a verification (TV1 clients, KIP-98).
"""

from __future__ import annotations

from pathlib import Path

from headwater.clock import Clock
from headwater.errors import ErrorCode
from headwater.records.builder import BatchBuilder
from headwater.records.compression import Compression
from headwater.system import SystemClock
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from solo_broker import SoloBroker
from unit.api.test_transactions import add, producer_of, tell
from unit.network.test_data_plane import Connection

CLOCK: Clock = SystemClock()
TOO_LARGE = b"v" * 300


async def written(
    c: Connection,
    producer: tuple[int, int],
    version: int,
    sequence: int,
    topic: str = "flights",
    value: bytes = b"v",
    codec: Compression = Compression.NONE,
) -> ErrorCode:
    """Write one batch; its error."""
    producer_id, epoch = producer
    builder = BatchBuilder()
    builder.append(CLOCK.now_ms(), b"k", value)
    data = builder.build(
        compression=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
        transactional=True,
    )  # fmt: skip
    row = PartitionProduceData(index=0, records=bytes(data))
    rows = TopicProduceData(name=topic, partition_data=(row,))
    request = ProduceRequest(transactional_id="t", acks=-1, timeout_ms=20_000, topic_data=(rows,))
    reply = await c.call(request, ProduceResponse, version=version)
    return ErrorCode(reply.responses[0].partition_responses[0].error_code)


def test_no_later_batch_takes_the_place_of_a_rejected_first_one(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("small", 1, configs={"max.message.bytes": "200"})
        producer = await producer_of(c)
        assert await add(c, producer, ("small", 0)) == [ErrorCode.NONE]
        got = [
            await written(c, producer, 11, 0, "small", TOO_LARGE),
            await written(c, producer, 11, 1, "small"),
            await written(c, producer, 11, 0, "small"),
            await written(c, producer, 11, 1, "small"),
        ]
        none, order = ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert got == [ErrorCode.MESSAGE_TOO_LARGE, order, none, none]

    tell(tmp_path, story)


def test_zstd_needs_a_version_whose_readers_know_it(tmp_path: Path) -> None:
    async def story(_broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        assert await add(c, producer, ("flights", 0)) == [ErrorCode.NONE]
        error = await written(c, producer, 6, 0, codec=Compression.ZSTD)
        assert error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert await written(c, producer, 7, 0, codec=Compression.ZSTD) is ErrorCode.NONE

    tell(tmp_path, story)
