"""A new controller's state, from what the store holds. Pure; `snapshot` does the reading.

Brokers enter as the last controller saw them (`/headwater/lives`); comparing these with the present
registrations then treats every death and return in between as if it happened now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from headwater.entropy import Entropy
from headwater_broker.controller.events import RegisteredBroker
from headwater_broker.controller.state import (
    NO_LEADER,
    NO_VERSION,
    Broker,
    ControllerConfig,
    ControllerState,
    Partition,
    PendingDeletion,
    Topic,
)
from headwater_broker.controller.state_machines import PartitionPhase, ReplicaPhase
from headwater_broker.metadata.znodes import (
    NO_DIRECTORY,
    Deletion,
    LastRegistration,
    PartitionRecord,
    ProducerIdBlock,
    TopicAssignment,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopic:
    """One topic as the store holds it. `folders`: which partitions have a node at all; `czxid`: of
    its node, lower the older it is."""

    name: str
    assignment: TopicAssignment
    version: int
    czxid: int
    configs: Mapping[str, str]
    has_config: bool
    has_folder: bool
    folders: frozenset[int]
    records: Mapping[int, tuple[PartitionRecord, int]]
    """Partition -> (record, version of its node)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All of the store that the controller needs."""

    registered: Mapping[int, RegisteredBroker]
    topics: tuple[StoredTopic, ...]
    deletions: tuple[Deletion, ...]
    last_registrations: Mapping[int, LastRegistration]
    producer_ids: ProducerIdBlock | None
    unreadable_registrations: frozenset[int] = frozenset()
    """Brokers whose life is noted in a form that cannot be used."""
    unreadable_deletions: frozenset[UUID] = frozenset()
    """Topic ids of deletions that are noted so."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Topics whose nodes cannot be used, and why."""
    stray_configs: frozenset[str] = frozenset()
    """Names below `/config/topics` that are no topic's, or one's that cannot be used."""
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By broker id as text; the empty name counts for all."""
    client_quotas: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By entity path: every node that is there, also without a quota."""


def build_state(
    controller_id: int,
    controller_epoch: int,
    cluster_id: str,
    config: ControllerConfig,
    snapshot: Snapshot,
    entropy: Entropy,
) -> tuple[ControllerState, list[Topic], list[Topic]]:
    """The state; topics whose node must be written; topics whose deletion was cut short."""
    state = ControllerState(controller_id, controller_epoch, cluster_id, config)
    for broker_id, life in snapshot.last_registrations.items():
        found = snapshot.registered.get(broker_id)
        is_same = found is not None and found.epoch == life.broker_epoch
        registration = found.registration if found is not None and is_same else None
        least = (registration or life).min_insync_replicas
        broker = Broker(broker_id, life.broker_epoch, life.boot_id, registration, least)
        state.brokers[broker_id] = broker
        state.stored_registrations.add(broker_id)
    state.stored_registrations |= snapshot.unreadable_registrations
    state.unreadable_deletions = set(snapshot.unreadable_deletions)
    state.unusable = dict(snapshot.unusable)
    state.stray_configs = set(snapshot.stray_configs)
    for note in snapshot.deletions:
        state.pending_deletions[note.topic_id] = _removal(note)
    unwritten = []
    unfinished = []
    for stored in snapshot.topics:
        topic = _topic(stored, entropy)
        state.add_topic(topic)
        for partition in topic.partitions.values():
            if partition.phase is not PartitionPhase.ONLINE:
                state.leaderless[partition.key] = partition
        is_named = topic.topic_id == stored.assignment.topic_id
        if not is_named or topic.is_tiered != stored.assignment.is_tiered:
            unwritten.append(topic)
        deletion = state.pending_deletions.get(topic.topic_id)
        if deletion is not None and deletion.is_topic_deletion:
            unfinished.append(topic)
    for name, configs in snapshot.broker_configs.items():
        state.broker_configs[name] = dict(configs)
        state.stored_broker_configs.add(name)
    for path, quotas in snapshot.client_quotas.items():
        state.client_quotas[path] = dict(quotas)
        state.stored_quota_nodes.add(path)
    if snapshot.producer_ids is not None:
        state.next_producer_id = snapshot.producer_ids.end + 1
        state.has_producer_ids = True
    return state, unwritten, unfinished


def _removal(note: Deletion) -> PendingDeletion:
    phases = {
        (partition, broker_id): ReplicaPhase.OFFLINE
        for partition, holders in note.replicas.items()
        for broker_id in holders
    }
    return PendingDeletion(note.topic, note.topic_id, note.is_topic_deletion, phases, in_store=True)


def _topic(stored: StoredTopic, entropy: Entropy) -> Topic:
    is_named = stored.assignment.topic_id != NO_DIRECTORY
    topic_id = stored.assignment.topic_id if is_named else entropy.uuid()
    partitions = {
        index: _partition(stored, topic_id, index, replicas)
        for index, replicas in sorted(stored.assignment.partitions.items())
    }
    return Topic(
        stored.name,
        topic_id,
        partitions,
        dict(stored.configs),
        stored.version,
        stored.has_folder,
        stored.has_config,
    )


def _partition(
    stored: StoredTopic, topic_id: UUID, index: int, replicas: tuple[int, ...]
) -> Partition:
    partition = Partition(stored.name, topic_id, index, replicas)
    partition.adding = stored.assignment.adding.get(index, ())
    partition.removing = stored.assignment.removing.get(index, ())
    partition.has_folder = index in stored.folders
    partition.move(PartitionPhase.NEW)
    found = stored.records.get(index)
    if found is not None:
        record, partition.version = found
        partition.has_state = True
        partition.leader_epoch = record.leader_epoch
        # Who edited the replica list by hand left the record as it was.
        partition.isr = tuple(b for b in record.isr if b in replicas)
        partition.elr = tuple(b for b in record.elr if b in replicas)
        partition.directories = dict(record.directories)
        partition.uncreated = set(record.uncreated).intersection(replicas)
        is_led = record.leader in partition.isr
        partition.leader = record.leader if is_led else NO_LEADER
        partition.move(PartitionPhase.ONLINE if is_led else PartitionPhase.OFFLINE)
    for broker_id in replicas:
        partition.move_replica(broker_id, ReplicaPhase.NEW)
        if found is not None:
            partition.move_replica(broker_id, ReplicaPhase.ONLINE)
    return partition


__all__ = ["NO_VERSION", "Snapshot", "StoredTopic", "build_state"]
