"""The consumer groups of this broker (KIP-848), as API handlers use them; work beside the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import HeadwaterError
from headwater.wire.apis.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from headwater.wire.apis.k69_consumer_group_describe import DescribedGroup
from headwater_broker.coordinator.common.service import CoordinatorService
from headwater_broker.coordinator.group.consumer.heartbeat_request import Heartbeat
from headwater_broker.coordinator.group.consumer.meters import ConsumerGroupMeters
from headwater_broker.coordinator.group.consumer.patterns import RegexJob
from headwater_broker.coordinator.group.consumer.target import TargetJob
from headwater_broker.coordinator.group.shard import GroupShard
from headwater_broker.metadata.cache import MetadataDelta
from headwater_broker.replica.ports import OffLoop

MEMBERS_AT_ONE_SECOND = 5_000
"""Up to so many members each heartbeats once a second: it learns of a rebalance so soon."""
INTERVAL_MIN_MS, INTERVAL_MAX_MS = 1_000, 5_000
COUNT_MS = 1_000
"""Members are counted so often."""

logger = logging.getLogger(__name__)


class ConsumerGroupService:
    """Runs each request on the shard of its group. Methods raise KafkaError as `GroupService`."""

    def __init__(
        self,
        coordinator: CoordinatorService[GroupShard],
        entropy: Entropy,
        clock: Clock,
        off_loop: OffLoop,
    ) -> None:
        self._coordinator = coordinator
        self._entropy = entropy
        self._clock = clock
        self._off_loop = off_loop
        self._jobs: set[asyncio.Task[None]] = set()
        self._interval_ms = INTERVAL_MIN_MS
        self._counted_at_ms = 0.0
        self.meters = ConsumerGroupMeters()

    async def close(self) -> None:
        """Give up what is computed."""
        for task in list(self._jobs):
            task.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def heartbeat(self, request: Heartbeat) -> ConsumerGroupHeartbeatResponse:
        """ConsumerGroupHeartbeat."""
        if not request.member_id and not request.names_itself:
            request = replace(request, fresh_id=str(self._entropy.uuid()))
        reply = await self._coordinator.run(
            request.group_id, lambda s, now, t: s.consumers.heartbeat(request, now, t)
        )
        return cast(ConsumerGroupHeartbeatResponse, reply)

    async def describe(self, group_id: str) -> DescribedGroup:
        """ConsumerGroupDescribe of one group."""
        reply = await self._coordinator.run(
            group_id,
            lambda s, now, t: s.administration.describe_consumer_group(group_id, now, t),
        )
        return cast(DescribedGroup, reply)

    # -- what happens around it

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """A listener of `MetadataCache.on_change`."""
        names = delta.topics | delta.deleted | delta.configs
        if names:
            came_or_went = delta.deleted | delta.configs  # a new topic's configs are new, too
            for shard in self._coordinator.runtime.shards:
                shard.consumers.topics_changed(names, came_or_went)

    def settled_interval_ms(self) -> int:
        """One second, and more when this broker has many members: 5 s at most."""
        now_ms = self._clock.monotonic() * 1000
        if now_ms - self._counted_at_ms >= COUNT_MS:
            self._counted_at_ms = now_ms
            members = sum(
                shard.consumers.member_count for shard in self._coordinator.runtime.shards
            )
            wanted = INTERVAL_MIN_MS * members // MEMBERS_AT_ONE_SECOND
            self._interval_ms = min(INTERVAL_MAX_MS, max(INTERVAL_MIN_MS, wanted))
        return self._interval_ms

    # -- jobs

    def submit(self, job: TargetJob) -> None:
        """Have the target computed beside the loop, and bring it back to the shard."""
        self._begin(self._compute(job))

    def submit_regexes(self, job: RegexJob) -> None:
        """Have patterns resolved beside the loop, and bring their topics back to the shard."""
        self._begin(self._resolve(job))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _resolve(self, job: RegexJob) -> None:
        matched: dict[str, frozenset[str]] = {}
        await self._off_loop(lambda: matched.update(job.run()))
        found = {
            pattern: frozenset(filter(job.may_describe, topics))
            for pattern, topics in matched.items()
        }
        try:
            await self._coordinator.run(
                job.group_id, lambda s, now, t: s.consumers.regexes_resolved(job, found, now, t)
            )
        except HeadwaterError as error:  # another coordinator resolves them anew
            logger.warning("group %s: topics of patterns are not recorded: %s", job.group_id, error)

    async def _compute(self, job: TargetJob) -> None:
        found: dict[str, Mapping[UUID, frozenset[int]]] = {}
        await self._off_loop(lambda: found.update(job.run()))
        try:
            await self._coordinator.run(
                job.group_id, lambda s, now, t: s.consumers.target_computed(job, found, now, t)
            )
        except HeadwaterError as error:  # another coordinator computes it anew
            logger.warning("group %s: its new assignment is not recorded: %s", job.group_id, error)
