"""The engine of a share consumer: cluster, membership, share sessions on one loop.

`ShareConsumer` runs it on a thread of its own, `headwater.aio.AsyncShareConsumer` on the caller's
loop. What a caller waits for is given as steps (`headwater.client.steps`). Records are taken in the
last step, with nothing to wait for behind it: a caller that is cancelled leaves them acquired and
buffered, for the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from headwater.client.change_signal import ChangeSignal
from headwater.client.cluster import Cluster
from headwater.client.consumer_guard import ConsumerGuard
from headwater.client.consumer_positions import WAIT_SLICE_S
from headwater.client.core.share_consumer import ShareConsumerState
from headwater.client.core.share_member import ShareMember
from headwater.client.engine_host import EngineHost
from headwater.client.errors import IllegalStateError, KafkaTimeoutError
from headwater.client.interceptors import chain_of
from headwater.client.option_rules import positive
from headwater.client.outages import OutageLog
from headwater.client.partition_names import PartitionName, named_partition
from headwater.client.serializers.values import Topic
from headwater.client.share_fetcher import ShareFetcher
from headwater.client.share_membership import ShareMembership
from headwater.client.share_options import ShareConsumerOptions
from headwater.client.share_values import (
    AcknowledgementResult,
    AcknowledgeType,
    ShareConsumerStatistics,
    ShareRecord,
)
from headwater.client.steps import Pause, Steps, call_listener
from headwater.client.topic_watch import checked_topics
from headwater.client.values import TopicPartition
from headwater.errors import KafkaError, UsageError

COMMIT_SLICE_S = 0.5
FLUSH_INTERVAL_S = 1.0
"""While buffered records are returned, acknowledgements of those before are sent so often."""
AcknowledgementCallback = Callable[[list[AcknowledgementResult]], object]
Commits = dict[TopicPartition, KafkaError | None]

log = logging.getLogger("headwater.client.share_consumer")


class ShareEngine:
    """The parts of one share consumer. `start` and `stop` run on the host's loop."""

    def __init__(self, options: ShareConsumerOptions, host: EngineHost) -> None:
        self.options = options
        self.host = host
        self.guard = ConsumerGuard()
        self.changes = ChangeSignal()
        self.cluster = Cluster(options.bootstrap_servers, options.for_cluster())
        self.clock = self.cluster.clock
        self.outages = OutageLog(
            self.clock, log, options.on_error, report_after_s=options.outage_report_ms / 1000
        )
        self.member = ShareMember(options.group_id, self.cluster.entropy, options.client_rack)
        self.state = ShareConsumerState(
            options.group_id,
            self.member.member_id,
            is_explicit=options.share_acknowledgement_mode,
            check_crcs=options.check_crcs,
        )
        self.fetcher = ShareFetcher(self.cluster, options, self.member, self.state, self.changes)
        self.membership = ShareMembership(
            self.cluster, options, self.member, self.fetcher.wake, self._failed
        )
        self.callback: AcknowledgementCallback | None = None
        self._chain = chain_of(options.interceptors)
        self._is_woken = False
        self._flushed_at = 0.0
        self._outage_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Find the brokers. Raises NoBrokersAvailableError."""
        await self.cluster.bootstrap(self.options.bootstrap_timeout_ms)
        self._outage_task = asyncio.create_task(self.outages.run(self._note_outages))

    async def stop(self) -> None:
        """End every task and connection."""
        self.membership.stop()
        self.fetcher.stop()
        if self._outage_task is not None:
            self._outage_task.cancel()
        await self.cluster.close()

    def _note_outages(self) -> set[str]:
        found = self.membership.note_outages(self.outages)
        return found | self.fetcher.note_outages(self.outages)

    def _failed(self, error: Exception) -> None:
        with self.changes.condition:
            self.state.failure = error
            self.changes.notify_locked()

    # --- what to read -------------------------------------------------------------------------

    def subscribe(self, topics: str | Iterable[str | Topic[Any, Any]]) -> Steps[None]:
        """See `ShareConsumer.subscribe`."""
        names = tuple(dict.fromkeys(checked_topics(topics)))
        if not names:
            yield from self.unsubscribe()
            return
        self.member.subscribe(names)
        with self.changes.condition:
            self.state.subscribe(names)
        self.membership.last_poll = self.clock.monotonic()
        self.host.post(self.membership.start)

    def unsubscribe(self) -> Steps[None]:
        """See `ShareConsumer.unsubscribe`."""
        if self.member.topics:
            self.member.subscribe(())
            yield self._leave()
            yield from self._tell_results()

    async def _leave(self) -> None:
        self.membership.stop()
        await self.fetcher.close_sessions()
        await self.membership.leave()

    def leave(self) -> Steps[None]:
        """The end: acknowledgements that were made are sent, what else is acquired is released."""
        yield from self.unsubscribe()

    # --- reading ------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make a poll that waits return. Any thread may call it."""
        self._is_woken = True
        self.changes.notify()

    def limit(self, max_records: int | None) -> int:
        """`max_records` as given, or the option. Raises OptionError, UsageError."""
        if max_records is None:
            return self.options.max_poll_records
        return positive("max_records", max_records)

    def take(
        self, timeout_ms: float, limit: int, *, flush: bool = True
    ) -> Steps[list[ShareRecord]]:
        """Up to `limit` records, which are the caller's from now on."""
        yield from self.wait(timeout_ms, limit, flush=flush)
        with self.changes.condition:
            rows = self.state.take(limit, self.clock.monotonic())
        if self._chain is None or not rows:
            return rows
        heard = [r for r in self._chain.on_records([*rows]) if isinstance(r, ShareRecord)]
        with self.changes.condition:
            self.state.accept_left_out(rows, heard)
        return heard

    def wait(self, timeout_ms: float, limit: int, *, flush: bool = True) -> Steps[None]:
        """Wait until records can be taken, at most for `timeout_ms`; the records before are
        acknowledged (implicit mode), or have to be (explicit mode)."""
        state, fetcher = self.state, self.fetcher
        now = self.clock.monotonic()
        self._began(now)
        yield from self._tell_results()
        deadline, is_new = now + timeout_ms / 1000, True
        while not self.guard.is_closed:
            now = self.clock.monotonic()
            with self.changes.condition:
                seen = self.changes.version
                is_ready = bool(state.peek(1, now))
                if is_ready:
                    fetcher.ask_no_more()
                    if flush or now - self._flushed_at >= FLUSH_INTERVAL_S:
                        self._flushed_at = now
                        is_flushing = state.flush()
                    else:
                        is_flushing = False
                else:
                    fetcher.ask(limit, deadline, is_new=is_new)
                    is_new = False
                    is_flushing = state.flush()
            if not is_ready or is_flushing:
                self.host.post(fetcher.wake)
            if is_ready:
                return
            left = deadline - now
            if left <= 0 or self._is_woken:
                self._is_woken = False
                return
            yield Pause(seen, min(left, WAIT_SLICE_S))

    def _began(self, now: float) -> None:
        """A poll begins. Raises IllegalStateError."""
        if not self.member.topics:
            raise IllegalStateError("nothing to poll: subscribe() first")
        self.membership.last_poll = now
        with self.changes.condition:
            if self.state.is_explicit:
                self.state.check_settled()
            else:
                self.state.accept_held()
        if not self.member.is_joined:
            self.host.post(self.membership.start)

    # --- acknowledgements ---------------------------------------------------------------------

    def acknowledge(self, record: Any, kind: AcknowledgeType) -> None:
        """See `ShareConsumer.acknowledge`."""
        self._check_explicit()
        if not isinstance(kind, AcknowledgeType):
            raise UsageError(f"type is {kind!r}: give a member of AcknowledgeType")
        self.settle(TopicPartition(record.topic, record.partition), record.offset, kind)

    def acknowledge_offset(
        self, partition: PartitionName, offset: int, kind: AcknowledgeType
    ) -> None:
        """See `ShareConsumer.acknowledge_offset`."""
        self._check_explicit()
        self.settle(named_partition(partition), offset, kind)

    def _check_explicit(self) -> None:
        if not self.state.is_explicit:
            raise IllegalStateError(
                "this consumer accepts by itself: give it share_acknowledgement_mode='explicit'"
            )

    def settle(self, partition: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record, whatever the mode."""
        with self.changes.condition:
            self.state.acknowledge(partition, offset, kind)

    def commit_async(self) -> None:
        """See `ShareConsumer.commit_async`."""
        with self.changes.condition:
            if not self.state.is_explicit:
                self.state.accept_held()
            is_flushing = self.state.flush()
        if is_flushing:
            self.host.post(self.fetcher.wake)

    def commit(self, timeout_ms: float | None) -> Steps[Commits]:
        """See `ShareConsumer.commit`."""
        state = self.state
        limit_ms = self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self.clock.monotonic() + limit_ms / 1000
        with self.changes.condition:
            collector = state.collect()
        try:
            self.commit_async()
            while True:
                with self.changes.condition:
                    seen, waiting = self.changes.version, state.unsettled
                    is_flushing = state.flush()
                if is_flushing:
                    self.host.post(self.fetcher.wake)
                left = deadline - self.clock.monotonic()
                if not waiting:
                    break
                if left <= 0:
                    for tp in waiting:
                        text = f"{tp.topic}-{tp.partition}: no answer within {limit_ms:g} ms"
                        collector[tp] = collector.get(tp) or KafkaTimeoutError(text)
                    break
                yield Pause(seen, min(left, COMMIT_SLICE_S))
        finally:
            with self.changes.condition:
                state.end_collect(collector)
        yield from self._tell_results()
        return dict(sorted(collector.items()))

    def _tell_results(self) -> Steps[None]:
        """Call the callback with what is new."""
        with self.changes.condition:
            results = list(self.state.results)
            self.state.results.clear()
        if not results:
            return
        if self.callback is None:
            for result in results:
                if result.error is not None:
                    log.warning("%d records may come again: %s", len(result.offsets), result.error)
            return
        yield from call_listener(self.callback, results)

    def statistics(self) -> ShareConsumerStatistics:
        """See `ShareConsumer.statistics`."""
        state = self.state
        with self.changes.condition:
            return ShareConsumerStatistics(
                records_consumed=state.consumed,
                records_held=state.held_count,
                records_lapsed=state.lapsed,
                acknowledgements=state.acknowledged,
                acknowledgements_failed=state.refused,
                fetches=state.fetches,
                assigned=self.fetcher.assigned(),
                outages=self.outages.outages(),
            )
