"""Collects the changes of one round and builds its Ready: writes, updates for brokers, replies.

Decisions change `ControllerState` in memory at once and record the change here. The writes are
durable before any broker sees the new state. When a write fails, the whole state is dropped and
rebuilt from ZooKeeper, so nothing is ever undone. A partition that changes several times in a round
is written once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from headwater.ports.metadata_store import Create, Delete, Operation, Set
from headwater.wire.control import PartitionState, StopReplicaPartition, TopicState
from headwater_broker.controller.events import BrokerUpdate, Ready, Reply
from headwater_broker.controller.state import (
    Broker,
    ControllerState,
    Partition,
    PartitionKey,
    PendingDeletion,
    Topic,
)
from headwater_broker.controller.state_machines import ReplicaPhase
from headwater_broker.controller.write_batches import Group, topic_batches
from headwater_broker.metadata import znodes
from headwater_broker.metadata.combined_update import with_is_new


class DecisionBuilder:
    """The changes of one round."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._states: dict[PartitionKey, Partition] = {}
        self._for_replicas: dict[PartitionKey, Partition] = {}
        self._for_metadata: dict[PartitionKey, Partition] = {}
        self._topics: dict[UUID, Topic] = {}
        self._assignments: dict[UUID, Topic] = {}
        self._deletions: dict[UUID, PendingDeletion] = {}
        self._deleted: list[TopicState] = []
        self._stops: dict[int, list[StopReplicaPartition]] = {}
        self._full: set[int] = set()
        self._brokers_changed = False
        self._has_broker_configs = False
        self._has_client_quotas = False
        self._has_group_configs = False
        self._writes: list[tuple[Operation, ...]] = []
        self._registrations: list[tuple[Operation, ...]] = []
        self._replies: list[Reply] = []
        self._late_replies: list[tuple[int, Callable[[], Any]]] = []
        self._warnings: list[str] = []

    def partition_changed(self, partition: Partition) -> None:
        """The partition's state changed: write it, send it to its replicas and as metadata to all.

        A partition that never had a leader is not written. A state without an ISR would mean that
        no replica may lead without an unclean election, though there are no records to lose.
        """
        key = partition.key
        if not partition.isr:
            self._for_metadata[key] = partition
            return
        if key not in self._states:
            self._states[key] = partition
            partition.version += 1
        self._for_metadata[key] = partition
        self._for_replicas[key] = partition

    def publish(self, partition: Partition) -> None:
        """Send the partition's metadata to all brokers without a write: only derived values changed
        (offline replicas, the reason)."""
        self._for_metadata[partition.key] = partition

    def is_partition_changed(self, partition: Partition) -> bool:
        """Whether the partition's state will be written in this round."""
        return partition.key in self._states

    def create_replica(self, partition: Partition, broker_id: int) -> None:
        """Have the broker create this replica. The caller calls `partition_changed` too."""
        partition.uncreated.add(broker_id)

    def publish_topic(self, topic: Topic) -> None:
        """Send the topic to all brokers: it is new, or its configs changed."""
        self._topics[topic.topic_id] = topic

    def write_assignment(self, topic: Topic) -> None:
        """Write the topic's replica lists."""
        if topic.topic_id not in self._assignments:
            self._assignments[topic.topic_id] = topic
            topic.version += 1

    def write(self, *operations: Operation) -> None:
        """Write these operations in one atomic batch, before the partition states."""
        self._writes.append(operations)

    def cancel_stop(self, partition: Partition, broker_id: int) -> None:
        """Drop a stop that was decided earlier in this round: the broker keeps the replica."""
        rows = self._stops.get(broker_id, [])
        self._stops[broker_id] = [r for r in rows if (r.topic_id, r.partition) != partition.key]

    def stop_replica(self, partition: Partition, broker_id: int, *, delete: bool) -> None:
        """Send StopReplica for this replica."""
        self.add_stop(broker_id, partition.topic, partition.key, partition.leader_epoch, delete)

    def add_stop(
        self, broker_id: int, topic: str, key: PartitionKey, leader_epoch: int, delete: bool
    ) -> None:
        """As `stop_replica`, also for a partition that is no longer in the state."""
        row = StopReplicaPartition(
            topic=topic,
            topic_id=key[0],
            partition=key[1],
            leader_epoch=leader_epoch,
            delete=delete,
        )
        self._stops.setdefault(broker_id, []).append(row)

    def publish_brokers(self, *, full: int | None = None) -> None:
        """Send the list of live brokers to all; to the broker `full` send the whole state."""
        self._brokers_changed = True
        if full is not None:
            self._full.add(full)

    def create_topic(self, topic: Topic) -> None:
        """Write a new topic: assignment, configs and partition states in one batch, if they fit.

        The batch fails if somebody created such a node since ZooKeeper was read. Then the
        controller resigns; the client repeats its request, and the next controller knows the node.
        """
        node = (
            Create(znodes.topic_path(topic.name), assignment_of(topic).encode()),
            Create(znodes.partitions_path(topic.name)),
            *_config_write(topic),
        )
        self._writes += topic_batches((), node, self._state_writes(topic)[1])
        topic.version = 0
        topic.has_folder = True
        topic.has_config = True
        self.publish_topic(topic)

    def write_configs(self, topic: Topic) -> None:
        """Write a topic's overrides."""
        self._writes.append(_config_write(topic))
        topic.has_config = True
        self.publish_topic(topic)

    def write_broker_configs(self, name: str) -> None:
        """Write the dynamic configs of a broker, or of all brokers (empty name)."""
        configs = self._state.broker_configs
        data = znodes.encode_overrides(configs[name])
        path = znodes.broker_config_path(name)
        is_stored = name in self._state.stored_broker_configs
        self._writes.append((Set(path, data) if is_stored else Create(path, data),))
        self._state.stored_broker_configs.add(name)
        self.publish_broker_configs()

    def publish_broker_configs(self) -> None:
        """Send all dynamic broker configs to all brokers."""
        self._has_broker_configs = True

    def publish_client_quotas(self) -> None:
        """Send all client quotas to all brokers."""
        self._has_client_quotas = True

    def write_group_configs(self, group_id: str, configs: dict[str, str]) -> None:
        """Write the configs of a group. Without any it keeps its node, as a topic does."""
        known = self._state.group_configs
        data = znodes.encode_overrides(configs)
        path = znodes.group_config_path(group_id)
        self._writes.append((Set(path, data) if group_id in known else Create(path, data),))
        known[group_id] = configs
        self.publish_group_configs()

    def publish_group_configs(self) -> None:
        """Send the configs of all groups to all brokers."""
        self._has_group_configs = True

    def _state_writes(self, topic: Topic) -> tuple[list[Group], list[Group]]:
        """Remove one topic's changed partition states from the round; the writes of those that
        exist in ZooKeeper, and of new ones."""
        changed: list[Group] = []
        made: list[Group] = []
        for partition in topic.partitions.values():
            if self._states.pop(partition.key, None) is not None:
                rows = changed if partition.has_state else made
                rows.append(tuple(self._state_write(partition)))
        return changed, made

    def _state_write(self, partition: Partition) -> list[Operation]:
        data = partition.record(self._state.controller_epoch).encode()
        path = znodes.state_path(partition.topic, partition.index)
        if partition.has_state:
            return [Set(path, data, partition.version - 1)]
        rows: list[Operation] = []
        if not partition.has_folder:
            rows.append(Create(znodes.partition_path(partition.topic, partition.index)))
        rows.append(Create(path, data))
        partition.has_folder = True
        partition.has_state = True
        return rows

    def delete_topic(self, topic: Topic, deletion: PendingDeletion, *, requested: bool) -> None:
        """Delete a topic: first store the pending deletion, then delete all nodes of the topic.

        After a crash in between, the next controller finds the pending deletion and goes on.
        """
        self.write_deletion(deletion)
        for partition in topic.partitions.values():
            self._states.pop(partition.key, None)
            self._for_replicas.pop(partition.key, None)
            self._for_metadata.pop(partition.key, None)
            rows: list[Operation] = []
            if partition.has_state:
                rows.append(Delete(znodes.state_path(topic.name, partition.index)))
            if partition.has_folder:
                rows.append(Delete(znodes.partition_path(topic.name, partition.index)))
            if rows:
                self._writes.append(tuple(rows))
        last: list[Operation] = []
        if topic.has_folder:
            last.append(Delete(znodes.partitions_path(topic.name)))
        if topic.has_config:
            last.append(Delete(znodes.topic_config_path(topic.name)))
        last.append(Delete(znodes.topic_path(topic.name)))
        if requested:
            last.append(Delete(znodes.delete_request_path(topic.name)))
        self._writes.append(tuple(last))
        self._topics.pop(topic.topic_id, None)
        self._assignments.pop(topic.topic_id, None)
        self._deleted.append(topic.describe(deleted=True))

    def write_deletion(self, deletion: PendingDeletion) -> None:
        """Write a pending deletion that began or shrank.

        That of removed replicas is written in one batch with the topic's replica lists. Otherwise
        it could name a replica that is still assigned.
        """
        if deletion.is_topic_deletion:
            self._deletions.pop(deletion.topic_id, None)
            self._writes.append(_deletion_write(deletion))
        else:
            self._deletions[deletion.topic_id] = deletion

    def unwritten_deletion(self, topic_id: UUID) -> PendingDeletion | None:
        """The pending deletion of this round that is not written yet, if any: only that object
        knows whether its node exists."""
        return self._deletions.get(topic_id)

    def finish_deletion(self, deletion: PendingDeletion) -> None:
        """Delete the node of a deletion that every broker has confirmed."""
        self._deletions.pop(deletion.topic_id, None)
        if deletion.in_store:
            self._writes.append((Delete(znodes.deletion_path(deletion.topic_id)),))
            deletion.in_store = False

    def write_last_registration(self, broker: Broker) -> None:
        """Store a broker's registration for the next controller.

        It is written after everything that follows from it for partitions. Otherwise, if this
        controller died in between, the next one would not notice that the broker had been away.
        """
        path = znodes.last_registration_path(broker.broker_id)
        data = broker.last_registration().encode()
        is_stored = broker.broker_id in self._state.stored_registrations
        self._registrations.append((Set(path, data) if is_stored else Create(path, data),))
        self._state.stored_registrations.add(broker.broker_id)

    def reply(self, reply: Reply) -> None:
        """Send this reply when the round is durable."""
        self._replies.append(reply)

    def reply_at_end(self, token: int, make: Callable[[], Any]) -> None:
        """Send the reply that `make` builds at the end of the round, when it is durable."""
        self._late_replies.append((token, make))

    def warn(self, text: str) -> None:
        """Log a warning when the round is durable."""
        self._warnings.append(text)

    def build(self) -> Ready:
        """The round's Ready. Use a new builder for the next round."""
        writes = [*self._writes, *self._assignment_writes()]
        writes += [tuple(self._state_write(p)) for p in self._states.values()]
        writes += self._registrations
        return Ready(
            writes=tuple(writes),
            live=tuple(b.live() for _, b in sorted(self._state.brokers.items())),
            updates=tuple(self._updates()),
            replies=(*self._replies, *(Reply(t, make()) for t, make in self._late_replies)),
            warnings=tuple(self._warnings),
        )

    def _assignment_writes(self) -> list[tuple[Operation, ...]]:
        """The writes of replica lists, each in one batch with the partition states that changed."""
        rows: list[tuple[Operation, ...]] = []
        for topic in self._assignments.values():
            data = assignment_of(topic).encode()
            node = Set(znodes.topic_path(topic.name), data, topic.version - 1)
            folder = () if topic.has_folder else (Create(znodes.partitions_path(topic.name)),)
            topic.has_folder = True
            deletion = self._deletions.pop(topic.topic_id, None)
            note = _deletion_write(deletion) if deletion is not None else ()
            changed, made = self._state_writes(topic)
            rows += topic_batches(changed, (node, *folder, *note), made)
        rows.extend(note for r in self._deletions.values() if (note := _deletion_write(r)))
        for partition in self._states.values():
            topic = self._state.topics[partition.topic]
            if not topic.has_folder:
                rows.append((Create(znodes.partitions_path(topic.name)),))
                topic.has_folder = True
        return rows

    def _updates(self) -> list[BrokerUpdate]:
        state = self._state
        described = {key: state.describe(p) for key, p in self._for_metadata.items()}
        replicas: dict[int, list[PartitionState]] = {}
        replica_topics: dict[int, dict[UUID, TopicState]] = {}
        for key, partition in self._for_replicas.items():
            for broker_id in partition.replicas:
                if not self._may_receive(partition, broker_id):
                    continue
                row = _state_for(broker_id, partition, described[key])
                replicas.setdefault(broker_id, []).append(row)
                rows = replica_topics.setdefault(broker_id, {})
                if key[0] not in rows:
                    rows[key[0]] = state.topic_by_id[key[0]].describe()
                _mark_online(partition, broker_id)
        topics = (*self._deleted, *(t.describe() for t in self._topics.values()))
        metadata = tuple(described.values())
        configs = state.describe_broker_configs() if self._has_broker_configs else None
        quotas = state.describe_client_quotas() if self._has_client_quotas else None
        groups = state.describe_group_configs() if self._has_group_configs else None
        has_configs = not (configs is quotas is groups is None)
        has_metadata = bool(metadata or topics or self._brokers_changed or has_configs)
        updates = []
        for broker_id in state.brokers:
            stops = tuple(self._stops.get(broker_id, ()))
            if broker_id in self._full:
                updates.append(self._full_update(broker_id, stops))
            elif has_metadata or broker_id in replicas or stops:
                updates.append(
                    BrokerUpdate(
                        broker_id=broker_id,
                        has_metadata=has_metadata or broker_id in replicas,
                        replicas=tuple(replicas.get(broker_id, ())),
                        replica_topics=tuple(replica_topics.get(broker_id, {}).values()),
                        metadata=metadata,
                        topics=topics,
                        broker_configs=configs,
                        client_quotas=quotas,
                        group_configs=groups,
                        stops=stops,
                    )
                )
        return updates

    def _may_receive(self, partition: Partition, broker_id: int) -> bool:
        """False for a broker whose disk with this replica is missing: it would create an empty
        replica."""
        state = self._state
        is_known = broker_id in state.brokers
        return is_known and not state.has_lost_directory(partition, broker_id)

    def _full_update(self, broker_id: int, stops: tuple[StopReplicaPartition, ...]) -> BrokerUpdate:
        """The whole state. Replicas that are not in it are strays on that broker."""
        state = self._state
        replicas: list[PartitionState] = []
        topics: dict[UUID, TopicState] = {}
        metadata = {p.key: state.describe(p) for p in state.partitions()}
        for key, partition in state.hosted.get(broker_id, {}).items():
            if self._may_receive(partition, broker_id):
                replicas.append(_state_for(broker_id, partition, metadata[key]))
                if key[0] not in topics:
                    topics[key[0]] = state.topic_by_id[key[0]].describe()
                _mark_online(partition, broker_id)
        return BrokerUpdate(
            broker_id=broker_id,
            full=True,
            replicas=tuple(replicas),
            replica_topics=tuple(topics.values()),
            metadata=tuple(metadata.values()),
            topics=tuple(t.describe() for t in state.topics.values()),
            broker_configs=state.describe_broker_configs(),
            client_quotas=state.describe_client_quotas(),
            group_configs=state.describe_group_configs(),
            stops=stops,
        )


def _state_for(broker_id: int, partition: Partition, state: PartitionState) -> PartitionState:
    """`state` for one of the replicas, with `is_new` if the broker has to create it."""
    return with_is_new(state, True) if broker_id in partition.uncreated else state


def _mark_online(partition: Partition, broker_id: int) -> None:
    if partition.replica_phases.get(broker_id) is ReplicaPhase.NEW:
        partition.move_replica(broker_id, ReplicaPhase.ONLINE)


def assignment_of(topic: Topic) -> znodes.TopicAssignment:
    """The content of the topic's node."""
    rows = topic.partitions.values()
    return znodes.TopicAssignment(
        topic_id=topic.topic_id,
        partitions={p.index: p.replicas for p in rows},
        adding={p.index: p.adding for p in rows if p.adding},
        removing={p.index: p.removing for p in rows if p.removing},
        is_tiered=topic.is_tiered,
    )


def _deletion_write(deletion: PendingDeletion) -> tuple[Operation, ...]:
    """The write of a pending deletion; none if it is over and was never stored."""
    path = znodes.deletion_path(deletion.topic_id)
    waiting = deletion.waiting()
    was_stored = deletion.in_store
    deletion.in_store = bool(waiting) or deletion.is_topic_deletion
    if not deletion.in_store:
        return (Delete(path),) if was_stored else ()
    data = znodes.Deletion(
        deletion.topic, deletion.topic_id, waiting, deletion.is_topic_deletion
    ).encode()
    return (Set(path, data) if was_stored else Create(path, data),)


def _config_write(topic: Topic) -> tuple[Operation, ...]:
    path = znodes.topic_config_path(topic.name)
    data = znodes.encode_overrides(topic.configs)
    return (Set(path, data) if topic.has_config else Create(path, data),)
