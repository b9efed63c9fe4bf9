"""Three brokers' logs, replicas and listeners in this process, over real sockets.

No ZooKeeper: the controller is this file (`elect`, `alter_partition`).
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from headwater.client.connection import open_connection
from headwater.errors import ErrorCode
from headwater.ports.authorizer import AllowAll
from headwater.ports.network import PeerConnection
from headwater.system import SystemClock, SystemEntropy
from headwater.system_files import SystemFiles
from headwater.wire.control import (
    AlterPartitionReply,
    AlterPartitionRequest,
    AlterPartitionResult,
    BrokerEndpoint,
    ConfigEntry,
    LeaderAndIsrRequest,
    LiveBroker,
    PartitionState,
    ReplicaStateReply,
    ReplicaStateRequest,
    TopicState,
    UpdateMetadataRequest,
)
from headwater.wire.schema import Message
from headwater_broker.app.config import from_properties
from headwater_broker.app.data_plane import DataPlaneParts, build_data_plane, build_listener
from headwater_broker.app.dynamic_config import DynamicConfigs
from headwater_broker.app.tiered_topics import TieredTopics
from headwater_broker.coordinator.transaction.producer_ids import ProducerIds
from headwater_broker.log.log_manager import LogManager
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.network.page_cache import PageCache
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.ports import ReplicationPorts
from headwater_broker.replica.replication_config import ReplicationConfig

CLUSTER_ID = "trio"
BROKERS = (1, 2, 3)


async def connect(host: str, port: int) -> PeerConnection:
    return await open_connection(host, port, negotiate=False)


class TrioBroker:
    """One of three."""

    def __init__(self, broker_id: int, folder: Path, trio: Trio) -> None:
        self.id = broker_id
        self.trio = trio
        self.config = from_properties({"broker.id": str(broker_id), "log.dirs": str(folder)})
        self.port = 0
        self.epoch = 1
        self.gone: list[int] = []

    async def start(self) -> None:
        clock, entropy = SystemClock(), SystemEntropy()
        self.pool = ThreadPoolExecutor(1)
        self.logs = LogManager(
            SystemFiles(),
            list(self.config.log_dirs),
            broker_id=self.id,
            cluster_id=CLUSTER_ID,
            clock=clock,
            entropy=entropy,
            broker_properties=self.config.properties,
            offload=lambda job: self.pool.submit(job),
        )
        self.logs.load_all()
        self.view = MetadataCache(CLUSTER_ID, lambda: self.epoch)
        self.dynamic = DynamicConfigs(self.config, self.view)
        ports = ReplicationPorts(
            clock=clock,
            entropy=entropy,
            connect=connect,
            control=self.trio,  # type: ignore[arg-type]
            alter_partition=self.trio.alter_partition,
            broker_epoch=lambda: self.epoch,
            cluster_id=lambda: CLUSTER_ID,
            broker=lambda broker_id: None,
            log_config=self.logs.log_config,
            on_peer_gone=self.gone.append,
        )
        self.data_plane = build_data_plane(
            DataPlaneParts(
                loop=asyncio.get_running_loop(),
                dynamic=self.dynamic,
                view=self.view,
                logs=self.logs,
                limits=self.trio.limits,
                replication=ports,
                controller=self.trio,  # type: ignore[arg-type]
                authorizer=AllowAll(),
                warmer=PageCache(asyncio.get_running_loop(), self.pool),
                leads=self._leads,
                producer_ids=ProducerIds(self.trio.allocate_producer_ids),
                tiered_topic=TieredTopics(self.config, self.view).locate,
            )
        )
        self.replicas, self.services = self.data_plane.replicas, self.data_plane.services
        self.logs.on_offline.append(self.replicas.directory_failed)
        self.listener = build_listener(self.dynamic, self.services, "PLAINTEXT")
        self.port = await self.listener.start("127.0.0.1", self.port)

    async def stop(self) -> None:
        await self.replicas.close()
        await self.listener.close()
        await self.services.transactions.close()
        await self.services.shares.close()
        await self.services.share_states.close()
        await self.data_plane.share_state_channel.close()
        await self.services.background.close()
        self.logs.close()
        self.pool.shutdown()

    async def _leads(self, topic: str, index: int, leader_epoch: int) -> bool:
        return True

    def live(self) -> LiveBroker:
        return LiveBroker(
            broker_id=self.id,
            broker_epoch=self.epoch,
            endpoints=(BrokerEndpoint(host="127.0.0.1", port=self.port),),
            control_address=str(self.id),
        )


class Trio:
    """Brokers 1, 2 and 3, and their controller."""

    def __init__(self, folder: Path, limits: ReplicationConfig | None = None) -> None:
        self.limits = limits or ReplicationConfig()
        self.brokers = {b: TrioBroker(b, folder / f"broker-{b}", self) for b in BROKERS}
        self.states: dict[tuple[UUID, int], PartitionState] = {}
        self.topics: dict[UUID, TopicState] = {}
        self.up: set[int] = set()
        self.next_producer_id = 0

    async def __aenter__(self) -> Trio:
        for broker_id in BROKERS:
            await self.start(broker_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker_id in list(self.up):
            await self.stop(broker_id)

    async def start(self, broker_id: int) -> None:
        await self.brokers[broker_id].start()
        self.up.add(broker_id)
        self.tell(list(self.states.values()))

    async def stop(self, broker_id: int) -> None:
        self.up.discard(broker_id)
        await self.brokers[broker_id].stop()
        self.brokers[broker_id].epoch += 1

    def create(self, name: str, partitions: int = 1, **configs: str) -> UUID:
        topic_id = SystemEntropy().uuid()
        rows = tuple(ConfigEntry(name=k.replace("_", "."), value=v) for k, v in configs.items())
        self.topics[topic_id] = TopicState(topic=name, topic_id=topic_id, configs=rows)
        states = [
            PartitionState(
                topic=name, topic_id=topic_id, partition=index, leader_id=BROKERS[index % 3],
                leader_epoch=0, partition_epoch=0, isr=BROKERS, replicas=BROKERS, is_new=True,
            )
            for index in range(partitions)
        ]  # fmt: skip
        self.tell(states)
        return topic_id

    def elect(
        self,
        topic_id: UUID,
        leader: int,
        isr: tuple[int, ...] = BROKERS,
        only: tuple[int, ...] = BROKERS,
    ) -> PartitionState:
        state = self.states[topic_id, 0]
        state = replace(
            state, leader_id=leader, isr=isr, leader_epoch=state.leader_epoch + 1,
            partition_epoch=state.partition_epoch + 1, is_new=False,
        )  # fmt: skip
        self.tell([state], only)
        return state

    def tell(self, states: list[PartitionState], only: tuple[int, ...] = BROKERS) -> None:
        for state in states:
            self.states[state.topic_id, state.partition] = state
        topics = tuple({s.topic_id: self.topics[s.topic_id] for s in states}.values())
        live = tuple(self.brokers[b].live() for b in sorted(self.up))
        for broker_id in sorted(self.up.intersection(only)):
            broker = self.brokers[broker_id]
            reply = broker.replicas.apply_leader_and_isr(
                LeaderAndIsrRequest(
                    controller_id=1, controller_epoch=1, broker_epoch=broker.epoch,
                    partitions=tuple(states), topics=topics, live_leaders=live,
                )
            )  # fmt: skip
            assert all(row.error_code == 0 for row in reply.partitions), reply
            code = broker.view.apply(
                UpdateMetadataRequest(
                    controller_id=1, controller_epoch=1, broker_epoch=broker.epoch,
                    cluster_id=CLUSTER_ID, full=not broker.view.is_complete, brokers=live,
                    topics=topics, partitions=tuple(states),
                )
            )  # fmt: skip
            assert code is ErrorCode.NONE

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionReply:
        rows = []
        for item in request.partitions:
            state = self.states[item.topic_id, item.partition]
            error = ErrorCode.NONE
            if item.leader_epoch != state.leader_epoch:
                error = ErrorCode.FENCED_LEADER_EPOCH
            elif item.partition_epoch != state.partition_epoch:
                error = ErrorCode.INVALID_UPDATE_VERSION
            elif any(
                m.broker_id not in self.up or m.broker_epoch != self.brokers[m.broker_id].epoch
                for m in item.new_isr
            ):
                error = ErrorCode.INELIGIBLE_REPLICA
            else:
                isr = tuple(m.broker_id for m in item.new_isr)
                state = replace(state, isr=isr, partition_epoch=state.partition_epoch + 1)
                self.tell([state])
            rows.append(
                AlterPartitionResult(
                    topic_id=item.topic_id, partition=item.partition, error_code=error,
                    leader_id=state.leader_id, leader_epoch=state.leader_epoch,
                    partition_epoch=state.partition_epoch, isr=state.isr,
                )
            )  # fmt: skip
        return AlterPartitionReply(error_code=0, partitions=tuple(rows))

    async def call(
        self, address: str, request: Message, reply: type[Message], timeout_ms: int
    ) -> ReplicaStateReply:
        """The one control call of followers, straight to the broker asked."""
        assert isinstance(request, ReplicaStateRequest) and reply is ReplicaStateReply
        return self.brokers[int(address)].replicas.replica_state(request)

    async def assign_directory(self, *_: object) -> ErrorCode:
        return ErrorCode.NONE

    async def allocate_producer_ids(self) -> tuple[int, int]:
        start, self.next_producer_id = self.next_producer_id, self.next_producer_id + 1000
        return start, 1000

    def partition(self, broker_id: int, topic: str, index: int = 0) -> Partition:
        return self.brokers[broker_id].replicas.lookup(topic, index)
