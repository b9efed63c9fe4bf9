"""Parked requests cost O(1) to add, complete and expire, however many there are.

A request waits for *rising numbers* (a partition's high watermark, last stable offset, log end)
to reach a threshold, or for its deadline. Each rising number is a `WatchedOffset`: as thresholds
come in rising order (whoever parks wants more than there is now), it is a queue whose head is the
next to wake. Deadlines sit in buckets of `TICK_MS`, one loop timer per bucket that is in use. A
waiter that completes is only marked; gauges drop the marked ones as they meet them, and sweep
when they are the majority (Kafka's purge interval, without its scan of every key). Gauges that
nobody adds to any more are trimmed from both ends, when more have finished than wait.

Wakes are coalesced: a number that moves marks its gauge, and one drain per loop turn checks the
marked ones, for `TURN_S` or `WAKES_PER_TURN` waiters in a turn, so that no burst stalls the loop.
Whoever made the number move may have a few of them checked at once (`wake_few`).
"""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections import deque
from collections.abc import Callable
from itertools import islice
from operator import itemgetter

TICK_MS = 5
"""Deadlines are rounded up to this."""
WAKES_PER_TURN = 128
"""How many waiters one loop turn may answer."""
WAKES_PER_LOOK = 16
"""So many are answered between two looks at the clock."""
TURN_S = 0.002
"""How long one loop turn may answer waiters: replies that carry errors cost more than others."""
WAKES_AT_ONCE = 4
"""How many waiters may be answered without waiting for the next turn."""
TRIMMED_PER_TURN = 512
"""How many finished waiters one loop turn may drop from gauges that nobody adds to."""
SWEEP_MIN = 1000
"""A gauge with fewer entries than this is never swept (Kafka: purge.interval.requests)."""


logger = logging.getLogger(__name__)


class DelayedOperation:
    """A parked request. Subclasses answer it; `done` is set before they do."""

    __slots__ = ("_bucket", "done")

    def __init__(self) -> None:
        self.done = False
        self._bucket: dict[DelayedOperation, None] | None = None

    def check(self, gauge: WatchedOffset) -> None:
        """The number behind `gauge` reached the threshold: answer, or add to the gauge again."""
        raise NotImplementedError

    def expire(self) -> None:
        """The deadline passed: answer with what there is. Called once, with `done` set."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        """Answering failed in a way nobody foresaw: end the wait of whoever asked. Called once,
        with `done` set."""
        raise NotImplementedError


_threshold = itemgetter(0)


class WatchedOffset:
    """One rising number and who waits for it. `read` gives its current value."""

    __slots__ = ("_due", "_entries", "_purgatory", "_read", "marked")

    def __init__(self, purgatory: Purgatory, read: Callable[[], int]) -> None:
        self._purgatory = purgatory
        self._read = read
        self._entries: deque[tuple[int, DelayedOperation]] = deque()
        self._due = 0
        self.marked = False

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, threshold: int, waiter: DelayedOperation) -> None:
        """Wake `waiter` once the number is at least `threshold`."""
        entries = self._entries
        if not entries:
            self._purgatory.waited.append(self)
        if entries and entries[-1][0] > threshold:
            insort(entries, (threshold, waiter), key=_threshold)
        else:
            entries.append((threshold, waiter))
        if len(entries) >= SWEEP_MIN and len(entries) & (SWEEP_MIN - 1) == 0:
            self.sweep()

    def sweep(self) -> None:
        """Drop answered waiters when they are the majority of a sample of the queue."""
        entries = self._entries
        sample = list(islice(entries, 64))
        if 2 * sum(waiter.done for _, waiter in sample) >= len(sample):
            self._entries = deque(entry for entry in entries if not entry[1].done)

    def trim(self, limit: int) -> int:
        """Drop at most `limit` finished waiters from the ends of the queue; how many went."""
        entries = self._entries
        dropped = 0
        while entries and dropped < limit and entries[0][1].done:
            entries.popleft()
            dropped += 1
        while entries and dropped < limit and entries[-1][1].done:
            entries.pop()
            dropped += 1
        return dropped

    def moved(self, _source: object = None) -> None:
        """The number rose, or its owner changed: check the waiters in the next turn."""
        if not self.marked and self._entries:
            self.marked = True
            self._purgatory.mark(self)

    def all_moved(self) -> None:
        """Whoever waits now must look again, whatever the number: leadership has moved."""
        self._due = len(self._entries)
        self.moved()

    def wake(self, limit: int) -> int:
        """Check at most `limit` waiters whose threshold is reached; how many were checked.

        A waiter that adds itself again asks for more than the value read here, so this ends.
        """
        value = self._read()
        entries = self._entries
        woken = 0
        while entries and woken < limit and (self._due > 0 or entries[0][0] <= value):
            waiter = entries.popleft()[1]
            self._due -= 1
            if not waiter.done:
                try:
                    waiter.check(self)
                except Exception as error:
                    # All others wait behind it. Its own answer comes at its deadline.
                    logger.exception("a parked request could not be looked at")
                    if waiter.done:
                        _give_up(waiter, error)
                entries = self._entries
            woken += 1
        if woken < limit:
            self._due = 0
        return woken


class Purgatory:
    """Every parked request of one kind, on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, dict[DelayedOperation, None]] = {}
        self._marked: deque[WatchedOffset] = deque()
        self._draining = False
        self.waited: list[WatchedOffset] = []
        """Gauges that have had waiters since they were trimmed last; some more than once."""
        self._finished = 0
        self._to_trim: list[WatchedOffset] = []
        self.parked = 0
        self.expired_total = 0

    def park(self, waiter: DelayedOperation, timeout_ms: int) -> None:
        """Call `waiter.expire` after `timeout_ms`, unless `complete` came first."""
        tick = int(self._loop.time() * 1000 + timeout_ms) // TICK_MS + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            self._loop.call_at(tick * TICK_MS / 1000, self._expire_bucket, tick)
        bucket[waiter] = None
        waiter._bucket = bucket
        self.parked += 1

    def complete(self, waiter: DelayedOperation) -> bool:
        """Mark as answered; False when it already was, so that each is answered once."""
        if waiter.done:
            return False
        waiter.done = True
        bucket, waiter._bucket = waiter._bucket, None
        if bucket is not None and bucket.pop(waiter, waiter) is None:
            self.parked -= 1
        self._count_finished(1)
        return True

    def mark(self, gauge: WatchedOffset) -> None:
        """Check `gauge` in the next turn."""
        self._marked.append(gauge)
        if not self._draining:
            self._draining = True
            self._loop.call_soon(self._drain)

    @property
    def has_due_operations(self) -> bool:
        """True when some number moved, and nobody has been told yet."""
        return bool(self._marked)

    def wake_few(self) -> None:
        """Check a few of those that are due, now; the others in the next turn."""
        marked = self._marked
        budget = WAKES_AT_ONCE
        while marked and budget > 0:
            gauge = marked[0]
            woken = gauge.wake(budget)
            budget -= woken or 1
            if budget > 0:
                marked.popleft()
                gauge.marked = False

    def _drain(self) -> None:
        budget = WAKES_PER_TURN
        marked = self._marked
        until = self._loop.time() + TURN_S
        while marked and budget > 0:
            gauge = marked.popleft()
            woken = gauge.wake(WAKES_PER_LOOK)
            budget -= woken or 1
            if woken >= WAKES_PER_LOOK:
                marked.append(gauge)  # perhaps more is due: look again, after the others
            else:
                gauge.marked = False
            if self._loop.time() > until:
                break
        self._draining = bool(marked)
        if marked:
            self._loop.call_soon(self._drain)

    def _expire_bucket(self, tick: int) -> None:
        bucket = self._buckets[tick]
        count = 0
        until = self._loop.time() + TURN_S
        for count, waiter in enumerate(list(islice(bucket, WAKES_PER_TURN)), 1):
            del bucket[waiter]
            self.parked -= 1
            if not waiter.done:
                waiter.done = True
                waiter._bucket = None
                self.expired_total += 1
                try:
                    waiter.expire()
                except Exception as error:
                    logger.exception("a parked request could not be answered")
                    _give_up(waiter, error)
            if count % WAKES_PER_LOOK == 0 and self._loop.time() > until:
                break
        self._count_finished(count)
        if bucket:
            self._loop.call_soon(self._expire_bucket, tick)
        else:
            del self._buckets[tick]

    def _count_finished(self, count: int) -> None:
        self._finished += count
        if self._finished >= SWEEP_MIN and self._finished >= self.parked and not self._to_trim:
            self._finished = 0
            self._to_trim, self.waited = list(dict.fromkeys(self.waited)), []
            if self._to_trim:
                self._loop.call_soon(self._trim)

    def _trim(self) -> None:
        left = TRIMMED_PER_TURN
        while self._to_trim and left > 0:
            gauge = self._to_trim[-1]
            dropped = gauge.trim(left)
            left -= dropped or 1
            if left > 0:
                self._to_trim.pop()
                if gauge:
                    self.waited.append(gauge)
        if self._to_trim:
            self._loop.call_soon(self._trim)
        else:
            self._count_finished(0)  # more may have finished meanwhile


def _give_up(waiter: DelayedOperation, error: Exception) -> None:
    try:
        waiter.fail(error)
    except Exception:  # others still wait to be answered
        logger.exception("nor could its end be told")
