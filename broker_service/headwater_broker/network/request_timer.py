"""Times of one connection's requests by stage: queue, local, remote, throttle, send."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import ApiRow
from headwater_broker.api.replies import Answer, ParkedReply
from headwater_broker.api.request_meters import ApiMeter
from headwater_broker.api.request_timing import RequestTiming
from headwater_broker.network import request_dispatch, throttling
from headwater_broker.network.turn_budget import TurnBudget

TIMED_FIRST = 64
"""The first requests of each kind are all timed, so that a rare kind has times soon."""


class RequestTimer:
    """Times the requests of one connection: of the hot path only some, of the others each one."""

    __slots__ = ("_now", "_put_off_s", "_turn", "muted_ms", "written")

    def __init__(self, now: Callable[[], float], turn: TurnBudget) -> None:
        self._now = now
        self._turn = turn
        self._put_off_s = 0.0
        """When the frames in the buffer were first put off to a later turn; 0: they were not."""
        self.muted_ms = 0
        """For how long the current request has muted its client."""
        self.written: list[RequestTiming] = []
        """Requests with a complete reply that the kernel may not have yet."""

    def begin(self, meter: ApiMeter) -> RequestTiming | None:
        """Begin to time a request, already counted, if it is one of those of its kind that are
        timed."""
        turn = self._turn
        if turn.to_time <= 0 and meter.requests > TIMED_FIRST:
            return None
        turn.to_time -= 1
        return meter.begin(turn.number, self._put_off_s or turn.began_s, self._now)

    def awaited(self, meter: ApiMeter, timing: RequestTiming | None, began: float) -> RequestTiming:
        """The handler, which began at `began`, awaits the response: every such request is timed,
        and stands for itself alone."""
        if timing is None:
            return meter.begin_alone(self._put_off_s or self._turn.began_s, began, self._now)
        timing.stand_alone()
        return timing

    def handle(
        self, peer: Peer, row: ApiRow, view: memoryview, at: int, body: int, end: int,
        version: int, correlation_id: int,
    ) -> Answer:  # fmt: skip
        """Run Produce or Fetch, when they are timed or while there are client quotas."""
        timing = self.begin(peer.raw_meters[row.key])
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
        """Record how long the client is muted within this block, as the request's throttle time."""
        self.muted_ms = 0
        yield
        if timing is not None:
            timing.throttle_s = self.muted_ms / 1000

    def put_off(self) -> None:
        """Record that the frames in the buffer wait for the next turn."""
        self._put_off_s = self._put_off_s or self._turn.began_s

    def caught_up(self) -> None:
        """Record that no frame waits for a turn any more."""
        self._put_off_s = 0.0

    def sent(self) -> None:
        """Record that the kernel has all replies that were written."""
        for timing in self.written:
            timing.sent()
        self.written.clear()

    def lost(self, replies: Iterable[ParkedReply]) -> None:
        """End the times of replies that a closed connection can no longer send."""
        self.written += [reply.timing for reply in replies if reply.timing is not None]
        self.sent()
