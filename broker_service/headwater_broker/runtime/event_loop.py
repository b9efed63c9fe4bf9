"""The broker's event loop: asyncio's selector loop with its turn in one function, and measured.

With one busy client each request is a turn of its own, and asyncio's turn (`_run_once`, the
selector's `select`, `_process_events`) is a fifth of the bytecodes of a request; in one function it
is half of that. The internals of asyncio that this needs are the same in Python 3.11, 3.12 and
3.13; where they are missing, asyncio's own turn runs, without measurements.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from asyncio import Handle
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop
from selectors import EVENT_READ, EVENT_WRITE
from time import monotonic  # noqa: TID251 - what asyncio's loops go by
from typing import Any, Protocol, cast

from headwater_broker.runtime.loop_lag import LONG_TURN_S, SLEPT_S, TurnClock

SELECT_MAX_S = 24 * 3600
"""asyncio's own limit: some selectors accept no more."""
SCHEDULED_MIN = 100
"""With more timers than this, cancelled ones are removed when they are over half, as in asyncio."""

# epoll's masks are the same on every Linux; a hang-up or an error counts as both, as in asyncio.
_IN, _OUT = getattr(select, "EPOLLIN", 1), getattr(select, "EPOLLOUT", 4)
_NOT_IN, _NOT_OUT = ~_IN, ~_OUT
_MASKS = {EVENT_READ: _IN, EVENT_WRITE: _OUT, EVENT_READ | EVENT_WRITE: _IN | _OUT}

_NEEDED_ATTRIBUTES = (
    "_ready",
    "_scheduled",
    "_stopping",
    "_debug",
    "_timer_cancelled_count",
    "_clock_resolution",
)
_NEEDED_METHODS = ("_remove_reader", "_remove_writer")


class Poll(Protocol):
    """Wait for events up to `timeout` s (negative: for ever); (descriptor, epoll mask) pairs."""

    def __call__(self, timeout: float, maxevents: int, /) -> Sequence[tuple[int, int]]: ...


class MeasuredLoop(asyncio.SelectorEventLoop):
    """The broker's event loop; `turns` measures its turns."""

    _ready: deque[Handle]
    _scheduled: list[Any]
    _stopping: bool
    _debug: bool
    _timer_cancelled_count: int
    _clock_resolution: float
    _remove_reader: Callable[[object], bool]
    _remove_writer: Callable[[object], bool]

    def __init__(self, *, runs_own_turn: bool = True) -> None:
        """`runs_own_turn`: False runs asyncio's turn, as where its internals are not the known
        ones."""
        selector = selectors.DefaultSelector()
        super().__init__(selector)
        self.turns = TurnClock()
        self.time = monotonic  # type: ignore[method-assign] # asyncio's is a call of this
        self.poll = _poll_of(selector)
        """Waits for events; on virtual time another one may stand here."""
        self._keys = cast("dict[int, selectors.SelectorKey]", vars(selector).get("_fd_to_key"))
        own = vars(self)
        self.runs_own_turn = (
            runs_own_turn
            and isinstance(self._keys, dict)
            and all(name in own for name in _NEEDED_ATTRIBUTES)
            and all(callable(getattr(self, name, None)) for name in _NEEDED_METHODS)
        )
        """False: asyncio's turn runs, without measurements."""

    def close(self) -> None:
        """Close the loop."""
        super().close()
        self.turns.close()

    def _run_once(self) -> None:  # noqa: C901 - a turn stays in one frame
        """End a turn, wait for work, begin the next turn and run its handles."""
        turns = self.turns
        if turns.ends:
            turns.call_ends()
        turns.number += 1
        turns.ended_s = now = monotonic()
        if not self.runs_own_turn or self._debug:
            if turns.ends:
                self.call_soon(int)  # so that the next turn begins at once
            super()._run_once()  # type: ignore[misc]
            turns.began_s = monotonic()  # its real beginning is not known: no length is measured
            return
        if now - turns.began_s > LONG_TURN_S:
            turns.note_long_turn()
        ready, scheduled, keys = self._ready, self._scheduled, self._keys
        if scheduled and (scheduled[0]._cancelled or len(scheduled) > SCHEDULED_MIN):
            scheduled = self._drop_cancelled()
        if ready or self._stopping or turns.ends:
            timeout = 0.0
        elif scheduled:
            timeout = min(max(scheduled[0]._when - now, 0.0), SELECT_MAX_S)
        else:
            timeout = -1.0
        events = self.poll(timeout, len(keys) or 1)
        turns.began_s = began = monotonic()
        if timeout:  # nothing was ready: this is time without work
            turns.idle_s += began - now
        if began >= turns.fresh_until or (timeout and began - now > SLEPT_S):
            turns.sample()
        for fd, mask in events:
            if (key := keys.get(fd)) is None:
                continue
            reader, writer = key.data
            if mask & _NOT_OUT and reader is not None:
                if reader._cancelled:
                    self._remove_reader(key.fileobj)
                else:
                    ready.append(reader)
            if mask & _NOT_IN and writer is not None:
                if writer._cancelled:
                    self._remove_writer(key.fileobj)
                else:
                    ready.append(writer)
        while scheduled and scheduled[0]._when < began + self._clock_resolution:
            handle = heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)
        for _ in range(len(ready)):  # handles that these add belong to the next turn
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _drop_cancelled(self) -> list[Any]:
        """Remove cancelled timers: the first ones, or all of them when there are many."""
        scheduled = self._scheduled
        if SCHEDULED_MIN < len(scheduled) < self._timer_cancelled_count * 2:
            self._scheduled = [handle for handle in scheduled if not handle._cancelled]
            for handle in scheduled:
                handle._scheduled = not handle._cancelled
            heapify(self._scheduled)
            self._timer_cancelled_count = 0
            return self._scheduled
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heappop(scheduled)._scheduled = False
        return scheduled


def _poll_of(selector: selectors.BaseSelector) -> Poll:
    """The poll function of epoll, or of the selector where it is not epoll's."""
    kind, inner = getattr(select, "epoll", None), vars(selector).get("_selector")
    if kind is not None and isinstance(inner, kind):
        return cast("Poll", inner.poll)

    def poll(timeout: float, _maxevents: int) -> Sequence[tuple[int, int]]:
        found = selector.select(None if timeout < 0 else timeout)
        return [(key.fd, _MASKS[events]) for key, events in found]

    return poll
