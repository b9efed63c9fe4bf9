"""Builds a new controller's state from a snapshot of ZooKeeper. Pure; `reader` does the reading.

Brokers are loaded as the last controller saw them (`/headwater/lives`). The comparison with the
registrations of now then handles every death and return in between.
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
from headwater_broker.security.delegation_tokens import DelegationToken


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopic:
    """One topic in ZooKeeper. `folders`: partitions that have a node; `czxid`: of the topic's node,
    lower for older nodes."""

    name: str
    assignment: TopicAssignment
    version: int
    czxid: int
    configs: Mapping[str, str]
    has_config: bool
    has_folder: bool
    folders: frozenset[int]
    records: Mapping[int, tuple[PartitionRecord, int]]
    """Partition -> (state, version of its node)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that the controller reads from ZooKeeper."""

    registered: Mapping[int, RegisteredBroker]
    topics: tuple[StoredTopic, ...]
    deletions: tuple[Deletion, ...]
    last_registrations: Mapping[int, LastRegistration]
    producer_ids: ProducerIdBlock | None
    unreadable_registrations: frozenset[int] = frozenset()
    """Brokers whose last registration cannot be read."""
    unreadable_deletions: frozenset[UUID] = frozenset()
    """Topic ids of pending deletions that cannot be read."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Topics whose nodes cannot be used, with the reason."""
    stray_configs: frozenset[str] = frozenset()
    """Names below `/config/topics` without a usable topic."""
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By broker id as text; the empty name stands for all brokers."""
    client_quotas: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By entity path: every node that exists, also without a quota."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By group id: every node that exists, also without a config."""
    tokens: tuple[DelegationToken, ...] = ()
    """Delegation tokens."""


def build_state(
    controller_id: int,
    controller_epoch: int,
    cluster_id: str,
    config: ControllerConfig,
    snapshot: Snapshot,
    entropy: Entropy,
) -> tuple[ControllerState, list[Topic], list[Topic]]:
    """The state, topics whose node must be written, and topics whose deletion is not finished."""
    state = ControllerState(controller_id, controller_epoch, cluster_id, config)
    for broker_id, last in snapshot.last_registrations.items():
        found = snapshot.registered.get(broker_id)
        is_same = found is not None and found.epoch == last.broker_epoch
        registration = found.registration if found is not None and is_same else None
        min_isr = (registration or last).min_insync_replicas
        broker = Broker(broker_id, last.broker_epoch, last.boot_id, registration, min_isr)
        state.brokers[broker_id] = broker
        state.stored_registrations.add(broker_id)
    state.stored_registrations |= snapshot.unreadable_registrations
    state.unreadable_deletions = set(snapshot.unreadable_deletions)
    state.unusable = dict(snapshot.unusable)
    state.stray_configs = set(snapshot.stray_configs)
    for stored_deletion in snapshot.deletions:
        state.pending_deletions[stored_deletion.topic_id] = _pending_deletion(stored_deletion)
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
    for group_id, configs in snapshot.group_configs.items():
        state.group_configs[group_id] = dict(configs)
    state.tokens.update(snapshot.tokens)
    if snapshot.producer_ids is not None:
        state.next_producer_id = snapshot.producer_ids.end + 1
        state.has_producer_ids = True
    return state, unwritten, unfinished


def _pending_deletion(deletion: Deletion) -> PendingDeletion:
    phases = {
        (partition, broker_id): ReplicaPhase.OFFLINE
        for partition, holders in deletion.replicas.items()
        for broker_id in holders
    }
    return PendingDeletion(
        deletion.topic, deletion.topic_id, deletion.is_topic_deletion, phases, in_store=True
    )


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
    # A record without an ISR is of a restore: no replica exists, the first leader creates them.
    partition.move(PartitionPhase.NEW)
    found = stored.records.get(index)
    if found is not None:
        record, partition.version = found
        partition.has_state = True
        partition.leader_epoch = record.leader_epoch
        # A replica list that was edited by hand may lack members of the ISR.
        partition.isr = tuple(b for b in record.isr if b in replicas)
        partition.elr = tuple(b for b in record.elr if b in replicas)
        partition.directories = dict(record.directories)
        partition.uncreated = set(record.uncreated).intersection(replicas)
        is_led = record.leader in partition.isr
        partition.leader = record.leader if is_led else NO_LEADER
        if record.isr:
            partition.move(PartitionPhase.ONLINE if is_led else PartitionPhase.OFFLINE)
    for broker_id in replicas:
        partition.move_replica(broker_id, ReplicaPhase.NEW)
        if found is not None and record.isr:
            partition.move_replica(broker_id, ReplicaPhase.ONLINE)
    return partition


__all__ = ["NO_VERSION", "Snapshot", "StoredTopic", "build_state"]
