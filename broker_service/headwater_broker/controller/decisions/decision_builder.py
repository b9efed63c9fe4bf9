"""Collects what the decisions of one round touch, and turns it into one Ready.

Decisions change `ControllerState` in memory at once and say here what they touched. The writes are
durable before anybody is told; when a write fails the whole state is dropped and rebuilt from the
store, so nothing is undone. A partition touched several times in a round is written once.
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
    """One round's touched things."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._states: dict[PartitionKey, Partition] = {}
        self._for_replicas: dict[PartitionKey, Partition] = {}
        self._for_metadata: dict[PartitionKey, Partition] = {}
        self._topics: dict[UUID, Topic] = {}
        self._assignments: dict[UUID, Topic] = {}
        self._removals: dict[UUID, PendingDeletion] = {}
        self._deleted: list[TopicState] = []
        self._stops: dict[int, list[StopReplicaPartition]] = {}
        self._full: set[int] = set()
        self._brokers_changed = False
        self._has_broker_configs = False
        self._has_client_quotas = False
        self._writes: list[tuple[Operation, ...]] = []
        self._registrations: list[tuple[Operation, ...]] = []
        self._replies: list[Reply] = []
        self._late_replies: list[tuple[int, Callable[[], Any]]] = []
        self._warnings: list[str] = []

    def partition_changed(self, partition: Partition) -> None:
        """The partition's record changed: write it, tell everybody; its replicas too.

        One that was never led has no record: without an ISR it would tell the next controller of
        records that nobody has, and no replica could lead but by an unclean election.
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
        """Only what is derived changed (offline replicas, the reason): no write."""
        self._for_metadata[partition.key] = partition

    def is_partition_changed(self, partition: Partition) -> bool:
        """True when its record will be written in this round."""
        return partition.key in self._states

    def create_replica(self, partition: Partition, broker_id: int) -> None:
        """The broker shall make this replica. To be stored: the caller touches the partition."""
        partition.uncreated.add(broker_id)

    def publish_topic(self, topic: Topic) -> None:
        """The topic is new, or its configs changed."""
        self._topics[topic.topic_id] = topic

    def write_assignment(self, topic: Topic) -> None:
        """The topic's replica lists changed."""
        if topic.topic_id not in self._assignments:
            self._assignments[topic.topic_id] = topic
            topic.version += 1

    def write(self, *operations: Operation) -> None:
        """One group, all or nothing, before the partition records."""
        self._writes.append(operations)

    def cancel_stop(self, partition: Partition, broker_id: int) -> None:
        """The broker shall have this replica after all: what was decided last counts."""
        rows = self._stops.get(broker_id, [])
        self._stops[broker_id] = [r for r in rows if (r.topic_id, r.partition) != partition.key]

    def stop_replica(self, partition: Partition, broker_id: int, *, delete: bool) -> None:
        """The broker shall stop this replica."""
        self.add_stop(broker_id, partition.topic, partition.key, partition.leader_epoch, delete)

    def add_stop(
        self, broker_id: int, topic: str, key: PartitionKey, leader_epoch: int, delete: bool
    ) -> None:
        """As `stop`, for what is no longer a known partition."""
        row = StopReplicaPartition(
            topic=topic,
            topic_id=key[0],
            partition=key[1],
            leader_epoch=leader_epoch,
            delete=delete,
        )
        self._stops.setdefault(broker_id, []).append(row)

    def publish_brokers(self, *, full: int | None = None) -> None:
        """The set of brokers changed; `full` shall be told everything."""
        self._brokers_changed = True
        if full is not None:
            self._full.add(full)

    def create_topic(self, topic: Topic) -> None:
        """A new topic: assignment, configs and the partition records in one group, if that fits.

        A node made by hand since the store was read refuses the group: that ends the term, and the
        request, sent again, meets one that knows the node.
        """
        node = (
            Create(znodes.topic_path(topic.name), assignment_of(topic).encode()),
            Create(znodes.partitions_path(topic.name)),
            *_config_write(topic),
        )
        self._writes += topic_batches((), node, self._record_writes(topic)[1])
        topic.version = 0
        topic.has_folder = True
        topic.has_config = True
        self.publish_topic(topic)

    def write_configs(self, topic: Topic) -> None:
        """A topic's overrides changed."""
        self._writes.append(_config_write(topic))
        topic.has_config = True
        self.publish_topic(topic)

    def write_broker_configs(self, name: str) -> None:
        """The dynamic configs of a broker, or of all (empty name), changed."""
        configs = self._state.broker_configs
        data = znodes.encode_overrides(configs[name])
        path = znodes.broker_config_path(name)
        is_stored = name in self._state.stored_broker_configs
        self._writes.append((Set(path, data) if is_stored else Create(path, data),))
        self._state.stored_broker_configs.add(name)
        self.publish_broker_configs()

    def publish_broker_configs(self) -> None:
        """Dynamic configs of brokers changed: tell everybody all of them."""
        self._has_broker_configs = True

    def publish_client_quotas(self) -> None:
        """Client quotas changed: tell everybody all of them."""
        self._has_client_quotas = True

    def _record_writes(self, topic: Topic) -> tuple[list[Group], list[Group]]:
        """Take the touched records of one topic out of the round: those that are there, and new
        ones."""
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
        """A topic is gone: first the removal note, then everything below the topic's node.

        A crash between the groups is finished by the next controller: it finds the note.
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
        """A removal began, shrank or ended. That of moved replicas is written together with their
        topic's replica lists: apart from these, a note could name a replica that is still one."""
        if deletion.is_topic_deletion:
            self._removals.pop(deletion.topic_id, None)
            self._writes.append(_deletion_write(deletion))
        else:
            self._removals[deletion.topic_id] = deletion

    def unwritten_deletion(self, topic_id: UUID) -> PendingDeletion | None:
        """The one whose note will be written: it alone knows whether there is a node."""
        return self._removals.get(topic_id)

    def finish_deletion(self, deletion: PendingDeletion) -> None:
        """Every replica confirmed."""
        self._removals.pop(deletion.topic_id, None)
        if deletion.in_store:
            self._writes.append((Delete(znodes.deletion_path(deletion.topic_id)),))
            deletion.in_store = False

    def write_last_registration(self, broker: Broker) -> None:
        """Note a broker's present life for the next controller: after all that its return means for
        partitions, or a controller that dies in between would leave it as if it had not been away.
        """
        path = znodes.last_registration_path(broker.broker_id)
        data = broker.last_registration().encode()
        is_stored = broker.broker_id in self._state.stored_registrations
        self._registrations.append((Set(path, data) if is_stored else Create(path, data),))
        self._state.stored_registrations.add(broker.broker_id)

    def reply(self, reply: Reply) -> None:
        """Answer once durable."""
        self._replies.append(reply)

    def reply_at_end(self, token: int, make: Callable[[], Any]) -> None:
        """Answer once durable, with what this gives when the round is over."""
        self._late_replies.append((token, make))

    def warn(self, text: str) -> None:
        """An operator must hear of this, once it is durable."""
        self._warnings.append(text)

    def build(self) -> Ready:
        """The round's Ready. These changes are spent: the next round makes new ones."""
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
        """A replica list and the records that belong to it change together."""
        rows: list[tuple[Operation, ...]] = []
        for topic in self._assignments.values():
            data = assignment_of(topic).encode()
            node = Set(znodes.topic_path(topic.name), data, topic.version - 1)
            folder = () if topic.has_folder else (Create(znodes.partitions_path(topic.name)),)
            topic.has_folder = True
            deletion = self._removals.pop(topic.topic_id, None)
            note = _deletion_write(deletion) if deletion is not None else ()
            changed, made = self._record_writes(topic)
            rows += topic_batches(changed, (node, *folder, *note), made)
        rows.extend(note for r in self._removals.values() if (note := _deletion_write(r)))
        for partition in self._states.values():
            topic = self._state.topics[partition.topic]
            if not topic.has_folder:
                rows.append((Create(znodes.partitions_path(topic.name)),))
                topic.has_folder = True
        return rows

    def _updates(self) -> list[BrokerUpdate]:
        state = self._state
        described = {key: state.describe(p) for key, p in self._for_metadata.items()}
        told: dict[int, list[PartitionState]] = {}
        told_topics: dict[int, dict[UUID, TopicState]] = {}
        for key, partition in self._for_replicas.items():
            for broker_id in partition.replicas:
                if not self._may_receive(partition, broker_id):
                    continue
                row = _state_for(broker_id, partition, described[key])
                told.setdefault(broker_id, []).append(row)
                rows = told_topics.setdefault(broker_id, {})
                if key[0] not in rows:
                    rows[key[0]] = state.topic_by_id[key[0]].describe()
                _mark_online(partition, broker_id)
        topics = (*self._deleted, *(t.describe() for t in self._topics.values()))
        metadata = tuple(described.values())
        configs = state.describe_broker_configs() if self._has_broker_configs else None
        quotas = state.describe_client_quotas() if self._has_client_quotas else None
        is_told = configs is not None or quotas is not None
        news = bool(metadata or topics or self._brokers_changed or is_told)
        updates = []
        for broker_id in state.brokers:
            stops = tuple(self._stops.get(broker_id, ()))
            if broker_id in self._full:
                updates.append(self._full_update(broker_id, stops))
            elif news or broker_id in told or stops:
                updates.append(
                    BrokerUpdate(
                        broker_id=broker_id,
                        has_metadata=news or broker_id in told,
                        replicas=tuple(told.get(broker_id, ())),
                        replica_topics=tuple(told_topics.get(broker_id, {}).values()),
                        metadata=metadata,
                        topics=topics,
                        broker_configs=configs,
                        client_quotas=quotas,
                        stops=stops,
                    )
                )
        return updates

    def _may_receive(self, partition: Partition, broker_id: int) -> bool:
        """Not to a broker whose disk with this replica is missing: it would make an empty one."""
        state = self._state
        is_known = broker_id in state.brokers
        return is_known and not state.has_lost_directory(partition, broker_id)

    def _full_update(self, broker_id: int, stops: tuple[StopReplicaPartition, ...]) -> BrokerUpdate:
        """Everything: what is not in it, the broker shall not have (strays)."""
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
            stops=stops,
        )


def _state_for(broker_id: int, partition: Partition, state: PartitionState) -> PartitionState:
    """`state` for one of the replicas: who has yet to make it hears that it is new."""
    return with_is_new(state, True) if broker_id in partition.uncreated else state


def _mark_online(partition: Partition, broker_id: int) -> None:
    if partition.replica_phases.get(broker_id) is ReplicaPhase.NEW:
        partition.move_replica(broker_id, ReplicaPhase.ONLINE)


def assignment_of(topic: Topic) -> znodes.TopicAssignment:
    """The topic node's content."""
    rows = topic.partitions.values()
    return znodes.TopicAssignment(
        topic_id=topic.topic_id,
        partitions={p.index: p.replicas for p in rows},
        adding={p.index: p.adding for p in rows if p.adding},
        removing={p.index: p.removing for p in rows if p.removing},
        is_tiered=topic.is_tiered,
    )


def _deletion_write(deletion: PendingDeletion) -> tuple[Operation, ...]:
    """Nothing for a note that never was in the store, and is not needed."""
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
