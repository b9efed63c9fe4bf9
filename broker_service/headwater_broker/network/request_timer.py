"""Times of one connection's requests by stage: queue, local, remote, throttle, send."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import ApiRow
from headwater_broker.api.replies import Answer, ParkedReply
from headwater_broker.api.request_meters import ApiMeter, RequestTiming
from headwater_broker.network import request_dispatch, throttling
from headwater_broker.network.turn_budget import TurnBudget

TIMED_FIRST = 64
"""The first requests of each kind are all timed: a rare one has its times soon."""


class RequestTimer:
    """Of one connection. Only timed requests come here: not each one of a busy hot path."""

    __slots__ = ("_now", "_put_off_s", "_turn", "muted_ms", "written")

    def __init__(self, now: Callable[[], float], turn: TurnBudget) -> None:
        self._now = now
        self._turn = turn
        self._put_off_s = 0.0
        """When the frames in the buffer were first put off for want of time; 0: they were not."""
        self.muted_ms = 0
        """For how long the request at work has its client muted."""
        self.written: list[RequestTiming] = []
        """Of requests whose replies are complete, and perhaps not with the kernel yet."""

    def begin(self, meter: ApiMeter) -> RequestTiming:
        """A request, counted already, comes to its handler."""
        arrived = self._put_off_s or self._turn.began_s
        return meter.begin(self._turn.number, arrived, self._now)

    def handle(
        self, peer: Peer, row: ApiRow, view: memoryview, at: int, body: int, end: int,
        version: int, correlation_id: int,
    ) -> Answer:  # fmt: skip
        """Run Produce or Fetch, when they are timed or while there are client quotas."""
        meter, turn, timing = peer.raw_meters[row.key], self._turn, None
        if turn.to_time > 0 or meter.requests <= TIMED_FIRST:
            turn.to_time -= 1
            timing = self.begin(meter)
        with self.throttled(timing):
            if peer.services.quotas.is_active:
                peer.client_id = request_dispatch.client_id_of(view[:end], at + 12) or ""
                answer = throttling.handle_raw(
                    peer, row, view, body, end, version, correlation_id, end - at
                )
            else:
                assert row.raw is not None
                answer = row.raw(peer, view, body, end, version, correlation_id)
        if timing is not None:
            timing.handled()
            if isinstance(answer, ParkedReply):
                answer.timing = timing
            elif answer is None:  # Produce with acks=0
                timing.sent()
            else:
                self.written.append(timing)
        return answer

    @contextmanager
    def throttled(self, timing: RequestTiming | None) -> Iterator[None]:
        """What mutes the client in here is the throttle time of this request."""
        self.muted_ms = 0
        yield
        if timing is not None:
            timing.throttle_s = self.muted_ms / 1000

    def put_off(self) -> None:
        """The frames in the buffer wait for the next turn."""
        self._put_off_s = self._put_off_s or self._turn.began_s

    def caught_up(self) -> None:
        """No frame waits for a turn any more."""
        self._put_off_s = 0.0

    def sent(self) -> None:
        """The kernel has all replies that were written."""
        for timing in self.written:
            timing.sent()
        self.written.clear()

    def lost(self, replies: Iterable[ParkedReply]) -> None:
        """The connection is gone: nobody waits for these replies any more."""
        self.written += [reply.timing for reply in replies if reply.timing is not None]
        self.sent()
