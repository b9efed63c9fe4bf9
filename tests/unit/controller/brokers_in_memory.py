"""Fake brokers for tests of the controller: registration, control handlers, metadata cache."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.testing.memory_control import MemoryControlNetwork
from headwater.testing.memory_store import MemoryStore, MemoryTree
from headwater.wire.control import (
    BrokerEndpoint,
    LeaderAndIsrReply,
    LeaderAndIsrRequest,
    PartitionError,
    PartitionState,
    StopReplicaReply,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from headwater_broker.controller.controller import ControllerIdentity, ControllerService
from headwater_broker.controller.state import ControllerConfig
from headwater_broker.controller.timings import ControllerTimings
from headwater_broker.metadata import znodes
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.metadata.controller_channel import ControllerChannel
from headwater_broker.metadata.registration import RegistrationManager, ensure_cluster_id


class FakeClock:
    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class CountingEntropy:
    """Ids 1, 2, 3 ...; placement starts at `start`."""

    def __init__(self, start: float = 0.0) -> None:
        self.last = 0
        self.start = start

    def uuid(self) -> UUID:
        self.last += 1
        return UUID(int=self.last)

    def uniform(self, low: float, high: float) -> float:
        return min(low + self.start, high)

    def randbytes(self, size: int) -> bytes:
        return b"\1" * size


class FakeBroker:
    """The controller's side of a broker. Its replicas are the states that it received."""

    def __init__(
        self,
        broker_id: int,
        tree: MemoryTree,
        network: MemoryControlNetwork,
        entropy: CountingEntropy,
        config: ControllerConfig | None = None,
        directory: UUID | None = None,
        boot_id: str = "boot",
        clean_epoch: int = -1,
        timings: ControllerTimings | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.timings = timings
        self.address = f"broker{broker_id}:1"
        self.directory = directory or UUID(int=1000 + broker_id)
        self.boot_id = boot_id
        self.clean_epoch = clean_epoch
        self.store: MemoryStore = tree.connect()
        self.network = network
        self.entropy = entropy
        self.clock = FakeClock()
        self.config = config or ControllerConfig()
        self.replicas: dict[tuple[UUID, int], PartitionState] = {}
        self.stopped: list[tuple[str, int, bool]] = []
        self.refuse: Mapping[tuple[str, int], ErrorCode] = {}
        self.registration: RegistrationManager
        self.controller: ControllerService
        self.calls: ControllerChannel
        self.view: MetadataCache

    def described(self) -> znodes.BrokerRegistration:
        return znodes.BrokerRegistration(
            broker_id=self.broker_id,
            cluster_id=self.view.cluster_id,
            endpoints=(BrokerEndpoint(host="host", port=9000 + self.broker_id),),
            control_address=self.address,
            directory_ids=(self.directory,),
            boot_id=self.boot_id,
            clean_shutdown_epoch=self.clean_epoch,
        )

    async def start(self) -> None:
        cluster_id = await ensure_cluster_id(self.store, self.entropy, None)
        self.view = MetadataCache(cluster_id, lambda: self.registration.broker_epoch)
        self.registration = RegistrationManager(
            self.store, self.clock, self.described, session_timeout_ms=1000
        )
        self.controller = ControllerService(
            ControllerIdentity(
                broker_id=self.broker_id, cluster_id=cluster_id, control_address=self.address
            ),
            self.store,
            self.network.calls(),
            self.clock,
            self.entropy,
            self.config,
            self.timings,
        )
        handlers: dict[Any, Any] = dict(self.controller.handlers())
        handlers[LeaderAndIsrRequest] = self.leader_and_isr
        handlers[StopReplicaRequest] = self.stop_replica
        handlers[UpdateMetadataRequest] = self.view.handle
        self.network.serve(self.address, handlers)
        await self.registration.start()
        await self.controller.start()
        self.calls = ControllerChannel(
            self.broker_id,
            lambda: self.registration.broker_epoch,
            self.store,
            self.network.calls(),
            self.controller,
            self.clock,
        )

    async def kill(self) -> None:
        """Kill -9, with a supervisor that closes the session."""
        self.network.stop(self.address)
        await self.store.close()  # nothing of it reaches the store any more
        await self.controller.stop()
        await self.registration.stop()

    async def stop(self) -> None:
        await self.controller.stop()
        await self.registration.stop()
        self.network.stop(self.address)
        await self.store.close()

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrReply:
        if request.full:
            named = {(s.topic_id, s.partition) for s in request.partitions}
            self.replicas = {k: s for k, s in self.replicas.items() if k in named}
        rows = []
        for state in request.partitions:
            code = self.refuse.get((state.topic, state.partition), ErrorCode.NONE)
            if code is ErrorCode.NONE:
                self.replicas[state.topic_id, state.partition] = state
            row = PartitionError(
                topic_id=state.topic_id,
                partition=state.partition,
                error_code=code,
                directory_id=self.directory,
            )
            rows.append(row)
        return LeaderAndIsrReply(error_code=0, partitions=tuple(rows))

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaReply:
        rows = []
        for row in request.partitions:
            self.replicas.pop((row.topic_id, row.partition), None)
            self.stopped.append((row.topic, row.partition, row.delete))
            done = PartitionError(
                topic_id=row.topic_id,
                partition=row.partition,
                error_code=0,
                directory_id=self.directory,
            )
            rows.append(done)
        return StopReplicaReply(error_code=0, partitions=tuple(rows))


class Cluster:
    """Fake brokers on one metadata store."""

    def __init__(
        self,
        count: int,
        config: ControllerConfig | None = None,
        timings: ControllerTimings | None = None,
    ) -> None:
        self.tree = MemoryTree()
        self.network = MemoryControlNetwork()
        self.entropy = CountingEntropy()
        self.config = config
        self.timings = timings
        self.brokers: dict[int, FakeBroker] = {}
        self._ids = range(1, count + 1)

    async def __aenter__(self) -> Cluster:
        for broker_id in self._ids:
            await self.add(broker_id)
        await until(lambda: all(len(b.view.brokers) == len(self._ids) for b in self.all()))
        return self

    async def __aexit__(self, *_error: object) -> None:
        for broker in self.all():
            await broker.stop()

    def all(self) -> list[FakeBroker]:
        return list(self.brokers.values())

    async def add(self, broker_id: int, **options: Any) -> FakeBroker:
        broker = FakeBroker(
            broker_id,
            self.tree,
            self.network,
            self.entropy,
            self.config,
            timings=self.timings,
            **options,
        )
        await broker.start()
        self.brokers[broker_id] = broker
        return broker

    async def kill(self, broker_id: int) -> FakeBroker:
        broker = self.brokers.pop(broker_id)
        await broker.kill()
        return broker

    def controller(self) -> FakeBroker:
        return next(b for b in self.all() if b.controller.is_active)


async def until(holds: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Wait, in loop time, until the condition holds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not holds():
        assert loop.time() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.001)
