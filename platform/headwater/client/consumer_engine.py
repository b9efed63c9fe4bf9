"""The engine of a consumer: cluster, subscription, fetches, group membership on one loop.

`Consumer` runs it on a thread of its own, `headwater.aio.AsyncConsumer` on the caller's loop. What
a caller waits for is given as steps (`headwater.client.steps`).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from typing import Any

from headwater.client.cluster import Cluster
from headwater.client.consumer_coordinator import (
    ConsumerCoordinator,
    RebalanceListener,
    make_coordinator,
    no_commits,
)
from headwater.client.consumer_guard import ConsumerGuard
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.consumer_positions import ConsumerPositions
from headwater.client.consumer_reading import ConsumerReading
from headwater.client.consumer_statistics import consumer_statistics
from headwater.client.core.partition_fetch_state import PartitionFetchState
from headwater.client.engine_host import EngineHost
from headwater.client.errors import (
    ClosedError,
    InvalidGroupIdError,
    UnknownTopicOrPartitionError,
)
from headwater.client.fetcher import Fetcher
from headwater.client.interceptors import chain_of
from headwater.client.option_rules import function, positive
from headwater.client.outages import OutageLog
from headwater.client.partition_names import PartitionName, named_partitions
from headwater.client.record_decoding import RecordDecoding
from headwater.client.serializers.values import Topic
from headwater.client.steps import Steps, Whole
from headwater.client.subscription_state import SubscriptionState, SubscriptionType
from headwater.client.topic_watch import (
    SubscriptionGrowth,
    TopicWatch,
    checked_pattern,
    checked_topics,
    partition_count,
)
from headwater.client.values import ConsumerRecord, ConsumerStatistics, TopicPartition
from headwater.errors import KafkaError, UsageError

LOADING_POLL_S = 0.005
log = logging.getLogger("headwater.client.consumer")


class ConsumerEngine:
    """The parts of one consumer. `start` and `stop` run on the host's loop."""

    def __init__(self, options: ConsumerOptions, host: EngineHost) -> None:
        self.options = options
        self.host = host
        self.guard = ConsumerGuard()
        self.state = SubscriptionState()
        self._chain = chain_of(options.interceptors)
        self._decoding = RecordDecoding()
        self.cluster = Cluster(
            options.bootstrap_servers,
            options.for_cluster(),
            on_update=lambda: self.growth.on_metadata(),
        )
        self.clock = self.cluster.clock
        self.outages = OutageLog(
            self.clock, log, options.on_error, report_after_s=options.outage_report_ms / 1000
        )
        self._watch = TopicWatch(self.cluster, options)
        self.growth = SubscriptionGrowth(self.cluster, self._watch, self.state.notify)
        self.coordinator = make_coordinator(
            self.cluster, options, self._watch, self.state, host, self._assign
        )
        load = no_commits if self.coordinator is None else self.coordinator.load_committed
        self.fetcher = Fetcher(self.cluster, options, self.state, load)
        self.positions = ConsumerPositions(self.state, self.cluster, options, self._wake_fetcher)
        self.reading = ConsumerReading(
            self.state,
            self.guard,
            self.clock,
            self.positions,
            self.coordinator,
            self.growth,
            self._wake_fetcher,
        )
        self._outage_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Find the brokers. Raises NoBrokersAvailableError."""
        await self.cluster.bootstrap(self.options.bootstrap_timeout_ms)
        self._outage_task = asyncio.create_task(self.outages.run(self._note_outages))

    async def stop(self) -> None:
        """End every task and connection."""
        self.fetcher.stop()
        self.growth.stop()
        if self.coordinator is not None:
            self.coordinator.membership.stop()
        if self._outage_task is not None:
            self._outage_task.cancel()
        while self._decoding.is_loading():  # threads cannot be begun while Python ends
            await asyncio.sleep(LOADING_POLL_S)
        await self.cluster.close()

    def _note_outages(self) -> set[str]:
        found = self.fetcher.note_outages(self.outages)
        if self.coordinator is not None and self.state.is_subscribed:
            found |= self.coordinator.membership.note_outages(self.outages)
        return found

    def _wake_fetcher(self) -> None:
        self.host.post(self.fetcher.wake)

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.state.assign(partitions)
        self._wake_fetcher()

    # --- what to read -------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str | Topic[Any, Any]],
        pattern: str | re.Pattern[str] | None,
        on_assign: RebalanceListener | None,
        on_revoke: RebalanceListener | None,
        on_lost: RebalanceListener | None,
    ) -> Steps[None]:
        """See `Consumer.subscribe`."""
        names = checked_topics(topics)
        compiled = checked_pattern(pattern)
        for listener in (on_assign, on_revoke, on_lost):
            if listener is not None:
                function("a listener", listener)
        if names and compiled is not None:
            raise UsageError("subscribe to topics or to a pattern, not to both")
        if not names and compiled is None:
            yield from self.unsubscribe()
            return
        kind = SubscriptionType.TOPICS if compiled is None else SubscriptionType.PATTERN
        self.state.set_type(kind)
        self.state.subscribe(names)
        self._watch.subscribe(names, compiled)
        if self.coordinator is not None:
            self.coordinator.subscribe(on_assign, on_revoke, on_lost)
            return
        try:
            yield self.growth.start(names, auto_create=self.options.allow_auto_create_topics)
        except BaseException:
            yield from self.unsubscribe()
            raise
        self._assign(sorted(self.growth.partitions()))

    def assign(self, partitions: Iterable[PartitionName]) -> Steps[None]:
        """See `Consumer.assign`."""
        wanted = named_partitions(partitions)
        if self.state.is_subscribed:
            self.state.set_type(SubscriptionType.ASSIGNED)
        for tp in wanted:
            count = yield self.partitions_for(tp.topic)
            if not 0 <= tp.partition < count:
                raise UnknownTopicOrPartitionError(
                    f"{tp.topic}-{tp.partition}: the topic has partitions 0 to {count - 1}"
                )
        self.state.type = SubscriptionType.ASSIGNED if wanted else SubscriptionType.NONE
        self._assign(wanted)

    def unsubscribe(self) -> Steps[None]:
        """See `Consumer.unsubscribe`."""
        try:
            if self.coordinator is not None and self.state.is_subscribed:
                yield Whole(self.coordinator.leave("unsubscribed"))
        finally:
            self.host.post(self.growth.stop)
            self.state.type = SubscriptionType.NONE
            self._assign([])

    async def partitions_for(self, topic: str) -> int:
        """See `Consumer.partitions_for`; on the loop."""
        (name,) = checked_topics([topic])
        return await partition_count(self.cluster, name)

    # --- reading and the group ----------------------------------------------------------------

    def poll(
        self, timeout_ms: float, max_records: int | None
    ) -> Steps[dict[TopicPartition, list[ConsumerRecord]]]:
        """See `Consumer.poll`."""
        if max_records is None:
            limit = self.options.max_poll_records
        else:
            limit = positive("max_records", max_records)
        out: dict[TopicPartition, list[ConsumerRecord]] = {}
        for row in self.state.take_pending(limit):
            out.setdefault(TopicPartition(row.topic, row.partition), []).append(row)
        if out:
            return out
        left, check_crcs, decode = limit, self.options.check_crcs, self._decoding

        def read(entry: PartitionFetchState) -> int:
            nonlocal left
            rows = entry.next_records(left, check_crcs=check_crcs, decode=decode)
            if rows:
                out.setdefault(TopicPartition(entry.topic, entry.partition), []).extend(rows)
                left -= len(rows)
            return len(rows)

        yield from self.reading.poll(timeout_ms, read, lambda: left <= 0)
        if self._chain is not None:
            heard = {tp: self._chain.on_records(rows) for tp, rows in out.items()}
            return {tp: rows for tp, rows in heard.items() if rows}
        return out

    def poll_decoded(
        self,
        decode: Callable[..., Any],
        max_records: int,
        timeout_ms: float,
    ) -> Steps[list[Any]]:
        """Whole fetches, decoded, until there are `max_records` rows; see `Consumer.poll_arrow`."""
        limit = positive("max_records", max_records)
        self.state.give_back(self.state.partitions)
        parts: list[Any] = []
        count = 0

        def read(entry: PartitionFetchState) -> int:
            nonlocal count
            rows = entry.next_decoded(decode)
            if rows is None:
                return 0
            if rows.num_rows:
                parts.append(rows)
                count += rows.num_rows
            return int(rows.num_rows)

        yield from self.reading.poll(timeout_ms, read, lambda: count >= limit)
        return parts

    def group(self) -> ConsumerCoordinator:
        """The group's side. Raises InvalidGroupIdError without a `group_id`."""
        if self.coordinator is None:
            raise InvalidGroupIdError("this consumer has no group_id")
        return self.coordinator

    def statistics(self) -> ConsumerStatistics:
        """See `Consumer.statistics`."""
        return consumer_statistics(
            self.state,
            self.options,
            self.fetcher.counters,
            None if self.coordinator is None else self.coordinator.membership,
            self.outages,
            self.reading.records_consumed,
        )

    def leave(self) -> Steps[None]:
        """The end: commit if that is automatic, and leave the group. Errors are logged."""
        if self.coordinator is None:
            return
        try:
            if self.state.is_subscribed:
                with self.guard.leaving():
                    yield Whole(self.coordinator.leave("the consumer is closed"))
            else:
                yield from self.coordinator.commit_automatically()
        except (KafkaError, ClosedError) as e:
            log.warning("closing the consumer: %s", e)
