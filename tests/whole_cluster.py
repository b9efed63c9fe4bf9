"""Whole brokers in this process: real logs, replicas, listeners, controller; the store in memory.

Clients reach them over real sockets. ZooKeeper and gRPC have doubles; processes there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.client.admin.client import Admin
from headwater.client.connection import open_connection
from headwater.client.loop_thread import LoopThread
from headwater.client.values import NewTopic
from headwater.config.rows_broker import RACK_AWARE_SELECTOR
from headwater.ports.authorizer import Authorizer
from headwater.ports.network import PeerConnection
from headwater.system import SystemClock, SystemEntropy
from headwater.system_files import SystemFiles
from headwater.testing.memory_control import MemoryControlNetwork
from headwater.testing.memory_store import MemoryTree
from headwater.wire.control import (
    BrokerEndpoint,
    LeaderAndIsrRequest,
    PartitionState,
    ReplicaStateReply,
    ReplicaStateRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from headwater_broker.app.config import NodeConfig, from_properties
from headwater_broker.app.data_plane import DataPlaneParts, build_data_plane, build_listener
from headwater_broker.app.dynamic_config import DynamicConfigs
from headwater_broker.app.tiered_topics import TieredTopics
from headwater_broker.app.wiring import build_authorizer, controller_config
from headwater_broker.controller.controller import ControllerIdentity, ControllerService
from headwater_broker.coordinator.transaction.producer_ids import ProducerIds
from headwater_broker.log.log_manager import LogManager
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.metadata.controller_channel import ControllerChannel
from headwater_broker.metadata.leader_lookup import LeaderLookup
from headwater_broker.metadata.registration import RegistrationManager, ensure_cluster_id
from headwater_broker.metadata.topic_lookup import TopicLookup
from headwater_broker.metadata.znodes import BrokerRegistration
from headwater_broker.network.page_cache import PageCache
from headwater_broker.replica.ports import ReplicationPorts
from headwater_broker.replica.replication_config import ReplicationConfig

TICK_S = 0.1
WAIT_S = 20.0
CALL_S = 60.0


class WholeBroker:
    """One of them."""

    def __init__(
        self,
        config: NodeConfig,
        tree: MemoryTree,
        network: MemoryControlNetwork,
        cut_off: set[int],
        authorizer: Authorizer | None,
    ) -> None:
        self._authorizer = authorizer
        self.id = config.broker_id
        self.config = config
        self.address = f"broker{self.id}:1"
        self._cut_off = cut_off
        self._network = network
        self._store = tree.connect()
        self._clock, self._entropy = SystemClock(), SystemEntropy()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.pool = ThreadPoolExecutor(1)
        cluster_id = await ensure_cluster_id(self._store, self._entropy, None)
        self.view = MetadataCache(cluster_id, self._broker_epoch)
        self.dynamic = DynamicConfigs(self.config, self.view)
        self.logs = LogManager(
            SystemFiles(), list(self.config.log_dirs), broker_id=self.id, cluster_id=cluster_id,
            clock=self._clock, entropy=self._entropy, broker_properties=self.config.properties,
            offload=lambda job: self.pool.submit(job),
        )  # fmt: skip
        self.registration = RegistrationManager(
            self._store, self._clock, self._registration, session_timeout_ms=1000
        )
        self.controller = ControllerService(
            ControllerIdentity(
                broker_id=self.id, cluster_id=cluster_id, control_address=self.address,
                settings=lambda: self.dynamic.settings,
            ),
            self._store, self._network.calls(), self._clock, self._entropy,
            controller_config(self.config.values),
        )  # fmt: skip
        self.calls = ControllerChannel(
            self.id, self._broker_epoch, self._store, self._network.calls(), self.controller,
            self._clock,
        )  # fmt: skip
        built, self.acls = build_authorizer(self.config.values, self._clock, self._store)
        self.authorizer = self._authorizer or built
        self.data_plane = build_data_plane(self._parts(loop))
        self.replicas, self.services = self.data_plane.replicas, self.data_plane.services
        self.dynamic.on_change.append(
            lambda now: self.controller.reconfigure(controller_config(now.values))
        )
        self.logs.on_offline.append(self.replicas.directory_failed)
        self.listener = build_listener(self.dynamic, self.services, "PLAINTEXT")
        self.port = await self.listener.bind("127.0.0.1", 0)
        self.logs.load_all()
        self._network.serve(self.address, self._handlers())
        if self.acls is not None:
            await self.acls.start()
        await self.registration.start()
        await self.controller.start()
        await until(lambda: self.view.is_complete, "the controller's first word")
        await self.listener.serve()
        self._ticking = loop.create_task(self._tick())

    async def stop(self) -> None:
        """As a kill: the others see its session end; its logs are left as they are."""
        self._ticking.cancel()
        self._network.stop(self.address)
        await self.listener.close()
        await self.services.groups.close()
        await self.services.transactions.close()
        await self.services.shares.close()
        await self.services.share_states.close()
        await self.data_plane.transaction_channel.close()
        await self.data_plane.share_state_channel.close()
        await self.services.background.close()
        await self.replicas.close()
        await self.controller.stop()
        await self.registration.stop()
        if self.acls is not None:
            await self.acls.close()
        await self._store.close()
        self.logs.close()
        self.pool.shutdown()

    def lose_session(self, tree: MemoryTree) -> None:
        """Its session ends, and neither the store nor the controller can tell it: clients can."""
        self._store.suspend()
        tree.end_session(self._store.session_id)
        self._network.cut(self.address)

    def find_session(self) -> None:
        """The twin of `lose_session`: it comes back under a new session."""
        self._network.mend(self.address)
        self._store.resume()
        self._store.expire()

    def _broker_epoch(self) -> int:
        return self.registration.broker_epoch

    def _registration(self) -> BrokerRegistration:
        return BrokerRegistration(
            broker_id=self.id, cluster_id=self.view.cluster_id, control_address=self.address,
            endpoints=(BrokerEndpoint(host="127.0.0.1", port=self.port),), boot_id="boot",
            directory_ids=tuple(self.logs.directory_ids),
            rack=self.config.values.string("broker.rack") or None,
            clean_shutdown_epoch=self.logs.clean_broker_epoch,
            min_insync_replicas=self.config.values.integer("min.insync.replicas"),
        )  # fmt: skip

    def _replication_ports(self) -> ReplicationPorts:
        async def connect(host: str, port: int) -> PeerConnection:
            if self.id in self._cut_off:
                raise ConnectionError("cut off")
            return await open_connection(host, port, negotiate=False)

        return ReplicationPorts(
            clock=self._clock, entropy=self._entropy, connect=connect,
            control=self._network.calls(), alter_partition=self.calls.alter_partition,
            broker_epoch=self._broker_epoch, cluster_id=lambda: self.view.cluster_id,
            broker=lambda broker_id: self.view.brokers.get(broker_id),
            log_config=self.logs.log_config, on_peer_gone=lambda broker_id: None,
        )  # fmt: skip

    def _parts(self, loop: asyncio.AbstractEventLoop) -> DataPlaneParts:
        return DataPlaneParts(
            loop=loop, dynamic=self.dynamic, view=self.view, logs=self.logs,
            limits=ReplicationConfig(fetch_backoff_ms=100), replication=self._replication_ports(),
            controller=self.calls, authorizer=self.authorizer,
            acls=self.acls, warmer=PageCache(loop, self.pool),
            leads=LeaderLookup(self._store, self.id).is_leader,
            producer_ids=ProducerIds(self.calls.allocate_producer_ids),
            tiered_topic=TieredTopics(self.config, self.view).locate,
            is_topic_deleted=TopicLookup(self._store).is_deleted,
        )  # fmt: skip

    def _handlers(self) -> dict[Any, Any]:
        async def replica_state(request: ReplicaStateRequest) -> ReplicaStateReply:
            return self.replicas.replica_state(request)

        return {
            **self.controller.handlers(),
            LeaderAndIsrRequest: self.replicas.handle_leader_and_isr,
            StopReplicaRequest: self.replicas.handle_stop_replica,
            UpdateMetadataRequest: self.view.handle,
            ReplicaStateRequest: replica_state,
        }

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.replicas.isr_tick()
            self.logs.maintain_files()


class WholeCluster:
    """Brokers 0 to n-1; `properties` with _ for dots are every broker's, `{id}` in them its id."""

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        *,
        authorizer: Authorizer | None = None,
        **properties: str,
    ) -> None:
        self.folder = folder
        self._authorizer = authorizer
        self.tree = MemoryTree()
        self.network = MemoryControlNetwork()
        self.brokers: dict[int, WholeBroker] = {}
        self.cut_off: set[int] = set()
        """Those that can't reach other brokers' data planes: they do not follow."""
        self._count = count
        self._properties = {
            "offsets.topic.num.partitions": "2",
            "offsets.topic.replication.factor": str(min(count, 3)),
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": str(min(count, 3)),
            "group.initial.rebalance.delay.ms": "0",
            **{key.replace("_", "."): value for key, value in properties.items()},
        }

    async def __aenter__(self) -> WholeCluster:
        for broker_id in range(self._count):
            await self.start(broker_id)
        await until(
            lambda: all(len(b.view.brokers) == self._count for b in self.brokers.values()),
            "everybody knows everybody",
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker_id in list(self.brokers):
            await self.stop(broker_id)

    async def start(self, broker_id: int) -> WholeBroker:
        rows = {
            "broker.id": str(broker_id),
            "log.dirs": ",".join(
                str(self.folder / f"broker-{broker_id}{disk}") for disk in ("", "b")
            ),
            **{k: v.replace("{id}", str(broker_id)) for k, v in self._properties.items()},
        }
        broker = WholeBroker(
            from_properties(rows), self.tree, self.network, self.cut_off, self._authorizer
        )
        await broker.start()
        self.brokers[broker_id] = broker
        return broker

    async def stop(self, broker_id: int) -> None:
        await self.brokers.pop(broker_id).stop()

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` of any client."""
        return ",".join(f"127.0.0.1:{b.port}" for b in self.brokers.values())

    def controller(self) -> int:
        """Who is controller now."""
        return next(b.id for b in self.brokers.values() if b.controller.is_active)


async def until(holds: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Wait until it holds. Fails with `what`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not holds():
        assert loop.time() < deadline, f"never: {what}"
        await asyncio.sleep(0.005)


@contextmanager
def served_in_racks(folder: Path) -> Iterator[tuple[ServedCluster, int]]:
    """Three brokers, each alone in `rack-N`, consumers served by their rack, a topic `t`; and a
    follower of its partition."""
    properties = {"broker_rack": "rack-{id}", "replica_selector_class": RACK_AWARE_SELECTOR}
    with ServedCluster(folder, 3, **properties) as served:
        with Admin(served.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 1, 3)])
        leader = served.state("t").leader_id
        yield served, next(b for b in range(3) if b != leader)


class ServedCluster:
    """A `WholeCluster` on a loop of its own, so that blocking clients and commands can be used."""

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        *,
        authorizer: Authorizer | None = None,
        **properties: str,
    ) -> None:
        self.cluster = WholeCluster(folder, count, authorizer=authorizer, **properties)
        self._thread = LoopThread("whole-cluster")

    def __enter__(self) -> ServedCluster:
        self._call(self.cluster.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self.cluster.__aexit__())
        self._thread.stop()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._thread.call(work, CALL_S)

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` of any client."""
        return self.cluster.bootstrap

    def lose_session(self, broker_id: int) -> None:
        """A broker's session ends without its knowing: it is a zombie."""

        async def lose() -> None:
            self.cluster.brokers[broker_id].lose_session(self.cluster.tree)

        self._call(lose())

    def find_session(self, broker_id: int) -> None:
        """The zombie comes back."""

        async def find() -> None:
            self.cluster.brokers[broker_id].find_session()

        self._call(find())

    def stop(self, broker_id: int) -> None:
        """End a broker; its folder stays."""
        self._call(self.cluster.stop(broker_id))

    def start(self, broker_id: int) -> None:
        """Start it again on its folder."""
        self._call(self.cluster.start(broker_id))

    def state(self, topic: str, partition: int = 0) -> PartitionState:
        """A partition as the first broker sees it."""
        found = next(iter(self.cluster.brokers.values())).view.partition(topic, partition)
        assert found is not None, f"{topic}-{partition}"
        return found

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until it holds; looked at on the brokers' loop."""
        self._call(until(holds, what))
