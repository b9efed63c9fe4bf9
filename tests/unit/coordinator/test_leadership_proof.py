"""Replies that only the leader may give: OffsetFetch with require_stable."""

from __future__ import annotations

import asyncio

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.group.offsets import Committed
from unit.coordinator.test_runtime import code_of
from unit.coordinator.transactional_groups import Groups, play

TOO_FEW = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "1 of 2")


async def asked(g: Groups, count: int = 1) -> list[asyncio.Future[Committed]]:
    """So many fetches of one turn, which have run as far as they can."""
    fetches = [asyncio.ensure_future(g.fetched(require_stable=True)) for _ in range(count)]
    for _ in range(5):
        await asyncio.sleep(0)
    return fetches


def test_a_stable_offset_waits_for_a_commit_after_it() -> None:
    """A deposed coordinator that does not know it would answer an offset of before."""

    async def story(g: Groups) -> None:
        await g.commit(5)
        g.log.is_held = True
        [stable] = await asked(g)
        assert await g.committed() == 5 and not stable.done(), "any offset is answered at once"
        g.log.release()
        assert (await stable).offset == 5
        g.log.is_held = True
        [stable] = await asked(g)
        g.log.depose()
        assert await code_of(stable) is ErrorCode.NOT_COORDINATOR

    play(story)


def test_the_fetches_of_a_turn_share_one_record() -> None:
    async def story(g: Groups) -> None:
        await g.commit(5)
        before = g.log.appends
        for _ in range(2):
            assert [(await f).offset for f in await asked(g, 100)] == [5] * 100
        assert g.log.appends == before + 2
        await g.fetched()
        assert g.log.appends == before + 2, "any offset costs nothing"

    play(story)


def test_the_records_of_a_turn_are_a_proof_too() -> None:
    async def story(g: Groups) -> None:
        await g.commit(5)
        before = g.log.end
        commits = [asyncio.ensure_future(g.commit(offset)) for offset in (6, 7)]
        [stable] = await asked(g)
        await asyncio.gather(*commits)
        assert (await stable).offset == 7 and g.log.end == before + 2

    play(story)


def test_a_successor_skips_proofs() -> None:
    async def story(g: Groups) -> None:
        await g.commit(5)
        assert await g.is_stable()
        await g.lead()
        assert await g.committed() == 5
        await g.commit(6)
        assert await g.committed() == 6

    play(story)


def test_the_metadata_store_proves_it_while_too_few_replicas_are_in_sync() -> None:
    async def story(g: Groups) -> None:
        await g.commit(5)
        g.log.rejection = TOO_FEW
        assert [(await f).offset for f in await asked(g, 100)] == [5] * 100
        assert g.log.look_ups == 1, "for all of them"
        g.log.rejection = None
        assert await g.is_stable()

    play(story)


@pytest.mark.parametrize("code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_the_metadata_store_proves_it_when_the_log_cannot_be_written(code: ErrorCode) -> None:
    async def story(g: Groups) -> None:
        await g.commit(5)
        shard = g.runtime.shard(0)
        g.log.failure = KafkaError(code, "the disk is full")
        assert (await g.fetched(require_stable=True)).offset == 5
        assert g.runtime.shard(0) is shard, "nothing was replayed: nothing is loaded again"

    play(story)


def test_without_any_proof_the_answer_is_retriable() -> None:
    async def story(g: Groups) -> None:
        await g.commit(5)
        g.log.rejection, g.log.is_confirmed = TOO_FEW, False
        fetches = await asked(g, 3)
        codes = [await code_of(f) for f in fetches]
        assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
        assert await g.committed() == 5

    play(story)


def test_what_comes_while_the_store_is_asked_is_asked_for_again() -> None:
    async def story(g: Groups) -> None:
        await g.commit(5)
        g.log.rejection = TOO_FEW
        first = asyncio.ensure_future(g.fetched(require_stable=True))
        while not g.log.look_ups:
            await asyncio.sleep(0)
        second = asyncio.ensure_future(g.fetched(require_stable=True))
        assert [(await f).offset for f in (first, second)] == [5, 5]
        assert g.log.look_ups == 2

    play(story)


def test_a_dropped_shard_fails_what_waits_for_a_proof() -> None:
    async def story(g: Groups) -> None:
        await g.commit(5)
        g.log.rejection = TOO_FEW
        waiting = asyncio.ensure_future(g.fetched(require_stable=True))
        while not g.log.look_ups:
            await asyncio.sleep(0)
        g.runtime.on_resign(0)
        assert await code_of(waiting) is ErrorCode.NOT_COORDINATOR

    play(story)
