"""One broker's data plane in this process, without ZooKeeper: real log, replicas, listener.

The controller is this file: `create_topic` applies what it would send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import AllowAll, Authorizer
from headwater.ports.files import Files
from headwater.system import SystemClock, SystemEntropy
from headwater.system_files import SystemFiles
from headwater.wire.apis.k19_create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.wire.control import (
    BrokerConfigs,
    BrokerEndpoint,
    ConfigEntry,
    LeaderAndIsrRequest,
    LiveBroker,
    PartitionState,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicState,
    UpdateMetadataRequest,
)
from headwater.wire.schema import decode, encode
from headwater_broker.api.broker_controls import NO_CONTROLS
from headwater_broker.app.config import from_properties
from headwater_broker.app.data_plane import DataPlaneParts, build_data_plane, build_listener
from headwater_broker.app.dynamic_config import DynamicConfigs
from headwater_broker.app.tiered_topics import TieredTopics
from headwater_broker.coordinator.transaction.producer_ids import ProducerIds
from headwater_broker.log.log_manager import LogManager
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.metadata.group_settings import GroupSettings, GroupSettingsOf
from headwater_broker.network.page_cache import PageCache
from headwater_broker.replica.ports import ReplicationPorts, already
from headwater_broker.replica.replication_config import ReplicationConfig

CLUSTER_ID = "solo-cluster"
BROKER_EPOCH = 7


class SoloBroker:
    """Broker 1 of a cluster of one (and of ghosts: `racks` may name others)."""

    def __init__(self, folder: Path, **properties: str) -> None:
        self.folder = folder
        self.properties = {
            "broker.id": "1",
            "log.dirs": str(folder),
            **{key.replace("_", "."): value for key, value in properties.items()},
        }
        self.files: Files = SystemFiles()
        self.authorizer: Authorizer = AllowAll()
        self.controls = NO_CONTROLS
        self.remote_log: Any = None
        self.persister: Any = None
        self.group_settings: GroupSettingsOf = lambda group_id: GroupSettings()
        self.durable: Callable[[], Awaitable[None]] = already
        self.tiered_ends: dict[tuple[UUID, int], int] = {}
        self.restored_ends: dict[tuple[UUID, int], int] = {}
        self.listener_name = "PLAINTEXT"
        self.racks: dict[int, str] = {}
        """Of this broker and of ghosts, which are live in the view and answer nobody."""
        self.port = 0
        self.forwarded: list[int] = []
        self.leader_epochs: dict[str, int] = {}
        self.next_producer_id = 0
        self.is_deposed = False
        """True: the metadata store names another leader, of which nobody told this broker."""
        self.store_answers = asyncio.Event()
        self.store_answers.set()

    async def start(self, port: int = 0) -> SoloBroker:
        clock, entropy = SystemClock(), SystemEntropy()
        self.config = from_properties(self.properties)
        self.pool = ThreadPoolExecutor(2)
        self.logs = LogManager(
            self.files,
            list(self.config.log_dirs),
            broker_id=1,
            cluster_id=CLUSTER_ID,
            clock=clock,
            entropy=entropy,
            broker_properties=self.config.properties,
            offload=lambda job: self.pool.submit(job),
        )
        self.logs.load_all()
        self.view = MetadataCache(CLUSTER_ID, lambda: BROKER_EPOCH)
        self.dynamic = DynamicConfigs(self.config, self.view)

        self.data_plane = build_data_plane(
            DataPlaneParts(
                loop=asyncio.get_running_loop(),
                dynamic=self.dynamic,
                view=self.view,
                logs=self.logs,
                limits=ReplicationConfig(),
                replication=self._replication_ports(clock, entropy),
                controller=self,  # type: ignore[arg-type]
                authorizer=self.authorizer,
                warmer=PageCache(asyncio.get_running_loop(), self.pool),
                leads=self._leads,
                remote_log=self.remote_log,
                persister=self.persister,
                group_settings=self.group_settings,
                tiered_topic=TieredTopics(self.config, self.view).locate,
                producer_ids=ProducerIds(self._allocate_producer_ids),
            )
        )
        self.replicas, self.services = self.data_plane.replicas, self.data_plane.services
        self.listener = build_listener(
            self.dynamic, self.services, self.listener_name, controls=self.controls
        )
        self.port = await self.listener.start("127.0.0.1", port)
        self._update((), ())
        return self

    def _replication_ports(self, clock: Clock, entropy: Entropy) -> ReplicationPorts:
        async def no_peer(*_: Any) -> Any:
            raise ConnectionError("nobody else is here")

        return ReplicationPorts(
            clock=clock,
            entropy=entropy,
            connect=no_peer,
            control=None,  # type: ignore[arg-type]
            alter_partition=no_peer,
            broker_epoch=lambda: BROKER_EPOCH,
            cluster_id=lambda: CLUSTER_ID,
            broker=lambda broker_id: self.view.brokers.get(broker_id),
            log_config=self.logs.log_config,
            on_peer_gone=lambda broker_id: None,
            durable=lambda: self.durable(),
            tiered_end=lambda topic_id, partition: self.tiered_ends.get((topic_id, partition)),
            restored_end=lambda topic_id, partition: self.restored_ends.get((topic_id, partition)),
        )

    async def stop(self) -> None:
        await self.listener.close()
        await self.services.transactions.close()
        await self.services.shares.close()
        await self.services.share_states.close()
        await self.services.background.close()
        await self.replicas.close()
        self.logs.close()
        self.pool.shutdown()

    async def _allocate_producer_ids(self) -> tuple[int, int]:
        start, self.next_producer_id = self.next_producer_id, self.next_producer_id + 1000
        return start, 1000

    async def _leads(self, topic: str, index: int, leader_epoch: int) -> bool:
        await self.store_answers.wait()
        partition = self.replicas.partitions[topic, index]
        return not self.is_deposed and leader_epoch == partition.leader_epoch

    async def __aenter__(self) -> SoloBroker:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- what the controller would do

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replicas: tuple[int, ...] = (1,),
        isr: tuple[int, ...] | None = None,
        configs: dict[str, str] | None = None,
        leader: int = 1,
        epoch: int = 0,
        elr: tuple[int, ...] = (),
    ) -> UUID:
        known = self.view.topics.get(name)
        topic_id = known.topic_id if known else SystemEntropy().uuid()
        states = tuple(
            PartitionState(
                topic=name,
                topic_id=topic_id,
                partition=index,
                leader_id=leader,
                leader_epoch=epoch,
                partition_epoch=epoch,
                isr=isr or replicas,
                replicas=replicas,
                is_new=epoch == 0,
                eligible_leader_replicas=elr,
            )
            for index in range(partitions)
        )
        entries = tuple(ConfigEntry(name=k, value=v) for k, v in (configs or {}).items())
        topic = TopicState(topic=name, topic_id=topic_id, configs=entries)
        reply = self.replicas.apply_leader_and_isr(
            LeaderAndIsrRequest(
                controller_id=1,
                controller_epoch=1,
                broker_epoch=BROKER_EPOCH,
                partitions=states,
                topics=(topic,),
                live_leaders=self._brokers(),
            )
        )
        assert all(p.error_code == 0 for p in reply.partitions), reply
        self._update((topic,), states)
        return topic_id

    def move_away(self, name: str, to: int = 2) -> None:
        """Every partition of the topic goes to another broker."""
        known = self.view.topics[name]
        stops = tuple(
            StopReplicaPartition(
                topic=name, topic_id=known.topic_id, partition=p, leader_epoch=9, delete=True
            )
            for p in known.partitions
        )
        reply = self.replicas.stop_replica(
            StopReplicaRequest(
                controller_id=1, controller_epoch=1, broker_epoch=BROKER_EPOCH, partitions=stops
            )
        )
        assert all(p.error_code == 0 for p in reply.partitions), reply
        states = tuple(
            PartitionState(
                topic=name,
                topic_id=known.topic_id,
                partition=p,
                leader_id=to,
                leader_epoch=9,
                partition_epoch=9,
                isr=(to,),
                replicas=(to,),
            )
            for p in known.partitions
        )
        self._update((), states)

    def delete_topic(self, name: str) -> None:
        """The controller tells that it is gone."""
        topic_id = self.view.topics[name].topic_id
        self._update((TopicState(topic=name, topic_id=topic_id, configs=(), deleted=True),), ())

    def _brokers(self) -> tuple[LiveBroker, ...]:
        return tuple(
            LiveBroker(
                broker_id=broker_id,
                broker_epoch=BROKER_EPOCH,
                rack=self.racks.get(broker_id),
                endpoints=(BrokerEndpoint(host="127.0.0.1", port=self.port),),
                control_address="127.0.0.1:1",
            )
            for broker_id in sorted({1, *self.racks})
        )

    def configure(self, **told: dict[str, str]) -> None:
        """The controller tells dynamic configs: `all_brokers`, `broker_1`."""
        names = {"all_brokers": "", "broker_1": "1", "broker_2": "2"}
        rows = tuple(
            BrokerConfigs(
                name=names[who],
                configs=tuple(ConfigEntry(name=k, value=v) for k, v in rows.items()),
            )
            for who, rows in told.items()
        )
        self._update((), (), rows)

    def limit_clients(self, **told: dict[str, str]) -> None:
        """The controller tells client quotas by entity path, with `_` for `/`."""
        rows = tuple(
            BrokerConfigs(
                name=path.replace("_", "/", 1),
                configs=tuple(ConfigEntry(name=k, value=v) for k, v in row.items()),
            )
            for path, row in told.items()
        )
        self._update((), (), None, rows)

    def _update(
        self,
        topics: tuple[TopicState, ...],
        partitions: tuple[PartitionState, ...],
        broker_configs: tuple[BrokerConfigs, ...] | None = None,
        client_quotas: tuple[BrokerConfigs, ...] | None = None,
    ) -> None:
        code = self.view.apply(
            UpdateMetadataRequest(
                controller_id=1,
                controller_epoch=1,
                broker_epoch=BROKER_EPOCH,
                cluster_id=CLUSTER_ID,
                full=not self.view.is_complete,
                brokers=self._brokers(),
                topics=topics,
                partitions=partitions,
                broker_configs=broker_configs,
                client_quotas=client_quotas,
            )
        )
        assert code is ErrorCode.NONE

    async def assign_directory(self, *_: Any) -> ErrorCode:
        return ErrorCode.NONE

    async def forward(
        self, api_key: int, version: int, body: bytes, principal: str = "", timeout_ms: int = 0
    ) -> bytes:
        self.forwarded.append(api_key)
        if api_key != 19:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"key {api_key}")
        request = decode(CreateTopicsRequest, version, body)
        results = []
        for topic in request.topics:
            configs = {c.name: c.value or "" for c in topic.configs}
            count = max(topic.num_partitions, 1)
            topic_id = self.create_topic(topic.name, count, configs=configs)
            results.append(
                CreatableTopicResult(
                    name=topic.name, topic_id=topic_id, num_partitions=count, configs=()
                )
            )
        return encode(CreateTopicsResponse(topics=tuple(results)), version)
