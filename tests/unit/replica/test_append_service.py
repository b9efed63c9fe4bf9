"""Appends behind a guard keep their order; commits and record deletions wait without polling."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.log.results import AppendOrigin, AppendResult
from headwater_broker.replica.append_service import AT_PRODUCER_ID, AppendService
from headwater_broker.replica.delayed_operations import Purgatories, RecordDeletion
from headwater_broker.replica.partition import Partition
from unit.replica.fake_log import make_batch
from unit.replica.test_partition import Hosted, state

EPOCH = 4
LONG_MS = 60_000


def producer_batch(payload: bytes, producer_id: int = 7, epoch: int = 0) -> memoryview:
    batch = make_batch(payload)
    struct.pack_into(">qh", batch, AT_PRODUCER_ID, producer_id, epoch)
    return batch


class Asked:
    """A guard that answers when the test says so; `open` producers pass at once."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.questions: list[asyncio.Future[None]] = []

    def verify(self, partition: Partition, batch: memoryview) -> Awaitable[None] | None:
        producer_id = struct.unpack_from(">q", batch, AT_PRODUCER_ID)[0]
        if producer_id in self.open:
            return None
        self.questions.append(asyncio.get_running_loop().create_future())
        return self.questions[-1]

    def queued(self, partition: Partition, batch: memoryview) -> None:
        """Let it wait."""

    def recheck(self, partition: Partition, batch: memoryview) -> None:
        """Let it be appended."""


class Bench:
    """A led partition and the service over it."""

    def __init__(self) -> None:
        self.hosted = Hosted()
        self.live: set[int] = {1, 2}
        self.purgatories = Purgatories(asyncio.get_running_loop(), lambda: self.live)
        self.service = AppendService(self.purgatories, self.hosted.clock)
        self.partition = self.hosted.lead((1,), (1,))
        self.partition.on_leadership = self.service.leadership_changed
        self.guard = Asked()
        self.outcomes: list[AppendResult | KafkaError] = []

    def append(self, payload: bytes, producer_id: int = 7, epoch: int = 0) -> AppendResult | None:
        batch = producer_batch(payload, producer_id, epoch)
        done = self.service.append_guarded(
            self.partition, batch, self.guard, self.outcomes.append, acks=1
        )
        batch[:] = bytes(len(batch))  # the receive buffer is used again
        return done

    @property
    def log(self) -> list[bytes]:
        return [payload for _, _, payload in self.hosted.log.offsets()]

    @property
    def codes(self) -> list[ErrorCode]:
        return [o.code if isinstance(o, KafkaError) else ErrorCode.NONE for o in self.outcomes]


def play(story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        bench = Bench()
        await story(bench)
        await bench.service.close()

    asyncio.run(asyncio.wait_for(run(), 30))


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_guard_that_allows_at_once_appends_at_once() -> None:
    async def story(b: Bench) -> None:
        b.guard.open.add(7)
        done = b.append(b"a")
        assert done is not None and done.last_offset == 0
        assert b.log == [b"a"] and b.outcomes == []

    play(story)


def test_a_batch_without_a_producer_asks_no_guard() -> None:
    async def story(b: Bench) -> None:
        assert b.append(b"a", producer_id=-1) is not None
        assert b.log == [b"a"] and b.guard.questions == []

    play(story)


def test_batches_of_a_producer_wait_together_and_keep_their_order() -> None:
    async def story(b: Bench) -> None:
        assert b.append(b"first") is None
        b.guard.open.add(7)  # even if it would pass by now: it comes after the first
        assert b.append(b"second") is None
        assert b.append(b"other producer", producer_id=8) is None
        assert len(b.guard.questions) == 2 and b.log == []
        b.guard.questions[0].set_result(None)
        await turns()
        assert b.log == [b"first", b"second"]
        b.guard.questions[1].set_result(None)
        await turns()
        assert b.log == [b"first", b"second", b"other producer"]
        offsets = [o.base_offset for o in b.outcomes if isinstance(o, AppendResult)]
        assert offsets == [0, 1, 2]
        assert b.append(b"third") is not None

    play(story)


def test_a_refused_producer_gets_the_error_for_everything_that_waits() -> None:
    async def story(b: Bench) -> None:
        b.append(b"first")
        b.append(b"second")
        b.guard.questions[0].set_exception(KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "no"))
        await turns()
        assert b.log == [] and b.codes == [ErrorCode.TRANSACTION_ABORTABLE] * 2
        b.append(b"again")
        assert len(b.guard.questions) == 2, "asked anew"

    play(story)


def test_a_guard_that_breaks_refuses(caplog: pytest.LogCaptureFixture) -> None:
    async def story(b: Bench) -> None:
        b.append(b"first")
        b.guard.questions[0].set_exception(ZeroDivisionError("a bug"))
        await turns()
        assert b.log == [] and b.codes == [ErrorCode.UNKNOWN_SERVER_ERROR]

    play(story)
    assert "a bug" in caplog.text


def test_an_answer_counts_only_for_the_question_that_was_asked() -> None:
    """ABA: the transaction was aborted and another began before the first answer came."""

    async def story(b: Bench) -> None:
        b.append(b"aborted")
        fenced = KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "a marker came")
        b.service.drop_waiting(b.partition, 7, 1, fenced)
        await turns()
        assert b.codes == [ErrorCode.INVALID_PRODUCER_EPOCH]
        b.append(b"next")
        b.guard.questions[0].set_result(None)
        await turns()
        assert b.log == []
        b.guard.questions[1].set_result(None)
        await turns()
        assert b.log == [b"next"]

    play(story)


def test_a_marker_drops_lower_epochs_alone() -> None:
    async def story(b: Bench) -> None:
        b.append(b"old", epoch=3)
        b.append(b"new", epoch=4)
        b.service.drop_waiting(
            b.partition, 7, 4, KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "old")
        )
        for question in b.guard.questions:
            question.set_result(None)
        await turns()
        assert b.log == [b"new"]

    play(story)


def test_what_waits_for_a_guard_ends_with_the_leadership() -> None:
    async def story(b: Bench) -> None:
        b.append(b"first")
        b.partition.become_follower(state(leader_id=2, leader_epoch=EPOCH + 1, isr=(2,)))
        await turns()
        assert b.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        b.hosted.lead((1,), (1,), leader_epoch=EPOCH + 2, partition_epoch=12)
        b.guard.questions[0].set_result(None)
        await turns()
        assert b.log == []
        b.append(b"again")
        assert len(b.guard.questions) == 2, "a new leader asks again"

    play(story)


def test_an_append_in_an_epoch_that_is_over_is_refused() -> None:
    async def story(b: Bench) -> None:
        batch, origin = make_batch(b"a"), AppendOrigin.COORDINATOR
        done = b.service.append(b.partition, batch, origin=origin, leader_epoch=EPOCH)
        assert done.last_offset == 0
        with pytest.raises(KafkaError) as caught:
            b.service.append(b.partition, batch, origin=origin, leader_epoch=EPOCH - 1)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError):
            await b.service.committed(b.partition, 0, EPOCH - 1, LONG_MS)

    play(story)


def test_a_commit_waits_for_the_high_watermark_the_timeout_or_another_leader() -> None:
    async def story(b: Bench) -> None:
        b.hosted.lead((1, 2), (1, 2), leader_epoch=5, partition_epoch=11)
        last = b.hosted.append()
        with pytest.raises(KafkaError) as caught:
            await b.service.committed(b.partition, last, 5, 1)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        first = asyncio.ensure_future(b.service.committed(b.partition, last, 5, LONG_MS))
        second = asyncio.ensure_future(b.service.committed(b.partition, last + 1, 5, LONG_MS))
        given_up = asyncio.ensure_future(b.service.committed(b.partition, last + 1, 5, LONG_MS))
        await turns()
        given_up.cancel()
        b.hosted.fetched(2, last + 1)
        await first
        await b.service.committed(b.partition, last, 5, 0)
        assert b.purgatories.produce.parked == 1 and not second.done()
        b.partition.become_follower(state(leader_id=2, leader_epoch=6, isr=(2,)))
        with pytest.raises(KafkaError) as caught:
            await second
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert b.purgatories.produce.parked == 0

    play(story)


class Deleting(Bench):
    """A leader with one follower; records before offset 2 are deleted on the leader."""

    def __init__(self) -> None:
        super().__init__()
        self.hosted.lead((1, 2), (1, 2), leader_epoch=5, partition_epoch=11)
        for _ in range(3):
            self.hosted.append()
        self.follower_starts(0)
        self.hosted.log.delete_records_before(2)
        self.deletion = RecordDeletion(self.partition, 2)

    def follower_starts(self, offset: int) -> None:
        self.partition.update_follower(
            2, 1, 3, self.hosted.clock.monotonic(), log_start_offset=offset
        )

    def wait(self, timeout_ms: int = LONG_MS) -> asyncio.Future[None]:
        return asyncio.ensure_future(self.service.delete_records([self.deletion], timeout_ms))


def delete(story: Callable[[Deleting], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await story(Deleting())

    asyncio.run(asyncio.wait_for(run(), 30))


def test_deleted_records_wait_for_the_log_start_of_the_follower() -> None:
    async def story(b: Deleting) -> None:
        done = b.wait()
        await turns()
        assert not done.done() and b.purgatories.delete_records.parked == 1
        b.follower_starts(1)
        await turns()
        assert not done.done()
        b.follower_starts(2)
        await done
        assert (b.deletion.code, b.deletion.low_watermark) == (ErrorCode.NONE, 2)
        assert b.purgatories.delete_records.parked == 0
        b.follower_starts(3)
        assert b.partition.on_low_watermark is None, "nothing waits any more"

    delete(story)


def test_deleted_records_do_not_wait_for_a_dead_broker() -> None:
    async def story(b: Deleting) -> None:
        done = b.wait()
        await turns()
        b.live.remove(2)
        b.purgatories.watches.live_brokers_changed()
        await done
        assert (b.deletion.code, b.deletion.low_watermark) == (ErrorCode.NONE, 2)

    delete(story)


def test_deleted_records_do_not_wait_for_a_replica_that_is_moved_away() -> None:
    async def story(b: Deleting) -> None:
        done = b.wait()
        await turns()
        b.partition.update_state(state(isr=(1,), replicas=(1,), leader_epoch=5, partition_epoch=12))
        await done
        assert b.deletion.code is ErrorCode.NONE

    delete(story)


def test_deleted_records_end_with_the_timeout_or_the_leadership() -> None:
    async def story(b: Deleting) -> None:
        await b.wait(timeout_ms=1)
        assert (b.deletion.code, b.deletion.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        b.deletion = RecordDeletion(b.partition, 2)
        done = b.wait()
        await turns()
        b.partition.become_follower(state(leader_id=2, leader_epoch=6, isr=(2,)))
        await done
        assert b.deletion.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    delete(story)
