"""Deletion of topics and of removed replicas, repeated until every broker has confirmed it.

The name of a deleted topic is free at once, as in KRaft (Kafka's ZooKeeper mode kept the topic
until all replicas were back). What is left to do is stored by topic id. StopReplica carries the
topic id, so a newer topic of the same name is safe.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from headwater.errors import ErrorCode
from headwater_broker.controller.decisions.decision_builder import DecisionBuilder
from headwater_broker.controller.events import (
    DeleteTopics,
    Reply,
    StopReplicaResponseReceived,
    TopicResult,
)
from headwater_broker.controller.state import (
    ControllerState,
    Partition,
    PendingDeletion,
    Topic,
)
from headwater_broker.controller.state_machines import ReplicaPhase
from headwater_broker.metadata.znodes import NO_DIRECTORY

NO_LEADER_EPOCH = -1
"""In StopReplica: delete the replica whatever its leader epoch."""

DELETION_DISABLED = "Topic deletion is disabled: delete.topic.enable is false."

_DONE = frozenset(
    {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)


def on_delete_topics(
    state: ControllerState, decision: DecisionBuilder, event: DeleteTopics
) -> None:
    """Delete topics by name or id. The reply comes when brokers no longer list them."""
    results = []
    found = [_named(state, *row) for row in event.topics]
    times = Counter(event.topics)
    meant = Counter(topic.topic_id for topic in found if topic is not None)
    for (name, topic_id), topic in zip(event.topics, found, strict=True):
        is_repeated = times[name, topic_id] > 1
        is_meant_again = topic is not None and meant[topic.topic_id] > 1
        fault = _contradiction(name, topic_id, is_repeated, is_meant_again)
        if fault:
            bad = ErrorCode.INVALID_REQUEST
            if topic is not None and not is_repeated:  # named once by name and once by id
                name, topic_id = topic.name, topic.topic_id
            results.append(TopicResult(name=name, topic_id=topic_id, error=bad, message=fault))
        elif topic is None:
            by_name = name is not None
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if by_name else ErrorCode.UNKNOWN_TOPIC_ID
            results.append(TopicResult(name=name, topic_id=topic_id, error=code))
        elif not state.config.delete_topic_enable:
            disabled = ErrorCode.TOPIC_DELETION_DISABLED
            row = TopicResult(
                name=topic.name,
                topic_id=topic.topic_id,
                error=disabled,
                message=DELETION_DISABLED,
            )
            results.append(row)
        else:
            delete_topic(state, decision, topic, requested=event.requested_in_store)
            results.append(TopicResult(name=topic.name, topic_id=topic.topic_id))
    decision.reply(Reply(event.token, tuple(results), after_delivery=True))


def _named(state: ControllerState, name: str | None, topic_id: UUID) -> Topic | None:
    return state.topics.get(name) if name is not None else state.topic_by_id.get(topic_id)


def _contradiction(
    name: str | None, topic_id: UUID, is_repeated: bool, is_meant_again: bool
) -> str:
    """Why this row of the request is invalid, in Kafka's words; empty when it is valid."""
    if name is None and topic_id == NO_DIRECTORY:
        return "Neither topic name nor id were specified."
    if is_repeated:
        return "Duplicate topic id." if name is None else "Duplicate topic name."
    if is_meant_again:
        return "The provided topic name maps to an ID that was already supplied."
    return ""


def delete_topic(
    state: ControllerState, decision: DecisionBuilder, topic: Topic, *, requested: bool = False
) -> None:
    """Remove the topic from the state, and send StopReplica to the brokers of its replicas."""
    deletion = _pending_deletion(state, decision, topic.name, topic.topic_id)
    deletion.is_topic_deletion = True
    for partition in topic.partitions.values():
        for broker_id in partition.replicas:
            deletion.phases[partition.index, broker_id] = ReplicaPhase.OFFLINE
    state.drop_topic(topic)
    decision.delete_topic(topic, deletion, requested=requested)
    for broker_id in sorted(state.brokers):
        _request_all(decision, deletion, broker_id)
    _finish(state, decision, deletion)


def _pending_deletion(
    state: ControllerState, decision: DecisionBuilder, topic: str, topic_id: UUID
) -> PendingDeletion:
    """The topic's pending deletion, a new one when there is none."""
    known = state.pending_deletions.get(topic_id) or decision.unwritten_deletion(topic_id)
    is_stored = topic_id in state.unreadable_deletions
    deletion = known or PendingDeletion(
        topic, topic_id, is_topic_deletion=False, phases={}, in_store=is_stored
    )
    state.unreadable_deletions.discard(topic_id)
    state.pending_deletions[topic_id] = deletion
    return deletion


def delete_replica(
    state: ControllerState, decision: DecisionBuilder, partition: Partition, broker_id: int
) -> None:
    """Delete a replica that a reassignment removed from the broker."""
    deletion = _pending_deletion(state, decision, partition.topic, partition.topic_id)
    deletion.phases[partition.index, broker_id] = ReplicaPhase.OFFLINE
    state.drop_replica(partition, broker_id)
    decision.write_deletion(deletion)
    if broker_id in state.brokers:
        _request_replica(decision, deletion, (partition.index, broker_id))


def cancel_replica_deletion(
    state: ControllerState, decision: DecisionBuilder, partition: Partition, broker_id: int
) -> None:
    """The replica is assigned to the broker again: cancel its deletion."""
    decision.cancel_stop(partition, broker_id)
    deletion = state.pending_deletions.get(partition.topic_id)
    if deletion is not None and deletion.phases.pop((partition.index, broker_id), None) is not None:
        decision.write_deletion(deletion)
        if not deletion.phases:
            del state.pending_deletions[partition.topic_id]


def _request_all(decision: DecisionBuilder, deletion: PendingDeletion, broker_id: int) -> None:
    """Send StopReplica for all replicas that one broker still has to delete."""
    for key in [key for key in deletion.phases if key[1] == broker_id]:
        _request_replica(decision, deletion, key)


def _request_replica(
    decision: DecisionBuilder, deletion: PendingDeletion, key: tuple[int, int]
) -> None:
    """Send StopReplica for one replica, unless it was sent already."""
    partition, holder = key
    deletion.on_failed_disks.discard(key)
    if deletion.phases[key] is ReplicaPhase.DELETION_STARTED:
        return
    if deletion.phases[key] is ReplicaPhase.DELETION_INELIGIBLE:
        deletion.move(partition, holder, ReplicaPhase.OFFLINE)
    deletion.move(partition, holder, ReplicaPhase.DELETION_STARTED)
    row = (deletion.topic_id, partition)
    decision.add_stop(holder, deletion.topic, row, NO_LEADER_EPOCH, delete=True)


def on_stop_replica_response(
    state: ControllerState, decision: DecisionBuilder, event: StopReplicaResponseReceived
) -> None:
    """Drop confirmed replicas. Failed ones are tried again by the timer, or, if their disk failed,
    after the broker's restart."""
    broker = state.brokers.get(event.broker_id)
    is_this_life = broker is not None and broker.epoch == event.broker_epoch
    errors = {(p.topic_id, p.partition): p.error_code for p in event.reply.partitions}
    touched: dict[UUID, PendingDeletion] = {}
    for row in event.asked:
        deletion = state.pending_deletions.get(row.topic_id)
        if deletion is None or not row.delete:
            continue
        key = (row.partition, event.broker_id)
        if deletion.phases.get(key) is not ReplicaPhase.DELETION_STARTED:
            continue
        code = errors.get((row.topic_id, row.partition), event.reply.error_code)
        if code in _DONE:
            deletion.move(*key, ReplicaPhase.DELETION_SUCCESSFUL)
            deletion.move(*key, ReplicaPhase.NON_EXISTENT)
            del deletion.phases[key]
            touched[row.topic_id] = deletion
        else:
            deletion.move(*key, ReplicaPhase.DELETION_INELIGIBLE)
            if code == ErrorCode.KAFKA_STORAGE_ERROR and is_this_life:
                deletion.on_failed_disks.add(key)
    for deletion in touched.values():
        if not _finish(state, decision, deletion):
            decision.write_deletion(deletion)


def _finish(state: ControllerState, decision: DecisionBuilder, deletion: PendingDeletion) -> bool:
    if deletion.phases:
        return False
    state.pending_deletions.pop(deletion.topic_id, None)
    decision.finish_deletion(deletion)
    return True


def on_broker_gone(state: ControllerState, decision: DecisionBuilder, broker_id: int) -> None:
    """A broker died with deletions in flight: wait until it is back."""
    for deletion in state.pending_deletions.values():
        for (partition, holder), phase in list(deletion.phases.items()):
            if holder == broker_id and phase is ReplicaPhase.DELETION_STARTED:
                deletion.move(partition, holder, ReplicaPhase.DELETION_INELIGIBLE)


def on_broker_back(state: ControllerState, decision: DecisionBuilder, broker_id: int) -> None:
    """Repeat the deletions that the broker has not confirmed."""
    for deletion in state.pending_deletions.values():
        _request_all(decision, deletion, broker_id)


def retry_failed(state: ControllerState, decision: DecisionBuilder) -> None:
    """Repeat failed deletions on live brokers."""
    for deletion in state.pending_deletions.values():
        failed = [
            key
            for key, phase in deletion.phases.items()
            if phase is ReplicaPhase.DELETION_INELIGIBLE
            and key[1] in state.brokers
            and key not in deletion.on_failed_disks
        ]
        for key in sorted(failed):
            _request_replica(decision, deletion, key)


def drop_assigned(state: ControllerState, decision: DecisionBuilder) -> None:
    """Drop deletions of assigned replicas; their data stays.

    An older version stored the deletion before the replica list, and its controller may have died
    in between.
    """
    for deletion in list(state.pending_deletions.values()):
        topic = state.topic_by_id.get(deletion.topic_id)
        if topic is None or deletion.is_topic_deletion:
            continue
        kept = [key for key in deletion.phases if _is_assigned(topic, *key)]
        for key in kept:
            del deletion.phases[key]
        if kept:
            decision.write_deletion(deletion)
        if not deletion.phases:
            del state.pending_deletions[deletion.topic_id]


def _is_assigned(topic: Topic, index: int, broker_id: int) -> bool:
    partition = topic.partitions.get(index)
    return partition is not None and broker_id in partition.replicas


def resume(state: ControllerState, decision: DecisionBuilder) -> None:
    """Continue the deletions of the last controller."""
    for deletion in list(state.pending_deletions.values()):
        for broker_id in sorted(state.brokers):
            _request_all(decision, deletion, broker_id)
        _finish(state, decision, deletion)
