"""The group coordinators of this broker, as the API handlers use them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol, cast

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError
from headwater.topic_names import OFFSETS_TOPIC
from headwater.wire.apis.k11_join_group import JoinGroupResponse
from headwater.wire.apis.k13_leave_group import MemberIdentity, MemberResponse
from headwater.wire.apis.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from headwater.wire.apis.k15_describe_groups import DescribedGroup
from headwater.wire.apis.k16_list_groups import ListedGroup
from headwater_broker.coordinator.common.appender import Appender
from headwater_broker.coordinator.common.decision import Decision, Now, Token
from headwater_broker.coordinator.common.partitioning import partition_of
from headwater_broker.coordinator.common.runtime import WRITE_TIMEOUT_MS, CoordinatorRuntime
from headwater_broker.coordinator.group.classic_group import Group, TopicPartition
from headwater_broker.coordinator.group.classic_protocol import Joining
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.offsets import Committed
from headwater_broker.coordinator.group.shard import Committing, GroupShard

ARRIVAL_WAIT_S = 1.0
"""How long a request may wait for a shard that is about to be ready."""

Codes = dict[TopicPartition, ErrorCode]
GroupOffsets = dict[TopicPartition, Committed]


class Placement(Protocol):
    """What this broker knows of `__consumer_offsets`."""

    def partition_count(self) -> int:
        """How many partitions it has; 0: none are known."""
        ...

    def leads(self, partition: int) -> bool:
        """True when the controller has named this broker as the leader."""
        ...


def _require_name(group_id: str) -> None:
    """Raises INVALID_GROUP_ID. Offsets alone may be of a group without a name, as in Kafka."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")


class GroupService:
    """Routes each request to the shard of its group. All methods raise KafkaError:
    NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, and their own.
    """

    def __init__(
        self,
        appender: Appender,
        clock: Clock,
        entropy: Entropy,
        placement: Placement,
        config: GroupConfig,
        *,
        write_timeout_ms: int = WRITE_TIMEOUT_MS,
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._placement = placement
        self._arrivals: set[asyncio.Future[None]] = set()
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            OFFSETS_TOPIC,
            lambda _partition: GroupShard(config),
            appender,
            clock,
            write_timeout_ms=write_timeout_ms,
        )
        self.runtime.on_loaded = lambda _partition: self.stir()

    def partition_of(self, group_id: str) -> int:
        """Where a group lives. Raises COORDINATOR_NOT_AVAILABLE before the topic is made."""
        count = self._placement.partition_count()
        if count <= 0:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is not made yet"
            )
        return partition_of(group_id, count)

    async def close(self) -> None:
        """Forget every shard."""
        await self.runtime.close()

    async def _run(
        self, group_id: str, command: Callable[[GroupShard, Now, Token], Decision]
    ) -> Any:
        await self._arrived(group_id)
        return await self.runtime.run(self.partition_of(group_id), command)

    def stir(self) -> None:
        """Placement or a shard has changed: whoever waits for a shard looks again."""
        arrivals, self._arrivals = self._arrivals, set()
        for arrival in arrivals:
            if not arrival.done():
                arrival.set_result(None)

    async def _arrived(self, group_id: str) -> None:
        """Wait a little for a shard that is about to be here.

        A client that was just told of this broker may come before the controller's word, or while
        the shard loads; an error would cost it a back-off of up to seconds.
        """
        deadline = 0.0
        while self._is_coming(group_id):
            now = self._clock.monotonic()
            deadline = deadline or now + ARRIVAL_WAIT_S
            if now >= deadline:
                return
            arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._arrivals.add(arrival)
            await asyncio.wait((arrival,), timeout=deadline - now)
            self._arrivals.discard(arrival)

    def _is_coming(self, group_id: str) -> bool:
        count = self._placement.partition_count()
        if count <= 0:
            return True
        partition = partition_of(group_id, count)
        if self.runtime.is_ready(partition):
            return False
        return self.runtime.is_hosted(partition) or self._placement.leads(partition)

    # -- membership

    async def join(self, ask: Joining) -> JoinGroupResponse:
        """Waits until the rebalance completes. `fresh_id` is filled in here."""
        _require_name(ask.group_id)
        prefix = ask.client_id if ask.instance_id is None else ask.instance_id
        named = replace(ask, fresh_id=f"{prefix}-{self._entropy.uuid()}")
        reply = await self._run(ask.group_id, lambda s, now, t: s.join(named, now, t))
        return cast(JoinGroupResponse, reply)

    async def sync(self, ask: SyncGroupRequest) -> SyncGroupResponse:
        """Waits until the leader's assignment is durable."""
        _require_name(ask.group_id)
        reply = await self._run(ask.group_id, lambda s, now, t: s.sync(ask, now, t))
        return cast(SyncGroupResponse, reply)

    async def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """NONE or REBALANCE_IN_PROGRESS."""
        _require_name(group_id)
        reply = await self._run(
            group_id,
            lambda s, now, t: s.heartbeat(group_id, member_id, instance_id, generation, now, t),
        )
        return cast(ErrorCode, reply)

    async def leave(self, group_id: str, members: Iterable[MemberIdentity]) -> list[MemberResponse]:
        """One row per member."""
        _require_name(group_id)
        reply = await self._run(group_id, lambda s, now, t: s.leave(group_id, members, now, t))
        return cast(list[MemberResponse], reply)

    # -- offsets

    async def commit(self, ask: Committing) -> Codes:
        """Durable when it returns."""
        reply = await self._run(ask.group_id, lambda s, now, t: s.commit(ask, now, t))
        return cast(Codes, reply)

    async def fetch(self, group_id: str, wanted: tuple[TopicPartition, ...] | None) -> GroupOffsets:
        """The wanted partitions' offsets; None: all."""
        asks = ((group_id, wanted),)
        reply = await self._run(group_id, lambda s, now, t: s.fetch(asks, now, t))
        return cast(dict[str, GroupOffsets], reply)[group_id]

    async def delete_offsets(self, group_id: str, wanted: Iterable[TopicPartition]) -> Codes:
        """Also raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        _require_name(group_id)
        reply = await self._run(
            group_id, lambda s, now, t: s.delete_offsets(group_id, wanted, now, t)
        )
        return cast(Codes, reply)

    async def topics_deleted(self, topics: frozenset[str]) -> None:
        """Remove the offsets of deleted topics from every shard here. Raises the first error, after
        every shard was asked.
        """
        results = await asyncio.gather(
            *(
                self.runtime.run(partition, lambda s, now, t: s.topics_deleted(topics, now, t))
                for partition in self.runtime.partitions
            ),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    # -- administration

    def coordinated(self) -> list[Group]:
        """Every group whose coordinator is here, to be looked at only; those with members first."""
        groups = [group for shard in self.runtime.shards for group in shard.groups.values()]
        return sorted(groups, key=lambda group: (not group.members, group.group_id))

    async def describe(self, group_id: str) -> DescribedGroup:
        """State, members, assignments."""
        reply = await self._run(group_id, lambda s, now, t: s.describe(group_id, now, t))
        return cast(DescribedGroup, reply)

    async def list_groups(self, states: frozenset[str], types: frozenset[str]) -> list[ListedGroup]:
        """The groups of every shard here. Raises COORDINATOR_LOAD_IN_PROGRESS, as a part of the
        list would look like the whole of it.
        """
        if self.runtime.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are being loaded")
        rows: list[ListedGroup] = []
        for partition in self.runtime.partitions:
            reply = await self.runtime.run(
                partition, lambda s, now, t: s.list_groups(states, types, now, t)
            )
            rows += cast(list[ListedGroup], reply)
        return rows

    async def delete_group(self, group_id: str) -> ErrorCode:
        """NONE, NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND."""
        reply = await self._run(group_id, lambda s, now, t: s.delete_groups((group_id,), now, t))
        return cast(dict[str, ErrorCode], reply)[group_id]
