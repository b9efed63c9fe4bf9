"""Runs the controller's state machine against a store in memory: its writes must apply, and another
controller must be able to rebuild the state from them."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.ports.metadata_store import Check, Create, Set
from headwater.testing.clocks import SeededEntropy
from headwater.testing.memory_store import MemoryStore, MemoryTree
from headwater.wire.control import (
    AlterPartitionItem,
    AlterPartitionRequest,
    BrokerEndpoint,
    IsrMember,
    PartitionError,
    StopReplicaReply,
)
from headwater_broker.controller.events import (
    AlterPartition,
    BrokerChange,
    BrokerUpdate,
    CreateTopics,
    Event,
    NewTopic,
    RegisteredBroker,
    StopReplicaResponseReceived,
)
from headwater_broker.controller.machine import ControllerMachine
from headwater_broker.controller.state import ControllerConfig, Partition
from headwater_broker.controller.zk.reader import read_found_topics, read_snapshot
from headwater_broker.metadata import znodes
from headwater_broker.metadata.znodes import NO_DIRECTORY, BrokerRegistration, TopicAssignment


class World:
    """A store, registrations, and the state machine of the current controller."""

    def __init__(self, *, unclean: bool = False) -> None:
        self.tree = MemoryTree()
        self.entropy = SeededEntropy(7)
        self.config = ControllerConfig(
            unclean_leader_election_enable=unclean, default_replication_factor=1
        )
        self.registered: dict[int, RegisteredBroker] = {}
        self.directories: dict[int, UUID] = {}
        self.boots: dict[int, str] = {}
        self.last_broker_epoch = 0
        self.away: set[int] = set()
        """Brokers with a failed disk, which delete nothing."""
        self.controller_epoch = 0
        self.token = 0
        self.replies: dict[int, Any] = {}
        self.updates: list[BrokerUpdate] = []
        self.warnings: list[str] = []
        self._loop = asyncio.new_event_loop()
        self.store: MemoryStore = self.run(self._connect())
        self.machine = self.fail_over()

    def close(self) -> None:
        self._loop.close()

    def run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    async def _connect(self) -> MemoryStore:
        store = self.tree.connect()
        for path in znodes.PERSISTENT_PATHS:
            await store.ensure_path(path)
        await store.multi([Create(znodes.CONTROLLER_EPOCH, b"0")])
        return store

    def fail_over(self) -> ControllerMachine:
        """Elect another controller, which loads its state from the store."""
        self.controller_epoch += 1
        data = str(self.controller_epoch).encode()
        self.run(self.store.multi([Set(znodes.CONTROLLER_EPOCH, data)]))
        snapshot = self.run(read_snapshot(self.store))
        self.machine = ControllerMachine(
            1,
            self.controller_epoch,
            "cluster",
            self.config,
            self._with_brokers(snapshot),
            self.entropy,
        )
        self.settle()
        return self.machine

    def _with_brokers(self, snapshot: Any) -> Any:
        values = {name: getattr(snapshot, name) for name in type(snapshot).__slots__}
        return type(snapshot)(**{**values, "registered": dict(self.registered)})

    def settle(self) -> None:
        """Write the Ready. Brokers confirm deletions at once."""
        while True:
            ready = self.machine.take_ready()
            self.warnings += ready.warnings
            fence = Check(znodes.CONTROLLER_EPOCH, self.controller_epoch)
            for group in ready.writes:
                self.run(self.store.multi([fence, *group]))
            for reply in ready.replies:
                self.replies[reply.token] = reply.value
            self.updates.extend(ready.updates)
            stops = [u for u in ready.updates if any(s.delete for s in u.stops)]
            if not stops:
                return
            for update in stops:
                self._confirm(update)

    def _confirm(self, update: BrokerUpdate) -> None:
        code = ErrorCode.KAFKA_STORAGE_ERROR if update.broker_id in self.away else ErrorCode.NONE
        rows = tuple(
            PartitionError(
                topic_id=s.topic_id,
                partition=s.partition,
                error_code=code,
                directory_id=NO_DIRECTORY,
            )
            for s in update.stops
        )
        epoch = self.registered[update.broker_id].epoch
        reply = StopReplicaReply(error_code=0, partitions=rows)
        self.machine.handle(
            StopReplicaResponseReceived(update.broker_id, epoch, update.stops, reply)
        )

    def handle(self, event: Event) -> None:
        self.machine.handle(event)
        self.settle()

    def ask(self, make: Any) -> Any:
        self.token += 1
        self.handle(make(self.token))
        return self.replies.pop(self.token)

    def up(
        self,
        broker_id: int,
        *,
        wiped: bool = False,
        power_loss: bool = False,
        clean: bool = False,
        min_insync_replicas: int = 1,
    ) -> None:
        self.returns_at_once(
            broker_id,
            wiped=wiped,
            power_loss=power_loss,
            clean=clean,
            min_insync_replicas=min_insync_replicas,
        )
        self.settle()

    def returns_at_once(
        self,
        broker_id: int,
        *,
        wiped: bool = False,
        power_loss: bool = False,
        clean: bool = False,
        min_insync_replicas: int = 1,
    ) -> None:
        """Like `up`, but the decisions are not written yet."""
        if wiped or broker_id not in self.directories:
            self.directories[broker_id] = self.entropy.uuid()
        if power_loss or broker_id not in self.boots:
            self.boots[broker_id] = self.entropy.uuid().hex
        memory = self.machine.state.offline_brokers.get(broker_id)
        known = self.machine.state.brokers.get(broker_id)
        last = memory or known
        self.last_broker_epoch += 1
        registration = BrokerRegistration(
            broker_id=broker_id,
            cluster_id="cluster",
            endpoints=(BrokerEndpoint(host="h", port=broker_id),),
            control_address=f"h{broker_id}:1",
            directory_ids=(self.directories[broker_id],),
            boot_id=self.boots[broker_id],
            clean_shutdown_epoch=last.epoch if clean and last else -1,
            min_insync_replicas=min_insync_replicas,
        )
        self.registered[broker_id] = RegisteredBroker(self.last_broker_epoch, registration)
        self.machine.handle(BrokerChange(dict(self.registered)))

    def down(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            del self.registered[broker_id]
        self.handle(BrokerChange(dict(self.registered)))

    def create(self, name: str, *replicas: tuple[int, ...], **configs: str) -> Any:
        topic = NewTopic(
            name=name,
            assignments=dict(enumerate(replicas)),
            configs={k.replace("_", "."): v for k, v in configs.items()},
        )
        [result] = self.ask(lambda token: CreateTopics(token, (topic,), False))
        return result

    def find(self, name: str, *replicas: tuple[int, ...]) -> None:
        """Create the topic as a tool does, in the store, where no broker need be live."""
        row = TopicAssignment(topic_id=NO_DIRECTORY, partitions=dict(enumerate(replicas)))
        self.run(self.store.multi([Create(znodes.topic_path(name), row.encode())]))
        self.handle(self.run(read_found_topics(self.store, [name], print)))

    def partition(self, topic: str, index: int = 0) -> Partition:
        found = self.machine.state.partition(topic, index)
        assert found is not None, f"{topic}-{index} is unknown"
        return found

    def alter_isr(self, partition: Partition, isr: tuple[int, ...], **wrong: int) -> int:
        leader = partition.leader
        item = AlterPartitionItem(
            topic_id=partition.topic_id,
            partition=partition.index,
            leader_epoch=wrong.get("leader_epoch", partition.leader_epoch),
            partition_epoch=wrong.get("partition_epoch", partition.version),
            min_insync_replicas=wrong.get("min_insync_replicas", 2),
            new_isr=tuple(
                IsrMember(
                    broker_id=b,
                    broker_epoch=wrong.get(
                        "member_epoch", self.registered[b].epoch if b in self.registered else -1
                    ),
                )
                for b in isr
            ),
        )
        request = AlterPartitionRequest(
            broker_id=wrong.get("leader", leader),
            broker_epoch=wrong.get(
                "broker_epoch", self.registered[wrong.get("leader", leader)].epoch
            ),
            partitions=(item,),
        )
        reply = self.ask(lambda token: AlterPartition(token, request))
        if reply.error_code:
            return int(reply.error_code)
        return int(reply.partitions[0].error_code)
