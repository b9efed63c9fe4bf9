"""The caller's side of the classic group protocol: rebalances within `poll`, as steps."""

from __future__ import annotations

from collections.abc import Callable

from headwater.client.consumer_coordinator import ConsumerCoordinator, within
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.core.classic_group import NO_GENERATION
from headwater.client.engine_host import EngineHost, Started
from headwater.client.group_membership import GroupMembership
from headwater.client.steps import Steps, told
from headwater.client.subscription_state import SubscriptionState
from headwater.client.values import TopicPartition
from headwater.clock import Clock
from headwater.errors import KafkaError


class ClassicCoordinator(ConsumerCoordinator):
    """Of the classic protocol: a join on the loop for each rebalance."""

    def __init__(
        self,
        membership: GroupMembership,
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
        yield from told(self._on_assign, added)

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
