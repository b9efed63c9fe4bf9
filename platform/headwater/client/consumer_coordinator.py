"""The caller's side of group membership: rebalances within `poll`, and offset commits, as steps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from headwater.client.consumer_options import ConsumerOptions
from headwater.client.engine_host import EngineHost
from headwater.client.errors import KafkaTimeoutError
from headwater.client.group_link import GroupLink
from headwater.client.interceptors import chain_of
from headwater.client.partition_names import Offsets, offset_rows
from headwater.client.steps import Steps, told
from headwater.client.subscription_state import SubscriptionState
from headwater.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from headwater.clock import Clock
from headwater.errors import KafkaError, UsageError

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
                    yield from told(self._on_revoke, order)
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
        yield from told(self._on_revoke, revoked)
        if self._state.is_subscribed:  # after the listener, too
            self._assign(keep)

    def _lose(self) -> Steps[None]:
        """The partitions are others' already: nothing can be committed for them (KIP-429)."""
        if lost := list(self._state.order):
            yield from told(self._on_lost or self._on_revoke, lost)
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
