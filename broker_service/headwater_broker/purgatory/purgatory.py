"""Purgatory for delayed operations: adding, completing and expiring each cost O(1) (Kafka's term).

An operation waits for *watched offsets* of a partition (high watermark, last stable offset, log
end) to reach a threshold, or for its timeout. Thresholds arrive in rising order, because a new
operation asks for more than there is now: so a `WatchedOffset` is a queue whose head is due next.
Timeouts lie in buckets of `TICK_MS`, with one loop timer per bucket in use. A completed operation
is only marked; watched offsets drop marked operations as they meet them, and sweep when these are
the majority (Kafka's purge interval, without its scan of every key). Watched offsets that nothing
is added to any more are trimmed from both ends, once more operations have finished than wait.

Wake-ups are coalesced: an offset that moves is marked, and one drain per loop turn tries the
operations of the marked offsets, for `TURN_S` or `WAKES_PER_TURN` operations, so that no burst
stalls the loop. The code that moved an offset may have a few tried at once (`wake_few`).
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
"""Timeouts are rounded up to this."""
WAKES_PER_TURN = 128
"""Operations that one loop turn may complete."""
WAKES_PER_LOOK = 16
"""Operations completed between two looks at the clock."""
TURN_S = 0.002
"""How long one loop turn may complete operations: replies with errors cost more than others."""
WAKES_AT_ONCE = 4
"""Operations that may be completed without waiting for the next turn."""
TRIMMED_PER_TURN = 512
"""Finished operations that one loop turn may drop from offsets that nothing is added to."""
SWEEP_MIN = 1000
"""A queue with fewer entries than this is never swept (Kafka: purge.interval.requests)."""


logger = logging.getLogger(__name__)


class DelayedOperation:
    """An operation that waits in a purgatory. Subclasses complete it; `done` is set before."""

    __slots__ = ("_bucket", "done")

    def __init__(self) -> None:
        self.done = False
        self._bucket: dict[DelayedOperation, None] | None = None

    def try_complete(self, watched: WatchedOffset) -> None:
        """`watched` has reached the threshold: complete, or add to a watched offset again."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """The timeout has passed: answer with what there is. Called once, with `done` set."""
        raise NotImplementedError

    def on_failure(self, error: Exception) -> None:
        """Completing raised an unexpected error: end the wait. Called once, with `done` set."""
        raise NotImplementedError


_threshold = itemgetter(0)


class WatchedOffset:
    """One rising offset and the operations that wait for it. `read` returns its current value."""

    __slots__ = ("_due", "_entries", "_purgatory", "_read", "marked")

    def __init__(self, purgatory: Purgatory, read: Callable[[], int]) -> None:
        self._purgatory = purgatory
        self._read = read
        self._entries: deque[tuple[int, DelayedOperation]] = deque()
        self._due = 0
        self.marked = False

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def value(self) -> int:
        """The present value of the offset."""
        return self._read()

    def add(self, threshold: int, operation: DelayedOperation) -> None:
        """Try `operation` once the offset is at least `threshold`."""
        entries = self._entries
        if not entries:
            self._purgatory.waited.append(self)
        if entries and entries[-1][0] > threshold:
            insort(entries, (threshold, operation), key=_threshold)
        else:
            entries.append((threshold, operation))
        if len(entries) >= SWEEP_MIN and len(entries) & (SWEEP_MIN - 1) == 0:
            self.sweep()

    def sweep(self) -> None:
        """Drop finished operations when they are the majority of a sample of the queue."""
        entries = self._entries
        sample = list(islice(entries, 64))
        if 2 * sum(operation.done for _, operation in sample) >= len(sample):
            self._entries = deque(entry for entry in entries if not entry[1].done)

    def trim(self, limit: int) -> int:
        """Drop at most `limit` finished operations from the ends of the queue; return how many."""
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
        """The offset rose, or its owner changed: try the operations in the next turn."""
        if not self.marked and self._entries:
            self.marked = True
            self._purgatory.mark(self)

    def all_moved(self) -> None:
        """Try every operation, whatever the offset: leadership has changed."""
        self._due = len(self._entries)
        self.moved()

    def wake(self, limit: int) -> int:
        """Try at most `limit` operations whose threshold is reached; return how many were tried.

        An operation that adds itself again asks for more than the value read here, so this ends.
        """
        value = self._read()
        entries = self._entries
        woken = 0
        while entries and woken < limit and (self._due > 0 or entries[0][0] <= value):
            operation = entries.popleft()[1]
            self._due -= 1
            if not operation.done:
                try:
                    operation.try_complete(self)
                except Exception as error:
                    # The operations behind it go on. This one ends at its timeout, if not here.
                    logger.exception("a delayed operation could not be tried")
                    if operation.done:
                        _fail(operation, error)
                entries = self._entries
            woken += 1
        if woken < limit:
            self._due = 0
        return woken


class Purgatory:
    """The delayed operations of one kind, on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, dict[DelayedOperation, None]] = {}
        self._marked: deque[WatchedOffset] = deque()
        self._draining = False
        self.waited: list[WatchedOffset] = []
        """Offsets that have had operations since the last trim; some more than once."""
        self._finished = 0
        self._to_trim: list[WatchedOffset] = []
        self.parked = 0
        self.expired_total = 0

    def park(self, operation: DelayedOperation, timeout_ms: int) -> None:
        """Expire `operation` after `timeout_ms`, unless `complete` is called before."""
        tick = int(self._loop.time() * 1000 + timeout_ms) // TICK_MS + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            self._loop.call_at(tick * TICK_MS / 1000, self._expire_bucket, tick)
        bucket[operation] = None
        operation._bucket = bucket
        self.parked += 1

    def complete(self, operation: DelayedOperation) -> bool:
        """Mark as done; False when it was done already, so that each is answered once."""
        if operation.done:
            return False
        operation.done = True
        bucket, operation._bucket = operation._bucket, None
        if bucket is not None and bucket.pop(operation, operation) is None:
            self.parked -= 1
        self._count_finished(1)
        return True

    def mark(self, watched: WatchedOffset) -> None:
        """Try the operations of `watched` in the next turn."""
        self._marked.append(watched)
        if not self._draining:
            self._draining = True
            self._loop.call_soon(self._drain)

    @property
    def has_due_operations(self) -> bool:
        """True when an offset has moved and its operations have not been tried yet."""
        return bool(self._marked)

    def recheck_all(self) -> None:
        """Try every operation: rights have changed."""
        for watched in dict.fromkeys((*self.waited, *self._to_trim)):
            watched.all_moved()

    def wake_few(self) -> None:
        """Try a few of the due operations now; the others are tried in the next turn."""
        marked = self._marked
        budget = WAKES_AT_ONCE
        while marked and budget > 0:
            watched = marked[0]
            woken = watched.wake(budget)
            budget -= woken or 1
            if budget > 0:
                marked.popleft()
                watched.marked = False

    def _drain(self) -> None:
        budget = WAKES_PER_TURN
        marked = self._marked
        until = self._loop.time() + TURN_S
        while marked and budget > 0:
            watched = marked.popleft()
            woken = watched.wake(WAKES_PER_LOOK)
            budget -= woken or 1
            if woken >= WAKES_PER_LOOK:
                marked.append(watched)  # more may be due: try again after the others
            else:
                watched.marked = False
            if self._loop.time() > until:
                break
        self._draining = bool(marked)
        if marked:
            self._loop.call_soon(self._drain)

    def _expire_bucket(self, tick: int) -> None:
        bucket = self._buckets[tick]
        count = 0
        until = self._loop.time() + TURN_S
        for count, operation in enumerate(list(islice(bucket, WAKES_PER_TURN)), 1):
            del bucket[operation]
            self.parked -= 1
            if not operation.done:
                operation.done = True
                operation._bucket = None
                self.expired_total += 1
                try:
                    operation.on_expiration()
                except Exception as error:
                    logger.exception("a delayed operation could not be expired")
                    _fail(operation, error)
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
            watched = self._to_trim[-1]
            dropped = watched.trim(left)
            left -= dropped or 1
            if left > 0:
                self._to_trim.pop()
                if watched:
                    self.waited.append(watched)
        if self._to_trim:
            self._loop.call_soon(self._trim)
        else:
            self._count_finished(0)  # more may have finished meanwhile


def _fail(operation: DelayedOperation, error: Exception) -> None:
    try:
        operation.on_failure(error)
    except Exception:  # the other operations go on
        logger.exception("a delayed operation could not be failed")
