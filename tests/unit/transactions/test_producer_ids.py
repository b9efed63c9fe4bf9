"""Producer ids come from blocks, each id once, whoever asks at the same time."""

from __future__ import annotations

import asyncio

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.transactions.producer_ids import ProducerIds


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
