"""`Consumer`: records from topics, by group, by assignment, or as Arrow.

    with Consumer("flights", bootstrap_servers="127.0.0.1:9092", group_id="delays") as consumer:
        for record in consumer:
            print(record.offset, record.value)

A background thread fetches ahead; decoding and rebalances happen in the caller's `poll`. One
thread at a time may use a consumer; another may `wakeup` or `close` it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from headwater.client import consumer_options
from headwater.client.addresses import parse_bootstrap
from headwater.client.cluster import Cluster, ClusterOptions
from headwater.client.consumer_positions import POLL_SLICE_S, PositionCalls
from headwater.client.core.classic_group import GroupMachine
from headwater.client.core.fetching import PartitionFetch
from headwater.client.errors import (
    ClosedError,
    IllegalStateError,
    InvalidGroupIdError,
    UnknownTopicOrPartitionError,
)
from headwater.client.fetcher import Fetcher
from headwater.client.group_membership import Membership
from headwater.client.loop_thread import LoopThread
from headwater.client.values import (
    ConsumerRecord,
    OffsetAndMetadata,
    TopicPartition,
)
from headwater.errors import HeadwaterError, KafkaError, UsageError

ITERATE_POLL_MS = 500
CLOSE_TIMEOUT_S = 10.0
AUTO_COMMIT_TIMEOUT_MS = 5_000

log = logging.getLogger(__name__)

RebalanceListener = Callable[[list[TopicPartition]], None]
Offsets = Mapping[TopicPartition | tuple[str, int], OffsetAndMetadata | int]


class Consumer(PositionCalls):
    """Reads records. Raises NoBrokersAvailableError when the cluster cannot be reached.

    Options are Kafka's, in `headwater.client.consumer_options.ConsumerOptions`: group_id,
    auto_offset_reset ("latest", "earliest", "none"), isolation_level ("read_committed",
    "read_uncommitted"), enable_auto_commit, partition_assignment_strategy, ...
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        **options: Any,
    ) -> None:
        self._options = consumer_options.parse(options)
        addresses = parse_bootstrap(bootstrap_servers)
        self._condition = threading.Condition()
        self._user = threading.Lock()
        self._is_closed = False
        self._woken = False
        self._subscribed = False
        self._on_assign: RebalanceListener | None = None
        self._on_revoke: RebalanceListener | None = None
        self._join: concurrent.futures.Future[list[TopicPartition]] | None = None
        self._order: list[TopicPartition] = []
        self._pending: deque[ConsumerRecord] = deque()
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._thread = LoopThread(self._options.client_id)
        self._cluster = Cluster(
            addresses,
            ClusterOptions(
                client_id=self._options.client_id,
                request_timeout_ms=self._options.request_timeout_ms,
                retry_backoff_ms=self._options.retry_backoff_ms,
                metadata_max_age_ms=self._options.metadata_max_age_ms,
                default_api_timeout_ms=self._options.default_api_timeout_ms,
            ),
        )
        self._clock = self._cluster.clock
        self._next_commit = 0.0
        self._membership = self._make_membership()
        fetch = consumer_options.fetch_options(self._options)
        self._fetcher = Fetcher(self._cluster, fetch, self._condition, self._load_committed)
        try:
            self._thread.call(self._cluster.bootstrap(self._options.bootstrap_timeout_ms))
            if topics:
                self.subscribe(topics)
        except BaseException:
            self._shut()
            raise

    def _make_membership(self) -> Membership | None:
        options = self._options
        if options.group_id is None:
            return None
        machine = GroupMachine(
            options.group_id,
            consumer_options.assignors(options),
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.max_poll_interval_ms,
            group_instance_id=options.group_instance_id,
        )
        return Membership(
            self._cluster,
            machine,
            heartbeat_interval_ms=options.heartbeat_interval_ms,
            rebalance_timeout_ms=options.max_poll_interval_ms,
            max_poll_interval_ms=options.max_poll_interval_ms,
            on_change=self._notify,
        )

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _notify(self) -> None:
        with self._condition:
            self._condition.notify_all()

    # --- what to read -------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assign: RebalanceListener | None = None,
        on_revoke: RebalanceListener | None = None,
    ) -> None:
        """Read these topics (replaces an earlier list; empty: unsubscribe), or all that match.

        With a group the members share the partitions; without one this consumer reads them all.
        The listeners are called from `poll`, before partitions go and after they came.
        """
        self._check_open()
        names = [topics] if isinstance(topics, str) else list(topics)
        if any(not n or not n.strip() for n in names):
            raise UsageError("subscribe: a topic name is empty")
        if not names and pattern is None:
            self.unsubscribe()
            return
        if self._order and not self._subscribed:
            raise IllegalStateError("partitions are assigned by hand: unsubscribe() first")
        self._on_assign, self._on_revoke = on_assign, on_revoke
        self._subscribed = True
        compiled = None if pattern is None else re.compile(pattern)
        if self._membership is not None:
            self._membership.subscribe(names, compiled)
        else:
            self._set_assignment(self._all_partitions(names, compiled))

    def _all_partitions(
        self, names: list[str], pattern: re.Pattern[str] | None
    ) -> list[TopicPartition]:
        cache = self._cluster.cache
        self._thread.call(self._cluster.refresh(None if pattern else names, auto_create=True))
        if pattern is not None:
            names = [t for t in cache.topics if pattern.fullmatch(t)]
        out = []
        for name in names:
            out += [TopicPartition(name, p) for p in range(self.partitions_for(name))]
        return out

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions; no group balancing."""
        self._check_open()
        if self._subscribed:
            raise IllegalStateError("topics are subscribed: unsubscribe() first")
        wanted = [TopicPartition(*tp) for tp in partitions]
        for tp in wanted:
            count = self.partitions_for(tp.topic)
            if not 0 <= tp.partition < count:
                raise UnknownTopicOrPartitionError(
                    f"{tp.topic}-{tp.partition}: the topic has partitions 0 to {count - 1}"
                )
        self._set_assignment(wanted)

    def unsubscribe(self) -> None:
        """Give everything up; a group is left at once."""
        if self._membership is not None and self._subscribed:
            self._cancel_join()
            self._commit_quietly()
            self._thread.call(self._membership.leave("unsubscribed"), CLOSE_TIMEOUT_S)
            self._membership.rejoin_needed = True
        self._subscribed = False
        self._set_assignment([])

    def _set_assignment(self, partitions: list[TopicPartition]) -> None:
        with self._condition:
            entries = self._fetcher.partitions
            self._fetcher.partitions = {
                tp: entries.get(tp) or PartitionFetch(*tp) for tp in partitions
            }
            self._order = list(partitions)
            self._pending = deque(r for r in self._pending if r[:2] in partitions)
            self._committed = {tp: o for tp, o in self._committed.items() if tp in partitions}
        self._poke()

    def assignment(self) -> list[TopicPartition]:
        """The partitions read now."""
        return sorted(self._order)

    def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has. Raises UnknownTopicOrPartitionError."""
        return self._thread.call(
            consumer_options.partition_count(self._cluster, topic),
            self._options.default_api_timeout_ms / 1000,
        )

    # --- reading ------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to `max_records` records by partition; empty when time is up. Raises typed errors."""
        limit = max_records or self._options.max_poll_records
        out: dict[TopicPartition, list[ConsumerRecord]] = {}

        def take(entry: PartitionFetch) -> int:
            rows = entry.take(limit, check_crcs=self._options.check_crcs)
            if rows:
                out.setdefault(TopicPartition(entry.topic, entry.partition), []).extend(rows)
            return len(rows)

        self._poll(timeout_ms, take, lambda: sum(map(len, out.values())) >= limit)
        return out

    def poll_arrow(self, max_records: int = 1_000_000, timeout_ms: float = 1000) -> Any:
        """The next records as one pyarrow.RecordBatch with Kafka's columns; empty when time is up.

        Takes whole fetched chunks until there are `max_records` rows, so it may give some more.
        Needs the `arrow` extra.
        """
        from headwater.client import table as tables  # noqa: PLC0415 - optional extra

        parts: list[Any] = []
        count = 0

        def take(entry: PartitionFetch) -> int:
            nonlocal count
            rows = entry.take_decoded(tables.chunk_to_arrow)
            if rows is None:
                return 0
            if rows.num_rows:
                parts.append(rows)
                count += rows.num_rows
            return int(rows.num_rows)

        self._poll(timeout_ms, take, lambda: count >= max_records)
        return tables.join_batches(parts)

    def _poll(
        self, timeout_ms: float, take: Callable[[PartitionFetch], int], full: Callable[[], bool]
    ) -> None:
        if not self._user.acquire(blocking=False):
            raise IllegalStateError("a consumer is for one thread at a time")
        try:
            self._check_open()
            if not self._subscribed and not self._order:
                raise IllegalStateError("nothing to poll: subscribe() or assign() first")
            deadline = self._clock.monotonic() + timeout_ms / 1000
            while True:
                self._coordinate()
                if self._gather(take, full):
                    return
                left = deadline - self._clock.monotonic()
                if left <= 0 or self._woken:
                    self._woken = False
                    return
                with self._condition:
                    if not self._has_news():
                        self._condition.wait(min(left, POLL_SLICE_S))
        finally:
            self._user.release()

    def _has_news(self) -> bool:
        entries = self._fetcher.partitions.values()
        return any(not e.is_paused and (e.has_data or e.error) for e in entries)

    def _gather(self, take: Callable[[PartitionFetch], int], full: Callable[[], bool]) -> bool:
        """Take from partitions in turn; True when anything was taken."""
        got = 0
        with self._condition:
            entries = [self._fetcher.partitions[tp] for tp in self._order]
            for entry in entries:
                if entry.is_paused:
                    continue
                try:
                    while not full() and entry.has_data:
                        got += take(entry)
                except HeadwaterError:
                    if not got:
                        raise
                    break  # what was taken is given; the next poll meets the error again
                if entry.error is not None and not got and not entry.has_data:
                    error, entry.error = entry.error, None
                    raise error
                if full():
                    break
            if self._order and got:
                # The next poll starts with another partition, so that none starves.
                self._order = [*self._order[1:], self._order[0]]
        self._poke()
        return got > 0

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records for ever, or until `consumer_timeout_ms` passes without any, or `close`."""
        limit = self._options.consumer_timeout_ms
        last = self._clock.monotonic()
        while not self._is_closed:
            # Given out one by one: what a `break` leaves behind is neither lost nor committed.
            while self._pending and not self._is_closed:
                yield self._pending.popleft()
                last = self._clock.monotonic()
            if self._is_closed:
                return
            polled = self.poll(ITERATE_POLL_MS if limit is None else min(limit, 100))
            for rows in polled.values():
                self._pending.extend(rows)
            if (
                not polled
                and limit is not None
                and (self._clock.monotonic() - last) * 1000 >= limit
            ):
                return

    def wakeup(self) -> None:
        """Make a waiting `poll` return; for another thread to call."""
        self._woken = True
        self._notify()

    # --- the group ----------------------------------------------------------------------------

    def _group(self) -> Membership:
        if self._membership is None:
            raise InvalidGroupIdError("this consumer has no group_id")
        return self._membership

    async def _load_committed(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if self._membership is None:
            return {}
        return await self._membership.committed(partitions, self._options.default_api_timeout_ms)

    def _coordinate(self) -> None:
        """Rebalance when asked to, take in a finished join, commit when it is time."""
        member = self._membership
        if member is None:
            return
        member.last_poll = self._clock.monotonic()
        if self._subscribed:
            if self._join is None and member.rejoin_needed:
                self._start_join(member)
            if self._join is not None and self._join.done():
                join, self._join = self._join, None
                self._finish_join(member, join.result())
        if self._options.enable_auto_commit and self._clock.monotonic() >= self._next_commit:
            self._next_commit = (
                self._clock.monotonic() + self._options.auto_commit_interval_ms / 1000
            )
            self._commit_quietly()

    def _start_join(self, member: Membership) -> None:
        """Commit and, unless cooperative, give up everything; then join in the background."""
        self._commit_quietly()
        if not member.machine.is_cooperative and self._order:
            self._revoke(list(self._order), keep=[])
        work = member.join(list(self._order))
        self._join = asyncio.run_coroutine_threadsafe(work, self._thread.loop)
        self._join.add_done_callback(lambda _: self._notify())

    def _finish_join(self, member: Membership, assigned: list[TopicPartition]) -> None:
        gone = [tp for tp in self._order if tp not in assigned]
        new = [tp for tp in assigned if tp not in self._order]
        if gone:
            self._commit_quietly()
            self._revoke(gone, keep=[tp for tp in self._order if tp in assigned])
            # What was given up goes to others in a second rebalance (KIP-429).
            member.rejoin_needed = member.rejoin_needed or member.machine.is_cooperative
        self._set_assignment(assigned)
        if self._on_assign is not None:
            self._on_assign(new)

    def _revoke(self, gone: list[TopicPartition], *, keep: list[TopicPartition]) -> None:
        if self._on_revoke is not None:
            self._on_revoke(gone)
        self._set_assignment(keep)

    def _cancel_join(self) -> None:
        join, self._join = self._join, None
        if join is not None:
            join.cancel()

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        with self._condition:
            return {
                tp: self._unread(entry)
                for tp, entry in self._fetcher.partitions.items()
                if entry.position is not None
            }

    def _commit_quietly(self) -> None:
        """Automatic commits: what fails now is repeated by the next one, or read again."""
        member = self._membership
        if member is None or not self._options.enable_auto_commit:
            return
        offsets = {tp: o for tp, o in self._consumed().items() if o != self._committed.get(tp)}
        if not offsets:
            return
        try:
            self._thread.call(member.commit(offsets, AUTO_COMMIT_TIMEOUT_MS), CLOSE_TIMEOUT_S)
            self._committed.update(offsets)
        except KafkaError as e:
            log.warning("automatic commit of %d partitions: %s", len(offsets), e)

    def commit(self, offsets: Offsets | None = None, timeout_ms: int | None = None) -> None:
        """Commit these next-offsets, or all positions. Raises CommitFailedError and the like."""
        member = self._group()
        self._check_open()
        rows = self._consumed() if offsets is None else _offset_rows(offsets)
        limit = self._options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        self._thread.call(member.commit(rows, limit))
        self._committed.update(rows)

    def committed(
        self, *partitions: TopicPartition | tuple[str, int]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed; partitions without a commit are left out."""
        member = self._group()
        wanted = [TopicPartition(*tp) for tp in partitions] or self.assignment()
        limit = self._options.default_api_timeout_ms
        return self._thread.call(member.committed(wanted, limit))

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit (when automatic), leave the group, close connections. Twice is harmless."""
        if self._is_closed:
            return
        self._is_closed = True
        self.wakeup()
        with self._user:
            self._cancel_join()
            try:
                if self._subscribed:
                    self._commit_quietly()
                    if self._membership is not None:
                        work = self._membership.leave("the consumer is being closed")
                        self._thread.call(work, CLOSE_TIMEOUT_S)
                elif self._order:
                    self._commit_quietly()
            except (KafkaError, ClosedError) as e:
                log.warning("closing the consumer: %s", e)
            finally:
                self._shut()

    def _shut(self) -> None:
        self._is_closed = True
        try:
            self._thread.call(self._stop(), CLOSE_TIMEOUT_S)
        except (KafkaError, ClosedError) as e:
            log.warning("stopping the consumer's loop: %s", e)
        self._thread.stop()

    async def _stop(self) -> None:
        self._fetcher.stop()
        await self._cluster.close()


def _offset_rows(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(*tp): OffsetAndMetadata(row) if isinstance(row, int) else row
        for tp, row in offsets.items()
    }
