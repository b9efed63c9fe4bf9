"""The share group of a world: what is checked of it besides what its members see.

Start offsets, as tools ask for them, must not go back. After healing the group must get through
both partitions, and each record must have been acknowledged, or delivered as often as it may.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headwater.records.record import read_records
from headwater.testing.clocks import EPOCH_MS
from headwater.wire.apis import k44_incremental_alter_configs as k44
from headwater.wire.apis import k90_describe_share_group_offsets as k90
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.share.led_partition import LedSharePartition
from sim.clients import LOST, Client, Creator
from sim.invariants import Invariant
from sim.plan import SHARED
from sim.share_members import GROUP_ID, ShareMember
from sim.transaction_clients import GROUP, CoordinatorClient

if TYPE_CHECKING:
    from sim.world import World

GROUP_RESOURCE = 32
WATCH_S = (0.3, 1.0)


class StartWatcher(CoordinatorClient):
    """Asks for the start offsets of the group, which must not go back."""

    async def work(self) -> None:
        ledger, random = self.world.groups.shares, self.world.random
        topic = k90.DescribeShareGroupOffsetsRequestTopic(
            topic_name=SHARED, partitions=tuple(range(self.world.plan.topics[SHARED]))
        )
        group = k90.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP_ID, topics=(topic,))
        request = k90.DescribeShareGroupOffsetsRequest(groups=(group,))
        while not self.world.is_over:
            await asyncio.sleep(random.uniform(*WATCH_S))
            host = await self.find_coordinator((GROUP, GROUP_ID))
            if host is None:
                continue
            asked_s = self.world.scheduler.now
            try:
                reply = await self.ask(host, request, k90.DescribeShareGroupOffsetsResponse, 1)
            except LOST:
                continue
            for row in (r for g in reply.groups for t in g.topics for r in t.partitions):
                if not row.error_code and row.start_offset >= 0:
                    now_s = self.world.scheduler.now
                    ledger.started(row.partition_index, row.start_offset, asked_s, now_s)


class ShareCreator(Creator):
    """Creates the topics, and lets the group begin with the oldest record, on every broker."""

    async def work(self) -> None:
        await super().work()
        config = k44.AlterableConfig(
            name="share.auto.offset.reset", config_operation=0, value="earliest"
        )
        resource = k44.AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=GROUP_ID, configs=(config,)
        )
        request = k44.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        while not all(
            broker.node is not None and broker.node.view.group_configs.get(GROUP_ID)
            for broker in self.world.brokers
        ):
            try:
                await self.ask(
                    await self.any_broker(), request, k44.IncrementalAlterConfigsResponse, 1
                )
            except LOST:
                pass
            await self.pause()


class NoSharedRecordIsLost(Invariant):
    """What the group is done with was acknowledged, or was delivered as often as the limit says."""

    def ended(self) -> None:
        for index in range(self.world.plan.topics[SHARED]):
            for _, partition in self.world.replicas_of((SHARED, index)):
                if partition.is_leader:
                    self._check(index, partition)

    def _check(self, index: int, partition: Partition) -> None:
        for segment in partition.log.segments:
            data = bytes(segment.file.data)  # type: ignore[attr-defined]
            for record in read_records(data):
                written_s = (record.timestamp - EPOCH_MS) / 1000
                why = self.world.groups.shares.missing(index, record.offset, written_s)
                if why:
                    self.fail(why)


def share_members(world: World) -> list[Client]:
    """The members of the plan, and a watcher beside them."""
    if not world.plan.share_members:
        return []
    members = [ShareMember(world, number) for number in range(world.plan.share_members)]
    return [*members, StartWatcher(world, "watcher")]


def left_to_share(world: World) -> str:
    """What the group is not done with; empty without a group."""
    for index in range(world.plan.topics[SHARED] if world.plan.share_members else 0):
        led = _led(world, index)
        if led is None or led.machine is None or led.is_over:
            return f"nobody shares {SHARED}-{index}"
        if led.machine.start_offset != led.partition.high_watermark:
            return (
                f"{SHARED}-{index}: the group starts at {led.machine.start_offset} of "
                f"{led.partition.high_watermark}"
            )
    return ""


def _led(world: World, index: int) -> LedSharePartition | None:
    for broker in world.brokers:
        for led in broker.node.services.shares if broker.node is not None else ():
            if (
                led.key.group_id == GROUP_ID
                and led.key.partition == index
                and led.partition.is_leader
            ):
                return led
    return None
