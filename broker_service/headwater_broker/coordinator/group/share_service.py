"""The share groups of this broker (KIP-932), as API handlers use them; what the persister is to
do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import cast
from uuid import UUID

from headwater.errors import HeadwaterError, KafkaError
from headwater.ordered import OrderedSet
from headwater.wire.apis.k76_share_group_heartbeat import ShareGroupHeartbeatResponse
from headwater.wire.apis.k77_share_group_describe import DescribedGroup
from headwater_broker.coordinator.common.service import CoordinatorService
from headwater_broker.coordinator.group.shard import GroupShard
from headwater_broker.coordinator.group.share.group import TopicShare
from headwater_broker.coordinator.group.share.heartbeat import (
    Beginning,
    HeartbeatReply,
    ShareHeartbeat,
)
from headwater_broker.coordinator.group.share.offsets import (
    Alteration,
    Deletion,
    NewStart,
    Partition,
)
from headwater_broker.metadata.cache import MetadataDelta
from headwater_broker.replica.share.ports import (
    UNKNOWN_START_OFFSET,
    Persister,
    SharePartitionKey,
    ShareStateSummary,
)

logger = logging.getLogger(__name__)


class ShareGroupService:
    """Runs each request on the shard of its group. Methods raise KafkaError as `GroupService`."""

    def __init__(self, coordinator: CoordinatorService[GroupShard], persister: Persister) -> None:
        self._coordinator = coordinator
        self._persister = persister
        self._tasks = OrderedSet[asyncio.Task[None]]()

    async def close(self) -> None:
        """Give up what is asked of the persister; another coordinator asks again."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def heartbeat(self, request: ShareHeartbeat) -> ShareGroupHeartbeatResponse:
        """ShareGroupHeartbeat. States that are to begin do so after the reply."""
        reply = cast(
            HeartbeatReply,
            await self._coordinator.run(
                request.group_id, lambda s, now, t: s.shares.heartbeat(request, now, t)
            ),
        )
        if reply.beginning is not None:
            task = asyncio.get_running_loop().create_task(self._begin(reply.beginning))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return reply.response

    async def describe(self, group_id: str) -> DescribedGroup:
        """ShareGroupDescribe of one group."""
        reply = await self._coordinator.run(
            group_id, lambda s, now, t: s.shares.describe(group_id, now, t)
        )
        return cast(DescribedGroup, reply)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """A listener of `MetadataCache.on_change`."""
        names = delta.topics | delta.deleted | delta.configs
        if names:
            for shard in self._coordinator.runtime.shards:
                shard.shares.topics_changed(names)

    # -- states that begin

    async def _begin(self, asked: Beginning) -> None:
        """Members are assigned what has begun; the rest is asked for again by a later heartbeat."""
        starts = [
            (SharePartitionKey(asked.group_id, topic, index), UNKNOWN_START_OFFSET)
            for topic, share in asked.topics.items()
            for index in sorted(share.partitions)
        ]
        try:
            errors = await self._start_anew(
                asked.group_id, asked.state_epoch, starts, asked.deleting
            )
        except HeadwaterError as error:  # a later heartbeat asks again
            logger.warning(
                "share group %s: its share partitions cannot be initialized: %s",
                asked.group_id,
                error,
            )
            return
        begun: dict[UUID, TopicShare] = {}
        for topic, share in asked.topics.items():
            indexes = frozenset(
                index
                for index in share.partitions
                if SharePartitionKey(asked.group_id, topic, index) not in errors
            )
            if indexes:
                begun[topic] = TopicShare(share.name, indexes)
        try:
            await self._begun(asked.group_id, begun)
        except HeadwaterError as error:  # another coordinator asks again
            logger.warning(
                "share group %s: initialized share partitions are not recorded: %s",
                asked.group_id,
                error,
            )

    async def _initialize(
        self, state_epoch: int, starts: Iterable[tuple[SharePartitionKey, int]]
    ) -> dict[SharePartitionKey, KafkaError]:
        """Those that failed. A newer state epoch is one that a later request has begun."""
        rows = list(starts)
        results = await asyncio.gather(
            *(self._persister.initialize(key, state_epoch, start) for key, start in rows),
            return_exceptions=True,
        )
        return _failed([key for key, _ in rows], results, "begin")

    async def _start_anew(
        self,
        group_id: str,
        state_epoch: int,
        starts: Iterable[tuple[SharePartitionKey, int]],
        deleting: Mapping[UUID, int],
    ) -> dict[SharePartitionKey, KafkaError]:
        """As `_initialize`. Of the topics in `deleting`, {topic: partitions}, an earlier deletion
        did not end: what is left goes first, as a state that is there would be kept."""
        rows = list(starts)
        if not deleting:
            return await self._initialize(state_epoch, rows)
        left = [(topic, index) for topic, count in deleting.items() for index in range(count)]
        failed = await self._delete(group_id, left)
        await self._deleted(group_id, deleting.keys() - failed.keys())
        errors = await self._initialize(
            state_epoch, [row for row in rows if row[0].topic_id not in failed]
        )
        return errors | {key: failed[key.topic_id] for key, _ in rows if key.topic_id in failed}

    async def _deleted(self, group_id: str, topics: Iterable[UUID]) -> None:
        gone = list(topics)
        await self._coordinator.run(
            group_id, lambda s, now, t: s.shares.offsets.deleted(group_id, gone, now, t)
        )

    async def _begun(self, group_id: str, topics: Mapping[UUID, TopicShare]) -> None:
        await self._coordinator.run(
            group_id, lambda s, now, t: s.shares.begun(group_id, topics, now, t)
        )

    # -- administration

    async def summaries(
        self, group_id: str, wanted: Iterable[Partition] | None
    ) -> dict[Partition, ShareStateSummary | KafkaError]:
        """The states of these share partitions; None: of all that have begun."""
        begun = cast(
            list[Partition],
            await self._coordinator.run(
                group_id, lambda s, now, t: s.shares.offsets.begun(group_id, now, t)
            ),
        )
        rows = begun if wanted is None else list(wanted)
        results = await asyncio.gather(
            *(self._persister.read_summary(SharePartitionKey(group_id, *row)) for row in rows),
            return_exceptions=True,
        )
        out: dict[Partition, ShareStateSummary | KafkaError] = {}
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, BaseException) and not isinstance(result, KafkaError):
                raise result
            out[row] = result
        return out

    async def alter_offsets(
        self, group_id: str, wanted: Iterable[tuple[str, int, int]]
    ) -> tuple[Alteration, dict[SharePartitionKey, KafkaError]]:
        """(what was altered or refused, what failed). Raises NON_EMPTY_GROUP, and of a group of
        another kind GROUP_ID_NOT_FOUND."""
        rows = list(wanted)
        change = cast(
            Alteration,
            await self._coordinator.run(
                group_id, lambda s, now, t: s.shares.offsets.alter(group_id, rows, now, t)
            ),
        )
        starts = [(_key(group_id, start), start.start_offset) for start in change.starts]
        errors = await self._start_anew(group_id, change.state_epoch, starts, change.deleting)
        done = Alteration(
            starts=[start for start in change.starts if _key(group_id, start) not in errors]
        )
        await self._begun(group_id, done.topics)
        return change, errors

    async def delete_offsets(
        self, group_id: str, topics: Iterable[str]
    ) -> tuple[Deletion, dict[UUID, KafkaError]]:
        """(what was deleted or is not known, the topics that failed). Raises GROUP_ID_NOT_FOUND,
        NON_EMPTY_GROUP."""
        names = list(topics)
        deletion = cast(
            Deletion,
            await self._coordinator.run(
                group_id, lambda s, now, t: s.shares.offsets.delete(group_id, names, now, t)
            ),
        )
        failed = await self._delete(group_id, deletion.partitions)
        await self._deleted(group_id, deletion.topics.keys() - failed.keys())
        return deletion, failed

    async def delete_states(self, group_id: str) -> None:
        """Before the group is deleted; nothing for a group of another kind. Raises NON_EMPTY_GROUP,
        and what the persister raises: the group stays then."""
        shard = await self._coordinator.shard(group_id)
        if shard.shares.find(group_id) is None:
            return
        deletion = cast(
            Deletion,
            await self._coordinator.run(
                group_id, lambda s, now, t: s.shares.offsets.delete_all(group_id, now, t)
            ),
        )
        for error in (await self._delete(group_id, deletion.partitions)).values():
            raise error

    async def _delete(
        self, group_id: str, partitions: Iterable[Partition]
    ) -> dict[UUID, KafkaError]:
        keys = [SharePartitionKey(group_id, *row) for row in partitions]
        results = await asyncio.gather(
            *(self._persister.delete(key) for key in keys), return_exceptions=True
        )
        failed = _failed(keys, results, "be deleted")
        return {key.topic_id: error for key, error in failed.items()}


def _key(group_id: str, start: NewStart) -> SharePartitionKey:
    return SharePartitionKey(group_id, start.topic.topic_id, start.partition)


def _failed(
    keys: Iterable[SharePartitionKey], results: Iterable[object], verb: str
) -> dict[SharePartitionKey, KafkaError]:
    failed: dict[SharePartitionKey, KafkaError] = {}
    for key, result in zip(keys, results, strict=True):
        if not isinstance(result, BaseException):
            continue
        if not isinstance(result, KafkaError):
            raise result
        failed[key] = result
        logger.warning("the state of %s cannot %s: %s", key, verb, result)
    return failed
