"""Producer ids come from blocks; concurrent requests never get the same id."""

from __future__ import annotations

import asyncio

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.transaction.producer_ids import IDS_LOW, ProducerIds


def test_ids_are_given_once_and_blocks_are_asked_for_one_at_a_time() -> None:
    blocks = iter([(0, 3), (10, 3), (20, 3)])
    asked: list[int] = []

    async def allocate() -> tuple[int, int]:
        await asyncio.sleep(0)
        start, length = next(blocks)
        asked.append(start)
        return start, length

    async def story() -> list[int]:
        ids = ProducerIds(allocate)
        return sorted(await asyncio.gather(*(ids.fresh() for _ in range(8))))

    assert asyncio.run(story()) == [0, 1, 2, 10, 11, 12, 20, 21]
    assert asked == [0, 10, 20]


def test_a_reserve_outlasts_a_controller_that_is_away() -> None:
    is_away = False
    asked = 0

    async def allocate() -> tuple[int, int]:
        nonlocal asked
        asked += 1
        if is_away:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return asked * 1_000, IDS_LOW + 1

    async def story() -> None:
        nonlocal is_away
        ids = ProducerIds(allocate)
        assert ids.is_low
        await asyncio.gather(ids.stock(), ids.stock())
        assert asked == 1 and not ids.is_low
        assert await ids.fresh() == 1_000
        await ids.stock()
        assert asked == 1, "enough is left"
        await ids.fresh()
        await ids.stock()
        assert asked == 2 and not ids.is_low
        is_away = True
        given = [await ids.fresh() for _ in range(2 * IDS_LOW)]
        assert given == [*range(1_002, 1_000 + IDS_LOW + 1), *range(2_000, 2_000 + IDS_LOW + 1)]
        await ids.stock()
        with pytest.raises(KafkaError):
            await ids.fresh()

    asyncio.run(story())


def test_without_a_controller_there_is_no_id_and_the_next_call_asks_again() -> None:
    answers = [KafkaError(ErrorCode.REQUEST_TIMED_OUT), None]

    async def allocate() -> tuple[int, int]:
        error = answers.pop(0)
        if error is not None:
            raise error
        return 5, 1

    async def story() -> int:
        ids = ProducerIds(allocate)
        with pytest.raises(KafkaError):
            await ids.fresh()
        return await ids.fresh()

    assert asyncio.run(story()) == 5


def test_an_id_that_was_not_used_is_given_again() -> None:
    async def allocate() -> tuple[int, int]:
        return 7, 2

    async def story() -> None:
        ids = ProducerIds(allocate)
        assert ids.ready() == -1, "it does not wait for the controller"
        ids.give_back(-1)
        assert await ids.fresh() == 7
        ids.give_back(7)
        assert [ids.ready(), ids.ready(), ids.ready()] == [7, 8, -1]

    asyncio.run(story())


def test_requests_that_wait_for_an_attempt_fail_with_it() -> None:
    # One attempt of each in turn would keep the last one waiting for all their timeouts.
    attempts = 0
    answer = asyncio.Event()

    async def allocate() -> tuple[int, int]:
        nonlocal attempts
        attempts += 1
        await answer.wait()
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no controller")

    async def story() -> list[int | BaseException]:
        ids = ProducerIds(allocate)
        waiting = asyncio.gather(*(ids.fresh() for _ in range(5)), return_exceptions=True)
        await asyncio.sleep(0)
        answer.set()
        return await waiting

    errors = asyncio.run(story())
    assert [e.code for e in errors if isinstance(e, KafkaError)] == [
        ErrorCode.REQUEST_TIMED_OUT
    ] * 5
    assert attempts == 1


def test_a_client_is_not_told_that_the_brokers_registration_is_stale() -> None:
    """It retries: the next attempt succeeds once the broker knows its new epoch."""
    answers = iter([KafkaError(ErrorCode.STALE_BROKER_EPOCH, "broker 1"), None])

    async def allocate() -> tuple[int, int]:
        if (error := next(answers)) is not None:
            raise error
        return 7, 10

    async def story() -> None:
        ids = ProducerIds(allocate)
        with pytest.raises(KafkaError, match="no producer ids: STALE_BROKER_EPOCH") as refused:
            await ids.fresh()
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await ids.fresh() == 7

    asyncio.run(story())
