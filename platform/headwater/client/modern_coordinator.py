"""The caller's side of the consumer protocol (KIP-848): takes targets within `poll`, as steps."""

from __future__ import annotations

from collections.abc import Callable

from headwater.client.consumer_coordinator import ConsumerCoordinator, within
from headwater.client.consumer_membership import ConsumerMembership
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.engine_host import EngineHost
from headwater.client.steps import Steps, told
from headwater.client.subscription_state import SubscriptionState
from headwater.client.values import TopicPartition
from headwater.clock import Clock


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
            yield from told(self._on_assign, added)
        yield self._link.acknowledge(target)

    def _is_lost(self) -> bool:
        return self._link.is_lost

    def _leave(self, reason: str) -> Steps[None]:
        yield within(self._link.leave(reason))
