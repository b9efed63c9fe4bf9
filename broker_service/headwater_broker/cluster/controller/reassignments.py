"""Moving replicas to other brokers (KIP-455).

Phase one: the replica list becomes target + old, and the new ones fetch. Phase two, once all of the
target's new members are in the ISR: the list becomes the target, a leader that leaves is replaced,
the data of those that leave is deleted. Assignment and partition record change in one write, so a
crash at any point leaves one of the two phases.
"""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater_broker.cluster.controller import elections, removals, selectors
from headwater_broker.cluster.controller.changes import Changes
from headwater_broker.cluster.controller.events import Reassign, Reply
from headwater_broker.cluster.controller.selectors import Case
from headwater_broker.cluster.controller.state import ControllerState, Partition
from headwater_broker.cluster.controller.transitions import PartitionPhase, ReplicaPhase

Outcome = tuple[ErrorCode, str | None]
OK: Outcome = (ErrorCode.NONE, None)


def on_reassign(state: ControllerState, changes: Changes, event: Reassign) -> None:
    """Start, replace or cancel per partition; one bad row leaves the others alone."""
    results: dict[tuple[str, int], Outcome] = {}
    for (topic, index), target in event.targets.items():
        partition = state.partition(topic, index)
        if partition is None:
            text = f"partition {topic}-{index} does not exist"
            results[topic, index] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        elif target is None:
            results[topic, index] = cancel(state, changes, partition)
        else:
            allowed = event.is_factor_change_allowed
            results[topic, index] = _start(state, changes, partition, target, allowed)
    changes.reply(Reply(event.token, results))


def _start(
    state: ControllerState,
    changes: Changes,
    partition: Partition,
    target: tuple[int, ...],
    is_factor_change_allowed: bool,
) -> Outcome:
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not target or len(set(target)) != len(target):
        return bad, f"{partition.name}: the replica list {list(target)} is empty or has duplicates"
    original = tuple(b for b in partition.replicas if b not in partition.adding)
    # Who is down may come back, and the move waits for it or is cancelled: as in KRaft.
    unknown = [b for b in target if b not in original and not state.was_registered(b)]
    if unknown:
        return bad, f"{partition.name}: brokers {unknown} were never registered"
    if not is_factor_change_allowed and len(target) != len(original):
        text = f"{partition.name}: {len(original)} replicas now, {len(target)} asked for"
        return ErrorCode.INVALID_REPLICATION_FACTOR, text
    if target == partition.replicas and not partition.adding and not partition.removing:
        return OK
    if partition.isr and not any(b in (*target, *original) for b in partition.isr):
        text = f"{partition.name}: nobody in the ISR {list(partition.isr)} would stay a replica"
        return bad, f"{text}: keep one of them in the list"
    _set_replicas(state, changes, partition, target, original)
    advance(state, changes, partition)
    return OK


def _set_replicas(
    state: ControllerState,
    changes: Changes,
    partition: Partition,
    target: tuple[int, ...],
    original: tuple[int, ...],
) -> None:
    """Phase one. A running reassignment is replaced: what only it added goes."""
    before = partition.replicas
    leaving = tuple(b for b in original if b not in target)
    partition.replicas = (*target, *leaving)
    partition.adding = tuple(b for b in target if b not in original)
    partition.removing = leaving
    for broker_id in before:
        if broker_id not in partition.replicas:
            _expel(state, changes, partition, broker_id)
    for broker_id in partition.adding:
        if broker_id in before:
            continue
        removals.keep_replica(state, changes, partition, broker_id)
        partition.move_replica(broker_id, ReplicaPhase.NEW)
        if broker_id not in state.brokers:
            partition.move_replica(broker_id, ReplicaPhase.OFFLINE)
        directory = state.sole_directory(broker_id)
        if directory is not None:
            partition.directories[broker_id] = directory
        changes.new_replica(partition, broker_id)
    state.reassigning.pop(partition.key, None)  # the old lists in another order move nothing
    state.add_partition(partition)
    changes.write_assignment(state.topics[partition.topic])
    changes.touch(partition)


def advance(state: ControllerState, changes: Changes, partition: Partition) -> bool:
    """Phase two, when every new member is in sync and somebody of the target can lead."""
    if not (partition.adding or partition.removing):
        return False
    if not set(partition.adding) <= set(partition.isr):
        return False
    if partition.phase is not PartitionPhase.ONLINE:
        return False
    target = partition.target
    able = elections.may_lead(state, partition)
    choice = selectors.reassigned(target, partition.leader, partition.isr, able)
    if choice.leader is None:
        return False
    leaving = partition.removing
    partition.replicas = target
    partition.adding = ()
    partition.removing = ()
    # Also when the leader stays, its epoch rises: it can't take a leaving replica back (B2-184).
    elections.lead(state, changes, partition, choice.leader, choice.isr)
    for broker_id in leaving:
        removals.remove_replica(state, changes, partition, broker_id)
    state.reassigning.pop(partition.key, None)
    changes.write_assignment(state.topics[partition.topic])
    return True


def cancel(state: ControllerState, changes: Changes, partition: Partition) -> Outcome:
    """Back to the replicas from before; those that were being added go."""
    if not (partition.adding or partition.removing):
        text = f"{partition.name}: no reassignment is in progress"
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, text
    original = tuple(b for b in partition.replicas if b not in partition.adding)
    if not any(b in original for b in partition.isr):
        text = f"{partition.name}: no original replica is in the ISR {list(partition.isr)}"
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, text
    added = partition.adding
    partition.replicas = original
    partition.adding = ()
    partition.removing = ()
    for broker_id in added:
        _expel(state, changes, partition, broker_id)
    state.reassigning.pop(partition.key, None)
    changes.write_assignment(state.topics[partition.topic])
    changes.touch(partition)
    return OK


def _expel(state: ControllerState, changes: Changes, partition: Partition, broker_id: int) -> None:
    """Take away a replica that is no longer in the list: out of the ISR, then deleted."""
    partition.isr = tuple(b for b in partition.isr if b != broker_id)
    partition.elr = tuple(b for b in partition.elr if b != broker_id)
    removals.remove_replica(state, changes, partition, broker_id)
    if partition.leader == broker_id:
        case = elections.elect(state, changes, partition)
        assert case is not Case.NOT_NEEDED
