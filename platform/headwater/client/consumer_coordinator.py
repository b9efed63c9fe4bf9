"""The caller's side of group membership: rebalances within `poll`, and offset commits, as steps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from headwater.client.classic_membership import ClassicMembership
from headwater.client.cluster import Cluster
from headwater.client.consumer_options import MODERN, ConsumerOptions
from headwater.client.core.classic_group import NO_GENERATION, ClassicMember
from headwater.client.core.consumer_group import ConsumerMember
from headwater.client.engine_host import EngineHost, Started
from headwater.client.errors import KafkaTimeoutError
from headwater.client.group_link import GroupLink
from headwater.client.interceptors import chain_of
from headwater.client.modern_membership import ConsumerMembership
from headwater.client.partition_names import Offsets, offset_rows
from headwater.client.steps import Steps, call_listener
from headwater.client.subscription_state import SubscriptionState
from headwater.client.topic_watch import TopicWatch
from headwater.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from headwater.clock import Clock
from headwater.errors import KafkaError, UsageError
from headwater.ids import id_text

AUTO_COMMIT_TIMEOUT_MS = 5_000
CALL_TIMEOUT_S = 10.0

RebalanceListener = Callable[[list[TopicPartition]], object]

log = logging.getLogger(__name__)


class ConsumerCoordinator:
    """Keeps the assignment in step with the group. What polls runs its steps.

    How, is a matter of the group protocol: `ClassicCoordinator`, `ModernCoordinator`.
    """

    def __init__(
        self,
        membership: GroupLink,
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
        self._on_lost: RebalanceListener | None = None
        self._state = state
        self._host = host
        self._options = options
        self._clock = clock
        self._assign = assign
        self._next_commit = 0.0
        self._chain = chain_of(options.interceptors)
        self._is_polling = False
        """True while steps of `poll` run, also after their caller was cancelled."""
        self._is_leaving = False

    def subscribe(
        self,
        on_assign: RebalanceListener | None,
        on_revoke: RebalanceListener | None,
        on_lost: RebalanceListener | None,
    ) -> None:
        """The subscription has changed: the next `poll` joins with it, and calls the listeners."""
        self._on_assign, self._on_revoke, self._on_lost = on_assign, on_revoke, on_lost
        self._subscribed()

    def _subscribed(self) -> None:
        raise NotImplementedError

    def is_due(self) -> bool:
        """The caller polls; True when `poll` has something to do first."""
        now = self.membership.last_poll = self._clock.monotonic()
        if self._is_polling or (self._options.enable_auto_commit and now >= self._next_commit):
            return True
        return self._state.is_subscribed and self._has_news()

    def _has_news(self) -> bool:
        """Whether the group wants something of the caller."""
        raise NotImplementedError

    def _rebalance(self) -> Steps[None]:
        """Do what the group wants. Only while topics or a pattern are subscribed to."""
        raise NotImplementedError

    def _is_lost(self) -> bool:
        """Whether the group has removed this member: its partitions are others'."""
        raise NotImplementedError

    def leave(self, reason: str) -> Steps[None]:
        """Commit if that is automatic, tell the listener, and leave the group."""
        if self._is_leaving:  # the listener unsubscribes, too
            return
        self._is_leaving = True
        try:
            if self._is_lost():
                yield from self._lose()
            else:
                yield from self.commit_automatically()
                if order := list(self._state.order):
                    yield from call_listener(self._on_revoke, order)
        finally:
            self._is_leaving = False
            yield from self._leave(reason)

    def _leave(self, reason: str) -> Steps[None]:
        """Leave the group."""
        raise NotImplementedError

    def poll(self) -> Steps[None]:
        """Rebalance if necessary, apply a finished join, commit when it is time."""
        self._is_polling = True
        try:
            if self._state.is_subscribed:
                yield from self._rebalance()
            now = self._clock.monotonic()
            if self._options.enable_auto_commit and now >= self._next_commit:
                self._next_commit = now + self._options.auto_commit_interval_ms / 1000
                yield from self.commit_automatically()
        finally:
            self._is_polling = False

    def _revoke(self, revoked: list[TopicPartition], *, keep: list[TopicPartition]) -> Steps[None]:
        yield from call_listener(self._on_revoke, revoked)
        if self._state.is_subscribed:  # after the listener, too
            self._assign(keep)

    def _lose(self) -> Steps[None]:
        """The partitions are others' already: nothing can be committed for them (KIP-429)."""
        if lost := list(self._state.order):
            yield from call_listener(self._on_lost or self._on_revoke, lost)
            self._assign([])

    def commit_automatically(self) -> Steps[None]:
        """Commit the positions that changed. An error is logged: the next commit repeats them."""
        if not self._options.enable_auto_commit:
            return
        known = self._state.committed
        offsets = {tp: o for tp, o in self._state.next_offsets().items() if o != known.get(tp)}
        if not offsets:
            return
        try:
            yield within(self.membership.commit(offsets, AUTO_COMMIT_TIMEOUT_MS))
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
        member = self.membership.identity
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


async def within(work: Coroutine[Any, Any, None]) -> None:
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


class ClassicCoordinator(ConsumerCoordinator):
    """Of the classic protocol: a join on the loop for each rebalance."""

    def __init__(
        self,
        membership: ClassicMembership,
        state: SubscriptionState,
        host: EngineHost,
        options: ConsumerOptions,
        clock: Clock,
        assign: Callable[[list[TopicPartition]], None],
    ) -> None:
        super().__init__(membership, state, host, options, clock, assign)
        self._classic = membership
        self._join: Started[list[TopicPartition]] | None = None
        self._losses = 0
        """Those of the member that the caller knows of."""

    def _subscribed(self) -> None:
        self._classic.rejoin_needed = True

    def _has_news(self) -> bool:
        join = self._join
        return join.done() if join is not None else self._classic.rejoin_needed

    def _rebalance(self) -> Steps[None]:
        if self._join is None and self._classic.rejoin_needed:
            yield from self._start_join()
        if self._join is not None and self._join.done():
            join, self._join = self._join, None
            if self._is_lost():  # while it joined
                yield from self._give_up_lost()
            try:
                assigned = join.result()
            except KafkaError:
                self._classic.rejoin_needed = True  # the next poll tries again, and tells it again
                raise
            if self._classic.member.generation == NO_GENERATION:  # lost since the join
                self._classic.rejoin_needed = True
                return
            yield from self._finish_join(assigned)

    def _start_join(self) -> Steps[None]:
        """Commit and, unless the assignors are cooperative, revoke everything; join on the loop."""
        if self._is_lost():
            yield from self._give_up_lost()
        else:
            yield from self.commit_automatically()
        order = list(self._state.order)
        if not self._classic.member.is_cooperative and order:
            yield from self._revoke(order, keep=[])
        work = self._classic.join(list(self._state.order))
        self._join = self._host.start(work)
        self._join.add_done_callback(lambda _: self._state.notify())

    def _is_lost(self) -> bool:
        return self._losses != self._classic.member.losses

    def _give_up_lost(self) -> Steps[None]:
        self._losses = self._classic.member.losses
        yield from self._lose()

    def _finish_join(self, assigned: list[TopicPartition]) -> Steps[None]:
        member, order = self._classic, self._state.order
        revoked = [tp for tp in order if tp not in assigned]
        added = [tp for tp in assigned if tp not in order]
        if revoked:
            yield from self.commit_automatically()
            yield from self._revoke(revoked, keep=[tp for tp in order if tp in assigned])
            # The revoked partitions are assigned to others in a second rebalance (KIP-429).
            member.rejoin_needed = member.rejoin_needed or member.member.is_cooperative
        self._assign(assigned)
        yield from call_listener(self._on_assign, added)

    def _leave(self, reason: str) -> Steps[None]:
        self.cancel_join()
        yield within(self._classic.leave(reason))
        self._losses = self._classic.member.losses
        self._classic.rejoin_needed = True

    def cancel_join(self) -> None:
        """Give up a join that runs on the loop."""
        join, self._join = self._join, None
        if join is not None:
            join.cancel()


class ModernCoordinator(ConsumerCoordinator):
    """Gives up what the target lacks, takes what is new, and says so to the coordinator."""

    def __init__(
        self,
        membership: ConsumerMembership,
        state: SubscriptionState,
        host: EngineHost,
        options: ConsumerOptions,
        clock: Clock,
        assign: Callable[[list[TopicPartition]], None],
    ) -> None:
        super().__init__(membership, state, host, options, clock, assign)
        self._link = membership

    def _subscribed(self) -> None:
        self._host.post(self._link.wake)

    def _has_news(self) -> bool:
        return self._link.has_news

    def _rebalance(self) -> Steps[None]:
        link = self._link
        if link.is_lost:
            link.is_lost = False
            yield from self._lose()
        if link.error is not None:
            error, link.error = link.error, None
            raise error
        if not link.is_running:
            yield link.start()
        if link.offered is not None:
            target, link.offered = link.offered, None
            try:
                yield from self._take(target)
            except BaseException:
                # A listener raised: the next poll goes on, before the rebalance times out.
                link.offered = target if link.offered is None else link.offered
                raise

    def _take(self, target: list[TopicPartition]) -> Steps[None]:
        order = list(self._state.order)
        kept = [tp for tp in order if tp in target]
        added = [tp for tp in target if tp not in order]
        if len(kept) < len(order):
            yield from self.commit_automatically()
            yield from self._revoke([tp for tp in order if tp not in target], keep=kept)
        self._assign([*kept, *added])
        if added or len(kept) < len(order):
            yield from call_listener(self._on_assign, added)
        yield self._link.acknowledge(target)

    def _is_lost(self) -> bool:
        return self._link.is_lost

    def _leave(self, reason: str) -> Steps[None]:
        yield within(self._link.leave(reason))


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
    if options.group_protocol == MODERN:
        member_id = id_text(cluster.entropy.uuid())
        modern = ConsumerMember(options.group_id, member_id, options.group_instance_id)
        link = ConsumerMembership(cluster, options, modern, watch, state.notify)
        return ModernCoordinator(link, state, host, options, cluster.clock, assign)
    member = ClassicMember(
        options.group_id,
        options.partition_assignment_strategy,
        session_timeout_ms=options.session_timeout_ms,
        rebalance_timeout_ms=options.max_poll_interval_ms,
        group_instance_id=options.group_instance_id,
    )
    membership = ClassicMembership(cluster, options, member, watch, state.notify)
    return ClassicCoordinator(membership, state, host, options, cluster.clock, assign)
