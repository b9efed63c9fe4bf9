"""Translates the offsets of groups: a consumer that moves to the target goes on where it was.

Each owner of a bucket writes the offsets of the bucket's partitions, as it has their map. What is
to be written is stored first: after a crash in between, the target has the offset before or this
one, and both are the mirror's.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping

from headwater.client.admin.groups import GroupCalls
from headwater.client.cluster import Cluster
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.errors import KafkaError
from headwater.mirror.bucket import Bucket
from headwater.mirror.config import MirrorConfig
from headwater.mirror.core.group_offset_writes import GroupPlan, Translate, plan
from headwater.mirror.core.state import GroupOffset, group_record

EMPTY = ("Empty", "Dead")
NEVER = re.compile(r"__.*|console-consumer-.*")
PROTOCOLS = ("", "consumer")
"""Of groups that have committed offsets: Connect's workers and others have none."""
log = logging.getLogger(__name__)


class GroupSync:
    """Reads the source's groups and writes the target's."""

    def __init__(self, source: Cluster, target: Cluster, config: MirrorConfig) -> None:
        self.foreign: dict[str, list[TopicPartition]] = {}
        """Group -> partitions that a consumer of the target has committed itself."""
        self.trouble = ""
        """Why the last round failed."""
        self._settled: dict[tuple[str, int], dict[TopicPartition, GroupOffset]] = {}
        """(group, bucket) -> what this process has written, or found written."""
        self._source = GroupCalls(source)
        self._target = GroupCalls(target)
        self._config = config

    async def groups(self) -> list[str]:
        """The source's groups that are mirrored."""
        return [
            g.group_id
            for g in await self._source.list_groups()
            if g.group_id in self._config.groups
            and g.protocol_type in PROTOCOLS
            and not NEVER.fullmatch(g.group_id)
        ]

    async def source_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """A group's offsets in the source."""
        return (await self._source.offsets([group]))[group]

    async def sync(self, buckets: Mapping[int, Bucket]) -> None:
        """One round over all groups. Raises KafkaError when a cluster does not answer."""
        for group in await self.groups():
            offsets = await self.source_offsets(group)
            for bucket in list(buckets.values()):
                mine = {tp: at for tp, at in offsets.items() if tp in bucket.copies}
                if mine:
                    await self._sync_bucket(group, mine, bucket)

    async def _sync_bucket(
        self, group: str, offsets: dict[TopicPartition, OffsetAndMetadata], bucket: Bucket
    ) -> None:
        known = bucket.state.groups.get(group, {})
        if (
            known
            and self._settled.get((group, bucket.number)) == known
            and all(
                tp in known
                and known[tp][:2] == (at.offset, bucket.translate(tp, at.offset))
                and known[tp].era == bucket.era
                for tp, at in offsets.items()
            )
        ):
            return  # nothing has moved since the target was asked
        made = await self.plan(group, offsets, known, bucket.translate, bucket.era)
        if made.known != known:
            if not await bucket.append([group_record(group, made.known)]):
                return  # the next round tries again
            bucket.state.groups[group] = made.known  # not before: what is not stored is unknown
        if made.writes:
            await self._target.alter_offsets(group, made.writes)
        self._settled[group, bucket.number] = made.known

    async def plan(
        self,
        group: str,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        known: Mapping[TopicPartition, GroupOffset],
        translate: Translate,
        era: int,
    ) -> GroupPlan:
        """What to write for a group, as the target is now."""
        now = (await self._target.offsets([group]))[group]
        is_empty = (await self._target.describe([group]))[group].state in EMPTY
        made = plan(offsets, now, known, translate, is_empty=is_empty, era=era)
        if made.foreign and made.foreign != self.foreign.get(group):
            names = ", ".join(f"{t}-{p}" for t, p in made.foreign)
            log.warning("group %s: the target has offsets of its own for %s", group, names)
        self.foreign[group] = made.foreign
        return made

    async def write(self, group: str, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Write offsets of a plan."""
        await self._target.alter_offsets(group, offsets)

    async def follow(self, buckets: Mapping[int, Bucket]) -> None:
        """`sync` as often as the config says."""
        while True:
            await asyncio.sleep(self._config.groups_s)
            try:
                await self.sync(buckets)
                self.trouble = ""
            except (KafkaError, OSError) as error:
                if not self.trouble:
                    log.warning("the groups' offsets are not translated: %s", error)
                self.trouble = str(error) or type(error).__name__
