"""Controlled shutdown as the stopping broker sees it: retries, their pause, a warning at last."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.config.keys import broker_values
from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock
from headwater_broker.app.lifecycle import Lifecycle
from headwater_broker.app.scheduler import Scheduler
from headwater_broker.app.wiring import BrokerServer

PAUSE = "controlled.shutdown.retry.backoff.ms"
RETRIES = "controlled.shutdown.max.retries"
NO_CONTROLLER = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no controller")


class Controller:
    """Answers each request with the next of `replies`: partitions that remain, or an error."""

    def __init__(self, clock: ManualClock, replies: list[int | KafkaError], takes_s: float) -> None:
        self.asked = 0
        self._clock = clock
        self._replies = replies
        self._takes_s = takes_s

    async def controlled_shutdown(self, timeout_ms: int) -> int:
        self.asked += 1
        self._clock.advance(int(self._takes_s * 1000))
        reply = self._replies.pop(0)
        if isinstance(reply, KafkaError):
            raise reply
        return reply


def drained(
    replies: list[int | KafkaError], configs: dict[str, str], *, takes_s: float = 0
) -> tuple[int, float]:
    """(how often the controller was asked, seconds of the loop that went by)."""

    async def run() -> tuple[int, float]:
        clock = ManualClock()
        controller = Controller(clock, list(replies), takes_s)
        server: Any = SimpleNamespace(
            config=SimpleNamespace(values=broker_values(configs)),
            view=SimpleNamespace(brokers={1: None, 2: None}),
            replicas=SimpleNamespace(begin_controlled_shutdown=lambda: None),
            environment=SimpleNamespace(clock=clock),
            controller_channel=controller,
        )
        loop = asyncio.get_running_loop()
        began = loop.time()
        await Lifecycle(cast(BrokerServer, server), lambda _: None, Scheduler(loop)).drain()
        return controller.asked, loop.time() - began

    return asyncio.run(run())


def test_it_is_tried_again_after_the_pause_until_nothing_is_led_here(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        asked, took_s = drained([2, 1, 0, 7], {PAUSE: "60"})
    assert asked == 3
    assert took_s >= 0.12
    assert caplog.text == ""


@pytest.mark.parametrize("reply", [1, NO_CONTROLLER])
def test_after_the_last_retry_the_broker_stops_with_a_warning(
    reply: int | KafkaError, caplog: pytest.LogCaptureFixture
) -> None:
    assert drained([reply] * 9, {PAUSE: "0", RETRIES: "2"})[0] == 3
    assert "without a completed controlled shutdown" in caplog.text


def test_no_retry_begins_after_20_s() -> None:
    assert drained([1] * 9, {PAUSE: "0", RETRIES: "9"}, takes_s=8)[0] == 3


def test_nothing_is_asked_when_it_is_off() -> None:
    assert drained([1], {"controlled.shutdown.enable": "false"})[0] == 0
