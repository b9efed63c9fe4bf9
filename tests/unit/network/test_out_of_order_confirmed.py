"""OUT_OF_ORDER_SEQUENCE_NUMBER is answered only by a broker that has confirmed its leadership."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.records.builder import BatchBuilder
from headwater_broker.api.rejected_batches import FORMER_LEADER_S
from solo_broker import SoloBroker
from unit.network.test_data_plane import produce, serve

PRODUCER = 77


def sequenced(sequence: int) -> bytes:
    builder = BatchBuilder()
    builder.append(1_795_000_000_000, None, b"v")
    return bytes(builder.build(producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence))


def lead_for(broker: SoloBroker, seconds: float) -> None:
    role = broker.replicas.partitions["t", 0].leader_state
    assert role is not None and role.began is not None
    role.began -= seconds


def test_a_leader_tells_the_gap(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        for acks in (1, -1):
            assert (await produce(c, "t", sequenced(0), acks)).error_code == 0
            refused = await produce(c, "t", sequenced(5), acks)
            assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert "expected 1" in (refused.error_message or "")

    serve(tmp_path, scenario)


def test_a_deposed_leader_sends_the_client_elsewhere(tmp_path: Path) -> None:
    """It missed what its successor was sent: to its producer nothing is out of order."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        await produce(c, "t", sequenced(0))
        broker.is_deposed = True
        for acks in (1, -1):
            refused = await produce(c, "t", sequenced(5), acks)
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.replicas.partitions["t", 0].log.log_end_offset == 1

    serve(tmp_path, scenario)


def test_replies_keep_their_order_while_it_is_asked(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        first, second, third = await asyncio.gather(
            produce(c, "t", sequenced(0), -1),
            produce(c, "t", sequenced(2), -1),
            produce(c, "t", sequenced(1), -1),
        )
        assert (first.base_offset, third.base_offset) == (0, 1)
        assert second.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    serve(tmp_path, scenario)


def test_a_client_that_went_away_is_not_answered(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        assert (await produce(c, "t", sequenced(0))).error_code == 0
        broker.store_answers.clear()
        other = await open_connection("127.0.0.1", broker.port)
        asked = asyncio.create_task(produce(other, "t", sequenced(5)))
        assert (await produce(c, "t", sequenced(1))).error_code == 0
        other.close()
        with pytest.raises(ConnectionError):
            await asked
        broker.store_answers.set()
        assert (await produce(c, "t", sequenced(2))).error_code == 0

    serve(tmp_path, scenario)


def test_a_batch_behind_one_that_found_no_leader_is_sent_again_with_it(tmp_path: Path) -> None:
    """The leadership comes between two requests of a producer that are on their way."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2))
        assert (await produce(c, "t", sequenced(0))).error_code == 0
        broker.create_topic("t", replicas=(1, 2), leader=2, epoch=1)
        first = await produce(c, "t", sequenced(1))
        broker.create_topic("t", replicas=(1, 2), epoch=2)
        behind = await produce(c, "t", sequenced(2))
        assert first.error_code == behind.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "send both again" in (behind.error_message or "")
        assert [(await produce(c, "t", sequenced(n))).base_offset for n in (1, 2, 3)] == [1, 2, 3]

    serve(tmp_path, scenario)


def test_a_producer_that_is_not_known_begins_with_its_first_batch(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2), leader=2)
        first = await produce(c, "t", sequenced(0))
        broker.create_topic("t", replicas=(1, 2), epoch=1)
        behind = await produce(c, "t", sequenced(1))
        assert first.error_code == behind.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [(await produce(c, "t", sequenced(n))).base_offset for n in (0, 1)] == [0, 1]

    serve(tmp_path, scenario)


def test_a_gap_of_the_producer_itself_is_told_at_last(tmp_path: Path) -> None:
    """It never sends the refused batch again: no more is excused than was on its way."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2))
        assert (await produce(c, "t", sequenced(0))).error_code == 0
        broker.create_topic("t", replicas=(1, 2), leader=2, epoch=1)
        await produce(c, "t", sequenced(1))
        broker.create_topic("t", replicas=(1, 2), epoch=2)
        lead_for(broker, FORMER_LEADER_S)
        codes = [(await produce(c, "t", sequenced(n))).error_code for n in range(2, 7)]
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 4 + [
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        ]

    serve(tmp_path, scenario)


def test_a_batch_behind_one_that_lacked_replicas_is_sent_again_with_it(tmp_path: Path) -> None:
    """The ISR grows between two requests of a producer that are on their way."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        configs = {"min.insync.replicas": "2"}
        broker.create_topic("t", replicas=(1, 2), isr=(1,), configs=configs)
        assert (await produce(c, "t", sequenced(0))).error_code == 0
        first = await produce(c, "t", sequenced(1), -1)
        broker.create_topic("t", replicas=(1, 2), isr=(1, 2), configs=configs, epoch=1)
        behind = await produce(c, "t", sequenced(2), -1)
        assert first.error_code == behind.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        for n in (1, 2):
            assert (await produce(c, "t", sequenced(n))).base_offset == n

    serve(tmp_path, scenario)


def test_a_new_leader_waits_for_what_may_be_with_the_former_one(tmp_path: Path) -> None:
    """The former leader is cut off and does not know: it will refuse batches 1 and 2 in the end."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2))
        await produce(c, "t", sequenced(0))
        broker.create_topic("t", replicas=(1, 2), leader=2, epoch=1)
        broker.create_topic("t", replicas=(1, 2), epoch=2)
        refused = await produce(c, "t", sequenced(3))
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "the former leader may have what is missing" in (refused.error_message or "")
        assert [(await produce(c, "t", sequenced(n))).base_offset for n in (1, 2, 3)] == [1, 2, 3]
        gap = await produce(c, "t", sequenced(5))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "it has its own by now"

    serve(tmp_path, scenario)


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2))
        await produce(c, "t", sequenced(0))
        broker.create_topic("t", replicas=(1, 2), epoch=1)
        lead_for(broker, FORMER_LEADER_S)
        gap = await produce(c, "t", sequenced(3))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    serve(tmp_path, scenario)
