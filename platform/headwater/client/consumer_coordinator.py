"""The caller's side of group membership: rebalances within `poll`, and offset commits, as steps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from headwater.client.cluster import Cluster
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.core.classic_group import ClassicMember
from headwater.client.engine_host import EngineHost, Started
from headwater.client.errors import KafkaTimeoutError
from headwater.client.group_membership import GroupMembership
from headwater.client.interceptors import chain_of
from headwater.client.partition_names import Offsets, offset_rows
from headwater.client.steps import Steps, told
from headwater.client.subscription_state import SubscriptionState
from headwater.client.topic_watch import TopicWatch
from headwater.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from headwater.clock import Clock
from headwater.errors import KafkaError, UsageError

AUTO_COMMIT_TIMEOUT_MS = 5_000
CALL_TIMEOUT_S = 10.0

RebalanceListener = Callable[[list[TopicPartition]], object]

log = logging.getLogger(__name__)


class ConsumerCoordinator:
    """Keeps the assignment in step with the group. What polls runs its steps."""

    def __init__(
        self,
        membership: GroupMembership,
        state: SubscriptionState,
        host: EngineHost,
        options: ConsumerOptions,
        clock: Clock,
        assign: Callable[[list[TopicPartition]], None],
    ) -> None:
        """`assign` replaces the partitions that are read."""
        self.membership = membership
        self._on_assign: RebalanceListener | None = None
        self._on_revoke: RebalanceListener | None = None
        self._state = state
        self._host = host
        self._options = options
        self._clock = clock
        self._assign = assign
        self._join: Started[list[TopicPartition]] | None = None
        self._next_commit = 0.0
        self._chain = chain_of(options.interceptors)
        self._is_polling = False
        """True while steps of `poll` run, also after their caller was cancelled."""

    def subscribe(
        self, on_assign: RebalanceListener | None, on_revoke: RebalanceListener | None
    ) -> None:
        """The subscription has changed: the next `poll` joins with it, and calls the listeners."""
        self._on_assign, self._on_revoke = on_assign, on_revoke
        self.membership.rejoin_needed = True

    def is_due(self) -> bool:
        """The caller polls; True when `poll` has something to do first."""
        member, join = self.membership, self._join
        now = self._clock.monotonic()
        member.last_poll = now
        if self._is_polling or (self._options.enable_auto_commit and now >= self._next_commit):
            return True
        is_joining = join.done() if join is not None else member.rejoin_needed
        return self._state.is_subscribed and is_joining

    def poll(self) -> Steps[None]:
        """Rebalance if necessary, apply a finished join, commit when it is time."""
        self._is_polling = True
        try:
            yield from self._poll()
        finally:
            self._is_polling = False

    def _poll(self) -> Steps[None]:
        member = self.membership
        now = self._clock.monotonic()
        if self._state.is_subscribed:
            if self._join is None and member.rejoin_needed:
                yield from self._start_join()
            if self._join is not None and self._join.done():
                join, self._join = self._join, None
                yield from self._finish_join(join.result())
        if self._options.enable_auto_commit and now >= self._next_commit:
            self._next_commit = now + self._options.auto_commit_interval_ms / 1000
            yield from self.commit_automatically()

    def _start_join(self) -> Steps[None]:
        """Commit and, unless the assignors are cooperative, revoke everything; join on the loop."""
        yield from self.commit_automatically()
        order = list(self._state.order)
        if not self.membership.member.is_cooperative and order:
            yield from self._revoke(order, keep=[])
        work = self.membership.join(list(self._state.order))
        self._join = self._host.start(work)
        self._join.add_done_callback(lambda _: self._state.notify())

    def _finish_join(self, assigned: list[TopicPartition]) -> Steps[None]:
        member, order = self.membership, self._state.order
        revoked = [tp for tp in order if tp not in assigned]
        added = [tp for tp in assigned if tp not in order]
        if revoked:
            yield from self.commit_automatically()
            yield from self._revoke(revoked, keep=[tp for tp in order if tp in assigned])
            # The revoked partitions are assigned to others in a second rebalance (KIP-429).
            member.rejoin_needed = member.rejoin_needed or member.member.is_cooperative
        self._assign(assigned)
        yield from told(self._on_assign, added)

    def _revoke(self, revoked: list[TopicPartition], *, keep: list[TopicPartition]) -> Steps[None]:
        yield from told(self._on_revoke, revoked)
        self._assign(keep)

    def leave(self, reason: str) -> Steps[None]:
        """Commit if that is automatic, and leave the group."""
        self.cancel_join()
        yield from self.commit_automatically()
        yield _within(self.membership.leave(reason))
        self.membership.rejoin_needed = True

    def cancel_join(self) -> None:
        """Give up a join that runs on the loop."""
        join, self._join = self._join, None
        if join is not None:
            join.cancel()

    def commit_automatically(self) -> Steps[None]:
        """Commit the positions that changed. An error is logged: the next commit repeats them."""
        if not self._options.enable_auto_commit:
            return
        known = self._state.committed
        offsets = {tp: o for tp, o in self._state.next_offsets().items() if o != known.get(tp)}
        if not offsets:
            return
        try:
            yield _within(self.membership.commit(offsets, AUTO_COMMIT_TIMEOUT_MS))
            self._committed(offsets)
        except KafkaError as e:
            log.warning("automatic commit of %d partitions: %s", len(offsets), e)

    def commit(self, offsets: Offsets | None, timeout_ms: float | None) -> Steps[None]:
        """Commit these next offsets, or all positions. Raises CommitFailedError, OptionError."""
        rows = self._state.next_offsets() if offsets is None else offset_rows(offsets)
        limit = self._options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        yield self.membership.commit(rows, limit)
        self._committed(rows)

    def _committed(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self._state.committed.update(offsets)
        if self._chain is not None:
            self._chain.on_commit(offsets)

    def metadata(self) -> ConsumerGroupMetadata:
        """The group and this member of it. Raises UsageError for a consumer that commits by itself:
        those commits would not be part of a transaction."""
        if self._options.enable_auto_commit:
            raise UsageError("this consumer commits by itself: give it enable_auto_commit=False")
        member = self.membership.member
        if member.generation < 0:
            return ConsumerGroupMetadata(member.group_id)
        return ConsumerGroupMetadata(
            member.group_id, member.generation, member.member_id, member.group_instance_id
        )

    async def load_committed(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets, without the partitions that have none."""
        return await self.membership.committed(partitions, self._options.default_api_timeout_ms)


async def _within(work: Coroutine[Any, Any, None]) -> None:
    """`work` within CALL_TIMEOUT_S. Raises KafkaTimeoutError."""
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S) as limit:
            await work
    except TimeoutError as e:
        if not limit.expired():
            raise
        raise KafkaTimeoutError(f"no answer within {CALL_TIMEOUT_S} s") from e


async def no_commits(
    _: list[TopicPartition],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """`load_committed` of a consumer without a group."""
    return {}


def make_coordinator(
    cluster: Cluster,
    options: ConsumerOptions,
    watch: TopicWatch,
    state: SubscriptionState,
    host: EngineHost,
    assign: Callable[[list[TopicPartition]], None],
) -> ConsumerCoordinator | None:
    """The coordinator of a consumer's group; None without a `group_id`."""
    if options.group_id is None:
        return None
    member = ClassicMember(
        options.group_id,
        options.partition_assignment_strategy,
        session_timeout_ms=options.session_timeout_ms,
        rebalance_timeout_ms=options.max_poll_interval_ms,
        group_instance_id=options.group_instance_id,
    )
    membership = GroupMembership(cluster, options, member, watch, state.notify)
    return ConsumerCoordinator(membership, state, host, options, cluster.clock, assign)
