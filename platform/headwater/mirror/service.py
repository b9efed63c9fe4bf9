"""One process of a mirror: connects both clusters, joins the mirror's group, runs its buckets."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine
from typing import Any

from headwater.client.admin.topics import TopicCalls
from headwater.client.cluster import Cluster
from headwater.client.errors import TopicAlreadyExistsError
from headwater.client.values import NewTopic, TopicPartition
from headwater.errors import ErrorCode, HeadwaterError, KafkaError, UsageError
from headwater.mirror.acl_sync import AclSync
from headwater.mirror.bucket import Bucket
from headwater.mirror.config import MirrorConfig
from headwater.mirror.core.state import positions_topic
from headwater.mirror.cycle_detection import read_reverse
from headwater.mirror.group_sync import GroupSync
from headwater.mirror.membership import buckets_of, group_membership
from headwater.mirror.parts import MirrorParts
from headwater.mirror.state_reader import read_state
from headwater.mirror.topic_sync import TopicSync

BOOTSTRAP_MS = 30_000
TICK_S = 0.2
SLOWEST_STOP_S = 10.0
POSITIONS_CONFIGS = {
    "cleanup.policy": "compact", "segment.bytes": "16777216", "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.2",
}  # fmt: skip
"""Cleaned often: who takes over a bucket reads its whole partition."""
log = logging.getLogger(__name__)


class MirrorService:
    """Runs until `stop`, or until the mirror is promoted."""

    def __init__(self, config: MirrorConfig) -> None:
        self.config = config
        self.buckets: dict[int, Bucket] = {}
        self.topic = positions_topic(config.mirror_id)
        self._source, self._target = config.source.cluster(), config.target.cluster()
        self._admin_source, self._admin_target = config.source.cluster(), config.target.cluster()
        self._members = config.target.cluster()
        self._sync = TopicSync(self._admin_source, self._admin_target, config)
        self._groups = GroupSync(self._admin_source, self._admin_target, config)
        self._acls = AclSync(self._admin_source, self._admin_target)
        owner = f"{config.target.options.client_id}@{socket.gethostname()}:{os.getpid()}"
        self._parts = MirrorParts(config, self._source, self._target, owner, config.buckets)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """Every connection pool."""
        return (
            self._source, self._target, self._admin_source, self._admin_target, self._members,
        )  # fmt: skip

    def stop(self) -> None:
        """End `run` after the open transactions."""
        self._stopping.set()

    async def run(self) -> None:
        """Mirror. Raises PromotedError, UsageError, KafkaError that no retry cures."""
        try:
            await self._connect()
            self._parts.buckets = await ensure_positions(self._admin_target, self.config)
            target_id = self._target.cache.cluster_id
            self._parts.reverse = await read_reverse(self._admin_source, target_id)
            if self.config.starts_latest:
                numbers = range(self._parts.buckets)
                state = await read_state(self._admin_target, self.topic, numbers)
                self._parts.mirrored_before = frozenset(
                    (tp.topic, at.source_topic_id) for tp, at in state.positions.items()
                )
            jobs = [self._share_buckets(), self._follow_topics()]
            if self.config.syncs_groups:
                jobs.append(self._groups.follow(self.buckets))
            await self._until_stopped(jobs)
        finally:
            await self._close()

    async def _connect(self) -> None:
        for cluster, side in zip(
            self.clusters, ("source", "target", "source", "target", "target"), strict=True
        ):
            try:
                await cluster.bootstrap(BOOTSTRAP_MS)
            except KafkaError as error:
                raise KafkaError(error.code, f"the mirror's {side}: {error.detail}") from error
        ids = self._source.cache.cluster_id, self._target.cache.cluster_id
        if ids[0] and ids[0] == ids[1]:
            raise UsageError(f"source and target are one cluster (id {ids[0]}): a mirror needs two")

    async def _until_stopped(self, jobs: list[Coroutine[Any, Any, None]]) -> None:
        tasks = [asyncio.get_running_loop().create_task(job) for job in jobs]
        tasks.append(asyncio.get_running_loop().create_task(self._wait_for_stop()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_for_stop(self) -> None:
        await self._stopping.wait()

    async def _close(self) -> None:
        for bucket in self.buckets.values():
            bucket.stop()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=SLOWEST_STOP_S)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for cluster in self.clusters:
            await cluster.close()

    async def _share_buckets(self) -> None:
        """Join the group, and again whenever it rebalances; run what it assigns."""
        membership = group_membership(self._members, self.config, self.topic)
        try:
            while True:
                membership.last_poll = self._members.clock.monotonic()
                if membership.rejoin_needed:
                    owned = [TopicPartition(self.topic, b) for b in self.buckets]
                    wanted = buckets_of(await membership.join(owned))
                    gone = self.buckets.keys() - wanted
                    await self._stop_buckets(sorted(gone))
                    self._start_buckets([b for b in wanted if b not in self.buckets])
                    membership.rejoin_needed = membership.rejoin_needed or bool(gone)
                for number, task in list(self._tasks.items()):
                    if task.done():
                        task.result()
                        raise HeadwaterError(f"bucket {number} ended")
                await asyncio.sleep(TICK_S)
        finally:
            await membership.leave("the mirror stops")

    def _start_buckets(self, numbers: list[int]) -> None:
        for number in numbers:
            bucket = Bucket(number, self._parts)
            self.buckets[number] = bucket
            self._tasks[number] = asyncio.get_running_loop().create_task(bucket.run())
        if numbers:
            log.warning("mirroring buckets %s", ", ".join(map(str, sorted(self.buckets))))

    async def _stop_buckets(self, numbers: list[int]) -> None:
        for number in numbers:
            self.buckets[number].stop()
        for number in numbers:
            task = self._tasks.pop(number)
            await asyncio.wait([task], timeout=SLOWEST_STOP_S)
            task.cancel()
            del self.buckets[number]

    async def _follow_topics(self) -> None:
        """Look for topics and partitions, as often as the config says."""
        trouble = ""
        while True:
            try:
                await self._sync.refresh(changes_target=0 in self.buckets)
                self._parts.first_counts = self._sync.first_counts
                self._parts.partitions = self._sync.partitions()
                self._parts.troubles = [f"{t}: {why}" for t, why in self._sync.trouble.items()]
                if self.config.syncs_acls and 0 in self.buckets:
                    await self._acls.sync(sorted(self._sync.topics), self.buckets[0])
                trouble = ""
            except (KafkaError, OSError) as error:
                if not trouble:
                    log.warning("the topics cannot be looked at: %s", error)
                trouble = str(error) or type(error).__name__
            has_any = bool(self._parts.partitions) or not self.buckets
            await asyncio.sleep(self.config.refresh_s if has_any else 1.0)


async def ensure_positions(target: Cluster, config: MirrorConfig) -> int:
    """Create the topic of positions if it is missing; how many buckets it has. Raises UsageError
    when that is not what the config says."""
    calls, name = TopicCalls(target), positions_topic(config.mirror_id)
    factor = config.replication_factor
    try:
        await calls.create(
            [NewTopic(name, config.buckets, factor, POSITIONS_CONFIGS)], 30_000, validate_only=False
        )
    except TopicAlreadyExistsError:
        pass
    except KafkaError as error:
        if error.code is ErrorCode.INVALID_REPLICATION_FACTOR:
            raise UsageError(f"replication.factor: {error.detail}") from error
        raise
    count = len((await calls.describe([name]))[0].partitions)
    if count != config.buckets and "mirror.buckets" in config.given:
        raise UsageError(
            f"mirror {config.mirror_id} has {count} buckets since its first run: set "
            f"mirror.buckets={count}, or begin a mirror of another mirror.id"
        )
    return count
