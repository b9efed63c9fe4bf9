"""`Consumer.poll`, as steps: waits for fetched records, takes them partition after partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from headwater.client.consumer_coordinator import ConsumerCoordinator
from headwater.client.consumer_guard import ConsumerGuard
from headwater.client.consumer_positions import EARLIEST, WAIT_SLICE_S, ConsumerPositions
from headwater.client.core.partition_fetch_state import PartitionFetchState
from headwater.client.errors import ClosedError, IllegalStateError
from headwater.client.steps import Pause, Steps, Whole
from headwater.client.subscription_state import SubscriptionState, SubscriptionType
from headwater.client.topic_watch import SubscriptionGrowth
from headwater.client.values import ConsumerRecord, TopicPartition
from headwater.clock import Clock
from headwater.errors import HeadwaterError

log = logging.getLogger(__name__)

ITERATE_POLL_MS = 500
Poll = Callable[[float], dict[TopicPartition, list[ConsumerRecord]]]
Read = Callable[[PartitionFetchState], int]
"""Takes some records out of a partition's buffer; how many."""


class ConsumerReading:
    """What one `poll` does."""

    def __init__(
        self,
        state: SubscriptionState,
        guard: ConsumerGuard,
        clock: Clock,
        positions: ConsumerPositions,
        coordinator: ConsumerCoordinator | None,
        growth: SubscriptionGrowth,
        wake_fetcher: Callable[[], None],
    ) -> None:
        """`growth` is followed without a `coordinator`."""
        self.records_consumed = 0
        self._state = state
        self._guard = guard
        self._clock = clock
        self._positions = positions
        self._coordinator = coordinator
        self._growth = growth
        self._wake_fetcher = wake_fetcher
        self._is_woken = False

    def wakeup(self) -> None:
        """Make a poll that waits return. Any thread may call it."""
        self._is_woken = True
        self._state.notify()

    def poll(self, timeout_ms: float, read: Read, is_full: Callable[[], bool]) -> Steps[None]:
        """`read` from the partitions until `is_full`; wait for up to `timeout_ms` for records."""
        state = self._state
        if state.type is SubscriptionType.NONE:
            raise IllegalStateError("nothing to poll: subscribe() or assign() first")
        deadline = self._clock.monotonic() + timeout_ms / 1000
        while not self._guard.is_closed:
            if self._coordinator is not None:
                if self._coordinator.is_due():
                    yield Whole(self._coordinator.poll())
            elif self._growth.is_changed:
                self._follow_growth()
            seen = state.version
            if self._gather(read, is_full):
                return
            left = deadline - self._clock.monotonic()
            if left <= 0 or self._is_woken:
                self._is_woken = False
                return
            yield Pause(seen, min(left, WAIT_SLICE_S))

    def iterate(self, poll: Poll, timeout_ms: float | None) -> Iterator[ConsumerRecord]:
        """The records of one `poll` after another, until none came for `timeout_ms`, or `close`.

        They are yielded one by one: what a `break` leaves behind is neither lost nor committed.
        """
        pending, guard = self._state.pending, self._guard
        take = pending.popleft
        last = self._clock.monotonic()
        while not guard.is_closed:
            if pending:
                while pending and not guard.is_closed:
                    yield take()
                last = self._clock.monotonic()
            if guard.is_closed:
                return
            try:
                polled = poll(ITERATE_POLL_MS if timeout_ms is None else min(timeout_ms, 100))
            except ClosedError:  # in this moment, by another thread
                return
            for rows in polled.values():
                pending.extend(rows)
            is_late = timeout_ms is not None and (
                (self._clock.monotonic() - last) * 1000 >= timeout_ms
            )
            if not polled and is_late:
                return

    def _follow_growth(self) -> None:
        """Read partitions that have appeared, from their beginning; drop those that are gone."""
        wanted, order = self._growth.partitions(), self._state.order
        added = sorted(wanted - set(order))
        self._state.assign([*(tp for tp in order if tp in wanted), *added])
        if added:
            self._positions.seek_by_timestamp(added, EARLIEST)
        self._wake_fetcher()
        gone = sum(1 for tp in order if tp not in wanted)
        log.info("subscription: %d partitions added, %d gone", len(added), gone)

    def _gather(self, read: Read, is_full: Callable[[], bool]) -> bool:
        """Read from the partitions in turn; True if there were records.

        The fetcher is woken when there is room for another fetch, or nothing to read: each wake-up
        has it wait for the lock that is held here.
        """
        count, has_room = 0, False
        state = self._state
        with state.condition:
            for entry in [state.partitions[tp] for tp in state.order]:
                if entry.is_paused or not state.reads(entry.topic):
                    continue
                buffered = entry.buffered_bytes
                try:
                    while not is_full() and entry.has_data:
                        count += read(entry)
                except HeadwaterError:
                    if not count:
                        raise
                    break  # the records before it are returned; the next poll meets it again
                finally:
                    has_room |= entry.buffered_bytes != buffered
                if entry.error is not None and not count and not entry.has_data:
                    error, entry.error = entry.error, None
                    raise error
                if is_full():
                    break
            if state.order and count:
                # The next poll begins with another partition, so that each has its turn.
                state.order = [*state.order[1:], state.order[0]]
        self.records_consumed += count
        if has_room or not count:
            self._wake_fetcher()
        return count > 0
