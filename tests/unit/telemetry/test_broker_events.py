"""Departures and returns of brokers, as one broker saw them; answers cached for many callers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from headwater.testing.clocks import ManualClock
from headwater_broker.telemetry.broker_events import BrokerEvents
from headwater_broker.telemetry.cached_answer import CachedAnswer


@dataclass(frozen=True)
class Seen:
    broker_epoch: int
    control_address: str = "h:1"


def told(broker_events: BrokerEvents) -> list[tuple[int, str, int, int]]:
    rows = broker_events.describe()
    return [(e["broker_id"], e["kind"], e["broker_epoch"], e["away_ms"]) for e in rows]


def test_gone_and_back_as_another_life() -> None:
    broker_events = BrokerEvents()
    broker_events.observe({0: Seen(1), 1: Seen(2)}, 100)
    broker_events.observe({0: Seen(1)}, 200)
    assert broker_events.departed[1].gone_ms == 200
    broker_events.observe({0: Seen(1), 1: Seen(9)}, 1700)
    assert told(broker_events) == [(1, "gone", 2, -1), (1, "back", 9, 1500)]
    assert broker_events.departed == {}


def test_dead_and_back_between_two_looks() -> None:
    broker_events = BrokerEvents()
    broker_events.observe({1: Seen(2)}, 100)
    broker_events.observe({1: Seen(3)}, 200)
    assert told(broker_events) == [(1, "gone", 2, -1), (1, "back", 3, 0)]


def test_the_same_life_named_again_was_never_away() -> None:
    broker_events = BrokerEvents()
    broker_events.observe({1: Seen(2)}, 100)
    broker_events.observe({}, 200)
    broker_events.observe({1: Seen(2)}, 300)
    assert told(broker_events) == [] and broker_events.departed == {}


def test_recent_makes_once_for_all_and_again_when_old() -> None:
    async def run() -> None:
        clock, made = ManualClock(), []

        async def make() -> int:
            await asyncio.sleep(0)
            made.append(1)
            if len(made) == 3:
                raise ValueError("third")
            return len(made)

        recent = CachedAnswer(make, clock, 0.5)
        assert await asyncio.gather(recent.get(), recent.get()) == [1, 1]
        clock.advance(400)
        assert await recent.get() == 1
        clock.advance(200)
        assert await recent.get() == 2
        clock.advance(600)
        failed = await asyncio.gather(recent.get(), recent.get(), return_exceptions=True)
        assert [str(error) for error in failed] == ["third", "third"]
        assert await recent.get() == 4

    asyncio.run(run())
