"""The group coordinators of this broker, as the API handlers use them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import cast
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.topic_names import OFFSETS_TOPIC
from headwater.wire.apis.k11_join_group import JoinGroupResponse
from headwater.wire.apis.k13_leave_group import MemberIdentity, MemberResponse
from headwater.wire.apis.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from headwater.wire.apis.k15_describe_groups import DescribedGroup
from headwater.wire.apis.k16_list_groups import ListedGroup
from headwater_broker.coordinator.common.service import CoordinatorParts, CoordinatorService
from headwater_broker.coordinator.common.shard import Command
from headwater_broker.coordinator.group.classic.rebalance import MemberJoin
from headwater_broker.coordinator.group.collaborators import Collaborators
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.consumer_service import ConsumerGroupService
from headwater_broker.coordinator.group.offset_commands import OffsetCommit, TransactionalCommit
from headwater_broker.coordinator.group.offsets import Committed
from headwater_broker.coordinator.group.records import STRING_BYTES_MAX, TopicPartition
from headwater_broker.coordinator.group.shard import GroupShard
from headwater_broker.coordinator.group.share_service import ShareGroupService
from headwater_broker.coordinator.group.table import AnyGroup, default_settings
from headwater_broker.coordinator.group.topics_of_cluster import ClusterTopics
from headwater_broker.coordinator.group.transaction_verification import Verification
from headwater_broker.metadata.group_settings import GroupSettingsOf
from headwater_broker.replica.share.ports import Persister
from headwater_broker.replica.transaction_verification import Enlistment

Codes = dict[TopicPartition, ErrorCode]
GroupOffsets = dict[TopicPartition, Committed]
Enlists = Callable[[Mapping[TopicPartition, UUID], int], bool]
"""(partitions with their topics' ids, latest coordinator epoch known of the producer) -> whether
they belong to the transaction now. False: that is not certain at once."""


def _require_name(group_id: str) -> None:
    """Raises INVALID_GROUP_ID. Only offsets may belong to a group without a name, as in Kafka."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    _check_length(group_id)


def _check_length(group_id: str) -> None:
    """Raises INVALID_GROUP_ID for a name that no record can hold; requests can since KIP-482."""
    size = len(group_id.encode())
    if size > STRING_BYTES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_GROUP_ID,
            f"the group id has {size} bytes, at most {STRING_BYTES_MAX} can be stored",
        )


class GroupService:
    """Runs each request on the shard of its group. All methods raise KafkaError:
    NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, and their own.
    """

    def __init__(
        self,
        parts: CoordinatorParts,
        config: GroupConfig,
        persister: Persister,
        settings_of: GroupSettingsOf = default_settings,
    ) -> None:
        self._entropy = parts.entropy
        self._view = parts.view
        self._log = parts.appender(OFFSETS_TOPIC)
        self.coordinator: CoordinatorService[GroupShard] = CoordinatorService(
            OFFSETS_TOPIC,
            lambda _partition: GroupShard(config, self._collaborators),
            self._log,
            parts.placement(OFFSETS_TOPIC),
            parts.clock,
            topics_deleted=_topics_deleted,
        )
        self.consumers = ConsumerGroupService(
            self.coordinator, parts.entropy, parts.clock, parts.off_loop
        )
        self.shares = ShareGroupService(self.coordinator, persister)
        self._collaborators = Collaborators(
            ClusterTopics(parts.view),
            self.consumers.meters,
            settings_of,
            self.consumers.submit,
            self.consumers.submit_regexes,
            self.consumers.settled_interval_ms,
        )

    async def close(self) -> None:
        """Drop every shard."""
        await self.consumers.close()
        await self.shares.close()
        await self.coordinator.close()

    # -- membership

    async def join(self, request: MemberJoin) -> JoinGroupResponse:
        """Returns when the rebalance completes. `fresh_id` is filled in here."""
        _require_name(request.group_id)
        prefix = request.client_id if request.instance_id is None else request.instance_id
        named = replace(request, fresh_id=f"{prefix}-{self._entropy.uuid()}")
        reply = await self.coordinator.run(
            request.group_id, lambda s, now, t: s.join(named, now, t)
        )
        return cast(JoinGroupResponse, reply)

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Returns when the leader's assignment is durable."""
        _require_name(request.group_id)
        reply = await self.coordinator.run(
            request.group_id, lambda s, now, t: s.sync(request, now, t)
        )
        return cast(SyncGroupResponse, reply)

    async def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """NONE or REBALANCE_IN_PROGRESS."""
        _require_name(group_id)
        reply = await self.coordinator.run(
            group_id,
            lambda s, now, t: s.heartbeat(group_id, member_id, instance_id, generation, now, t),
        )
        return cast(ErrorCode, reply)

    async def leave(self, group_id: str, members: Iterable[MemberIdentity]) -> list[MemberResponse]:
        """One row per member."""
        _require_name(group_id)
        reply = await self.coordinator.run(
            group_id, lambda s, now, t: s.leave(group_id, members, now, t)
        )
        return cast(list[MemberResponse], reply)

    # -- offsets

    async def commit(self, request: OffsetCommit) -> Codes:
        """Commit offsets; they are durable when it returns."""
        _check_length(request.group_id)
        reply = await self.coordinator.run(
            request.group_id, lambda s, now, t: s.offsets.commit(request, now, t)
        )
        return cast(Codes, reply)

    async def transactional_commit(
        self, request: TransactionalCommit, enlistment: Enlistment
    ) -> Codes:
        """Commit offsets within a transaction; they are durable, and pending, when it returns.

        Also raises what the transaction's coordinator answers, INVALID_GROUP_ID,
        INVALID_PRODUCER_EPOCH.
        """
        _require_name(request.group_id)
        codes: Codes | None = None
        while codes is None:
            shard = await self.coordinator.shard(request.group_id)
            verification = shard.offsets.begin_verification(request)
            try:
                codes = await self._commit_verified(request, verification, enlistment)
            finally:
                shard.offsets.end_verification(verification)
        return codes

    def commit_at_once(self, request: TransactionalCommit, enlists: Enlists) -> Codes | None:
        """`transactional_commit` where nothing has to be awaited. None: nothing is committed, and
        `transactional_commit` decides. `enlists` is asked as the coordinator of the transaction,
        unless the group knows the transaction already.

        Raises COORDINATOR_NOT_AVAILABLE before the topic exists."""
        index = self.coordinator.partition_of(request.group_id)
        shard = self.coordinator.runtime.lone_shard(index)
        topic = self._view.topics.get(OFFSETS_TOPIC)
        if shard is None or topic is None or not request.group_id:
            return None
        verification = shard.offsets.begin_verification(request)
        try:
            if not verification.is_open:
                partitions = {(OFFSETS_TOPIC, index): topic.topic_id}
                known_epoch = self._log.coordinator_epoch(index, request.producer.producer_id)
                if not enlists(partitions, known_epoch):
                    return None
            reply = self.coordinator.runtime.at_once(
                index,
                lambda s, now, t: s.offsets.transactional_commit(request, verification, now, t),
            )
        finally:
            shard.offsets.end_verification(verification)
        return cast(Codes | None, reply)

    async def _commit_verified(
        self, request: TransactionalCommit, verification: Verification, enlistment: Enlistment
    ) -> Codes | None:
        """None: the verification is stale."""
        if not verification.is_open:
            await self._enlist(request, enlistment)
        reply = await self.coordinator.run(
            request.group_id,
            lambda s, now, t: s.offsets.transactional_commit(request, verification, now, t),
        )
        return cast(Codes | None, reply)

    async def _enlist(self, request: TransactionalCommit, enlistment: Enlistment) -> None:
        """Add the group's partition to the transaction, or verify that the client did (KIP-890)."""
        index = self.coordinator.partition_of(request.group_id)
        partition = OFFSETS_TOPIC, index
        topic = self._view.topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is not known")
        codes = await enlistment.enlist(
            request.transactional_id,
            request.producer,
            {partition: topic.topic_id},
            verify_only=not request.is_enlisting,
            coordinator_epoch=self._log.coordinator_epoch(index, request.producer.producer_id),
        )
        code = codes[partition]
        if code is not ErrorCode.NONE:
            raise KafkaError(
                code,
                f"transaction {request.transactional_id!r} of producer {request.producer}: "
                f"{partition[0]}-{partition[1]} is not part of it",
            )

    async def fetch(
        self,
        group_id: str,
        wanted: tuple[TopicPartition, ...] | None,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> GroupOffsets:
        """The wanted partitions' offsets; None: all. `require_stable`, and the member of a consumer
        group that asks: see `OffsetCommands.fetch`."""
        reply = await self.coordinator.run(
            group_id,
            lambda s, now, t: s.offsets.fetch(
                group_id,
                wanted,
                now,
                t,
                require_stable=require_stable,
                member_id=member_id,
                member_epoch=member_epoch,
            ),
        )
        return cast(GroupOffsets, reply)

    async def delete_offsets(self, group_id: str, wanted: Iterable[TopicPartition]) -> Codes:
        """Also raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        _require_name(group_id)
        reply = await self.coordinator.run(
            group_id, lambda s, now, t: s.offsets.delete_offsets(group_id, wanted, now, t)
        )
        return cast(Codes, reply)

    # -- administration

    def coordinated(self) -> list[AnyGroup]:
        """Every group whose coordinator is here, to be read only; groups with members first."""
        shards = self.coordinator.runtime.shards
        groups = [group for shard in shards for group in shard.groups.values()]
        return sorted(groups, key=lambda group: (not group.members, group.group_id))

    async def describe(self, group_id: str) -> DescribedGroup:
        """State, members, assignments."""
        reply = await self.coordinator.run(
            group_id, lambda s, now, t: s.administration.describe(group_id, now, t)
        )
        return cast(DescribedGroup, reply)

    async def list_groups(self, states: frozenset[str], types: frozenset[str]) -> list[ListedGroup]:
        """The groups of every shard here. Raises COORDINATOR_LOAD_IN_PROGRESS, as a part of the
        list would look like all of it.
        """
        if self.coordinator.runtime.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are being loaded")
        replies = await self.coordinator.run_on_all(
            lambda s, now, t: s.administration.list_groups(states, types, now, t)
        )
        return [row for reply in replies for row in cast(list[ListedGroup], reply)]

    async def delete_group(self, group_id: str) -> ErrorCode:
        """NONE, NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND."""
        await self.shares.delete_states(group_id)
        reply = await self.coordinator.run(
            group_id, lambda s, now, t: s.administration.delete_groups((group_id,), now, t)
        )
        return cast(dict[str, ErrorCode], reply)[group_id]


def _topics_deleted(topics: frozenset[str]) -> Command[GroupShard]:
    return lambda shard, now, token: shard.topics_deleted(topics, now, token)
