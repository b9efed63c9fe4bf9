"""Which requests of the hot path are timed, and the bounds of each stage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import ApiRow
from headwater_broker.api.replies import Answer, ParkedReply
from headwater_broker.api.request_meters import PRODUCE, Meters
from headwater_broker.api.request_timing import STAGES
from headwater_broker.network.request_timer import TIMED_FIRST, RequestTimer
from headwater_broker.network.send_queue import SendQueue
from headwater_broker.network.turn_budget import TIMED_EVERY_S, TIMED_PER_TURN, TurnBudget


class Loop:
    """A loop's clock and turns, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)


class Story:
    """One connection whose Produce requests take a second each, and are answered with `answer`."""

    def __init__(self, answer: Answer = b"reply") -> None:
        self.loop = Loop()
        self.meters = Meters()
        self.turn = TurnBudget(cast(asyncio.AbstractEventLoop, self.loop))
        self.timer = RequestTimer(self.loop.time, self.turn)
        self.answer = answer
        services = SimpleNamespace(quotas=SimpleNamespace(is_active=False))
        self.peer = cast(
            Peer, SimpleNamespace(services=services, raw_meters=self.meters.of_clients)
        )
        self.row = cast(ApiRow, SimpleNamespace(key=PRODUCE, raw=self._produce))

    def _produce(self, *_: Any) -> Answer:
        self.loop.now_s += 1
        return self.answer

    @property
    def meter(self) -> Any:
        return self.meters.api(PRODUCE)

    @property
    def sums(self) -> dict[str, float]:
        return dict(zip(STAGES, (h.sum_s for h in self.meter.stages), strict=True))

    def next_turn(self) -> None:
        due, self.loop.soon = self.loop.soon, []
        for callback in due:
            callback()
        self.turn.has_time()

    def handle(self) -> None:
        self.meter.requests += 1
        self.timer.handle(self.peer, self.row, memoryview(b""), 0, 0, 0, 9, 1)


def test_one_turn_in_so_long_is_timed() -> None:
    story = Story()
    found = []
    for step_s in (0.0, TIMED_EVERY_S / 2, TIMED_EVERY_S / 2, 0.0, TIMED_EVERY_S * 9):
        story.loop.now_s += step_s
        story.next_turn()
        found.append(story.turn.to_time)
    assert found == [TIMED_PER_TURN, 0, TIMED_PER_TURN, 0, TIMED_PER_TURN]


def test_the_first_requests_are_all_timed_then_a_few_of_a_turn() -> None:
    story = Story()
    story.next_turn()
    for _ in range(TIMED_FIRST + 10):
        story.handle()
    assert len(story.timer.written) == TIMED_FIRST
    story.next_turn()
    for _ in range(TIMED_PER_TURN + 5):
        story.handle()
    assert len(story.timer.written) == TIMED_FIRST + TIMED_PER_TURN
    story.timer.sent()
    story.meter.settle()
    assert story.meter.total.count == story.meter.requests


def test_of_awaited_requests_each_one_is_timed() -> None:
    story = Story()
    story.next_turn()
    for _ in range(TIMED_FIRST + 10):
        story.meter.requests += 1
        sampled, began = story.timer.begin(story.meter), story.loop.now_s
        story.loop.now_s += 1
        timing = story.timer.awaited(story.meter, sampled, began)
        timing.handled()
        timing.sent()
    assert story.meter.total.count == story.meter.requests == TIMED_FIRST + 10
    assert story.sums["local"] == TIMED_FIRST + 10


def test_a_reply_is_timed_until_it_is_sent() -> None:
    story = Story()
    story.next_turn()
    story.handle()
    story.loop.now_s += 5
    story.timer.sent()
    story.timer.sent()
    assert story.sums == {"queue": 0, "local": 1, "remote": 0, "throttle": 0, "send": 5}


def test_a_parked_reply_carries_its_timing() -> None:
    reply = ParkedReply(lambda: None)
    story = Story(reply)
    story.next_turn()
    story.handle()
    assert story.timer.written == []
    story.loop.now_s += 7
    reply.resolve([b"reply"])
    story.loop.now_s += 1
    assert reply.timing is not None
    reply.timing.sent()
    assert story.sums == {"queue": 0, "local": 1, "remote": 7, "throttle": 0, "send": 1}


def test_a_request_without_reply_is_over_at_once() -> None:
    story = Story(None)
    story.next_turn()
    story.handle()
    assert (story.timer.written, story.meter.total.count) == ([], 1)


def test_frames_that_are_put_off_wait_in_the_queue() -> None:
    story = Story()
    story.next_turn()
    story.timer.put_off()
    story.loop.now_s += 3
    story.next_turn()
    story.timer.put_off()
    story.loop.now_s += 4
    story.next_turn()
    story.handle()
    assert story.timer.written
    story.timer.sent()
    assert story.sums["queue"] == 7
    story.timer.caught_up()
    story.handle()
    story.timer.sent()
    assert story.sums["queue"] == pytest.approx(7 + 1), "the second one waits for the first"


def test_what_mutes_the_client_is_the_request_s_throttle_time() -> None:
    story = Story()

    def produce(*_: Any) -> Answer:
        story.timer.muted_ms = 250
        return b"reply"

    story.next_turn()
    story.handle()
    story.row = cast(ApiRow, SimpleNamespace(key=PRODUCE, raw=produce))
    story.handle()
    story.timer.sent()
    assert story.sums["throttle"] == 0.25


def test_a_lost_connection_ends_what_it_waits_for() -> None:
    reply, answered = ParkedReply(lambda: None), ParkedReply(lambda: None)
    story = Story(reply)
    story.next_turn()
    story.handle()
    story.loop.now_s += 2
    story.timer.lost([reply, answered])
    assert (story.meter.total.count, story.sums["local"], story.sums["send"]) == (1, 1, 2)


def test_a_reply_is_sent_once_the_kernel_has_all_of_it() -> None:
    class Transport:
        def set_write_buffer_limits(self, high: int) -> None: ...

        def write(self, data: bytes) -> None:
            outbox.pause()  # the kernel takes a part of it

    calls: list[str] = []
    outbox = SendQueue(cast(Any, Transport()), cast(Any, None), lambda: None, lambda error: None)
    outbox.call_when_idle(lambda: calls.append("nothing was written"))
    outbox.push_bytes(b"reply")
    outbox.call_when_idle(lambda: calls.append("sent"))
    assert calls == ["nothing was written"]
    outbox.resume()
    outbox.resume()
    assert calls == ["nothing was written", "sent"]
