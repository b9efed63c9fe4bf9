"""The fetch loops of this broker, one per leader broker; loops without partitions are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from headwater.ordered import OrderedSet
from headwater.wire.control import LiveBroker
from headwater_broker.replica.fetcher import Fetcher, FetcherPorts
from headwater_broker.replica.out_of_range_recovery import OutOfRangeRecovery
from headwater_broker.replica.partition import NO_LEADER, Partition
from headwater_broker.replica.ports import ReplicationPorts
from headwater_broker.replica.replication_config import ReplicationConfig
from headwater_broker.replica.replication_quota import ReplicationQuota


class FetcherManager:
    """Assigns followed partitions to the fetch loop of their leader."""

    def __init__(
        self,
        broker_id: int,
        limits: ReplicationConfig,
        ports: ReplicationPorts,
        live_broker: Callable[[int], LiveBroker | None],
        quota: ReplicationQuota,
    ) -> None:
        self._broker_id = broker_id
        self._limits = limits
        self._live_broker = live_broker
        self._by_leader: dict[int, Fetcher] = {}
        self._closing = OrderedSet[asyncio.Task[None]]()
        self._closed = False
        self._is_shutting_down = False
        recovery = OutOfRangeRecovery(broker_id, ports.control, self._control_address)
        self._ports = FetcherPorts(
            broker_id=broker_id,
            broker_epoch=ports.broker_epoch,
            cluster_id=ports.cluster_id,
            clock=ports.clock,
            entropy=ports.entropy,
            connect=ports.connect,
            endpoint=self._endpoint,
            on_peer_gone=ports.on_peer_gone,
            recover=recovery.run,
            quota=quota,
        )

    def follow(self, partitions: list[Partition]) -> None:
        """Fetch these partitions from their present leaders only."""
        if self._closed:
            return
        by_leader: dict[int, list[Partition]] = {}
        for partition in partitions:
            self.unfollow(partition)
            is_handed_over = self._is_shutting_down and self._broker_id not in partition.isr
            if partition.leader_id != NO_LEADER and not is_handed_over:
                by_leader.setdefault(partition.leader_id, []).append(partition)
        for leader_id, rows in by_leader.items():
            fetcher = self._by_leader.get(leader_id)
            if fetcher is None:
                fetcher = Fetcher(leader_id, self._limits, self._ports)
                self._by_leader[leader_id] = fetcher
            fetcher.follow(rows)

    def begin_controlled_shutdown(self) -> None:
        """Do not start to follow partitions that are handed over and whose ISR this broker left:
        its fetches would only have the new leaders propose it for the ISR again."""
        self._is_shutting_down = True

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching this partition."""
        for fetcher in self._by_leader.values():
            fetcher.unfollow(partition.topic_id, partition.partition)

    def drop_idle(self) -> None:
        """Stop the loops that follow no partition."""
        for leader_id in [b for b, fetcher in self._by_leader.items() if not len(fetcher)]:
            self._close_later(self._by_leader.pop(leader_id).close())

    def _close_later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Stop all loops."""
        self._closed = True
        fetchers = list(self._by_leader.values())
        self._by_leader.clear()
        await asyncio.gather(*(f.close() for f in fetchers), *self._closing)

    def describe(self) -> list[dict[str, Any]]:
        """For the status document."""
        return [
            {"leader": b, "partitions": len(f), "fetches": f.fetches_total}
            for b, f in sorted(self._by_leader.items())
        ]

    def _endpoint(self, broker_id: int) -> tuple[str, int] | None:
        broker = self._live_broker(broker_id)
        if broker is None:
            return None
        for endpoint in broker.endpoints:
            if endpoint.listener == self._limits.listener:
                return endpoint.host, endpoint.port
        return None

    def _control_address(self, broker_id: int) -> str | None:
        broker = self._live_broker(broker_id)
        return None if broker is None else broker.control_address
