"""Epoch transactions through one broker: join, write, commit, abort, prepare, and readers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.topic_names import TRANSACTION_TOPIC
from headwater.wire.epoch_values import EpochStatus
from solo_broker import SoloBroker
from unit.api.epoch_requests import NEWER_RUN, Writer, ticket, write
from unit.api.test_transactions import SMALL, described, init, settled
from unit.api.test_transactions_to_their_end import stable
from unit.network.test_data_plane import serve

E = ErrorCode
Story = Callable[[SoloBroker, Connection], Awaitable[None]]


def tell(tmp_path: Path, story: Story) -> None:
    async def with_topics(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(TRANSACTION_TOPIC, 2)
        broker.create_topic("flights", 2)
        await story(broker, c)

    serve(tmp_path, with_topics, **SMALL)


def test_tickets_rise(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        first = await ticket(c)
        assert await ticket(c) > first

    tell(tmp_path, story)


def test_a_committed_epoch_is_read_whole_and_an_aborted_one_not(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        writer = Writer(c, await ticket(c))
        one, two = await writer.join(0), await writer.join(1, 1, 0)
        assert (one.error_code, one.status, two.slot) == (E.NONE, EpochStatus.OPEN, 1)
        assert await write(c, one) is E.NONE
        assert await write(c, two) is E.NONE
        assert await stable(c) == (2, 0, []), "an open epoch holds readers up"
        done = await writer.commit(one, two)
        assert (done.error_code, done.status) == (E.NONE, EpochStatus.COMMITTED)
        assert (done.last_epoch, done.is_complete) == (0, True)
        assert await stable(c) == (4, 4, [])

        again = writer.but(ticket=await ticket(c), epoch=1)
        three = await again.join(0)
        assert (three.slot, three.producer_id) == (one.slot, one.producer_id)
        assert three.producer_epoch == one.producer_epoch + 1
        assert await write(c, three) is E.NONE
        assert (await again.abort()).status == EpochStatus.ABORTED
        await settled(broker)
        assert await stable(c) == (6, 6, [4])
        assert (await again.commit(three)).status == EpochStatus.ABORTED
        assert (await writer.commit(one, two)).status == EpochStatus.COMMITTED

    tell(tmp_path, story)


def test_a_late_batch_of_an_ended_epoch_is_refused(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        writer = Writer(c, await ticket(c))
        one = await writer.join()
        await write(c, one)
        await writer.commit(one)
        assert await write(c, one, sequence=1) is E.INVALID_PRODUCER_EPOCH
        assert await write(c, one, index=1) is E.INVALID_PRODUCER_EPOCH, "where it wrote nothing"

    tell(tmp_path, story)


def test_a_newer_run_fences_the_one_before(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        old = Writer(c, await ticket(c))
        one = await old.join()
        await write(c, one)
        new = old.but(run=NEWER_RUN, ticket=await ticket(c))
        assert (await new.join()).status == EpochStatus.OPEN
        assert (await old.join(1)).status == EpochStatus.FENCED
        assert (await old.commit(one)).status == EpochStatus.FENCED
        assert (await old.abort()).status == EpochStatus.FENCED
        assert await old.heartbeat() is EpochStatus.FENCED
        assert await new.heartbeat() is EpochStatus.OPEN
        late = old.but(ticket=await ticket(c))
        assert (await late.join()).status == EpochStatus.FENCED, "a zombie with a fresh ticket"

    tell(tmp_path, story)


def test_a_prepared_epoch_waits_for_its_decision(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        old = Writer(c, await ticket(c))
        one = await old.join()
        await write(c, one)
        assert (await old.prepare(one)).status == EpochStatus.PREPARED
        assert await write(c, one, index=1) is not E.NONE, "it takes no more partitions"
        new = old.but(run=NEWER_RUN, ticket=await ticket(c))
        assert (await new.join()).status == EpochStatus.PREPARED
        assert (await new.commit()).status == EpochStatus.PREPARED
        assert (await new.commit(is_prepared=True)).status == EpochStatus.COMMITTED
        assert await stable(c) == (2, 2, [])
        assert (await new.join()).status == EpochStatus.COMMITTED
        assert (await old.abort()).status == EpochStatus.COMMITTED

    tell(tmp_path, story)


def test_plain_requests_cannot_touch_a_participant(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        writer = Writer(c, await ticket(c))
        one = await writer.join()
        assert (await init(c, one.transactional_id)).error_code == (
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
        (row,) = await described(c, one.transactional_id)
        assert row.transaction_state == "Ongoing"

    tell(tmp_path, story)
