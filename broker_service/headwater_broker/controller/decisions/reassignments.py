"""Partition reassignment: replicas move to other brokers (KIP-455).

Phase one: the replica list becomes target + old replicas, and the added ones fetch. Phase two, when
the whole target is in the ISR: the list becomes the target, a leader that leaves is replaced, and
removed replicas are deleted. Assignment and partition state change in one write, so a crash at any
point leaves one of the two phases.

A replica in the ISR may be the only one with all committed records: the leader may have lost power
a moment ago. That holds for a replica, too, whose reassignment was replaced or cancelled since. So
it is removed in phase two only. Until then it is both in `adding` (a cancellation removes it) and
in `removing` (it is not in the target).
"""

from __future__ import annotations

from dataclasses import replace

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.metadata_store import Set
from headwater_broker.controller.decisions import leader_elections, leader_selectors, topic_deletion
from headwater_broker.controller.decisions.decision_builder import DecisionBuilder, assignment_of
from headwater_broker.controller.decisions.leader_selectors import Case
from headwater_broker.controller.events import Reassign, Reply
from headwater_broker.controller.state import ControllerState, Partition
from headwater_broker.controller.state_machines import PartitionPhase, ReplicaPhase
from headwater_broker.controller.write_batches import MOVING_BYTES_MAX, check_size
from headwater_broker.metadata import znodes

Outcome = tuple[ErrorCode, str | None]
OK: Outcome = (ErrorCode.NONE, None)


def on_reassign(state: ControllerState, decision: DecisionBuilder, event: Reassign) -> None:
    """Start, replace or cancel a reassignment per partition. An invalid row does not affect the
    others."""
    results: dict[tuple[str, int], Outcome] = {}
    too_large = _too_large(state, event)
    for (topic, index), target in event.targets.items():
        partition = state.partition(topic, index)
        if topic in too_large:
            results[topic, index] = too_large[topic]
        elif partition is None:
            text = f"partition {topic}-{index} does not exist"
            results[topic, index] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        elif target is None:
            results[topic, index] = cancel(state, decision, partition)
        else:
            allowed = event.is_factor_change_allowed
            results[topic, index] = _start(state, decision, partition, target, allowed)
    decision.reply(Reply(event.token, results))


def _too_large(state: ControllerState, event: Reassign) -> dict[str, Outcome]:
    """Topics whose node would exceed ZooKeeper's limit with all these reassignments."""
    found: dict[str, Outcome] = {}
    rows: dict[str, dict[int, tuple[int, ...]]] = {}
    for (topic, index), target in event.targets.items():
        if target and state.partition(topic, index) is not None:
            rows.setdefault(topic, {})[index] = target
    for name, targets in rows.items():
        moved_topic = state.topics[name]
        now = assignment_of(moved_topic)
        lists = {i: _lists(moved_topic.partitions[i], target) for i, target in targets.items()}
        then = replace(
            now,
            partitions={**now.partitions, **{i: moved[0] for i, moved in lists.items()}},
            adding={**now.adding, **{i: moved[1] for i, moved in lists.items()}},
            removing={**now.removing, **{i: moved[2] for i, moved in lists.items()}},
        )
        node = Set(znodes.topic_path(name), then.encode())
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        try:
            check_size((node,), f"{name}: these reassignments", code, allowed=MOVING_BYTES_MAX)
        except KafkaError as e:
            found[name] = (code, f"{e.detail}: reassign fewer of its partitions at a time")
    return found


def _start(
    state: ControllerState,
    decision: DecisionBuilder,
    partition: Partition,
    target: tuple[int, ...],
    is_factor_change_allowed: bool,
) -> Outcome:
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not target or len(set(target)) != len(target):
        return bad, f"{partition.name}: the replica list {list(target)} is empty or has duplicates"
    original = partition.original
    # A broker that is down may return: the reassignment waits for it or is cancelled, as in KRaft.
    unknown = [b for b in target if b not in original and not state.was_registered(b)]
    if unknown:
        return bad, f"{partition.name}: brokers {unknown} were never registered"
    if not is_factor_change_allowed and len(target) != len(original):
        text = f"{partition.name}: {len(original)} replicas now, {len(target)} asked for"
        return ErrorCode.INVALID_REPLICATION_FACTOR, text
    if target == partition.replicas and not partition.adding and not partition.removing:
        return OK
    _set_replicas(state, decision, partition, target)
    advance(state, decision, partition)
    return OK


def _lists(partition: Partition, target: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """(replicas, adding, removing) of phase one. Replicas that a replaced reassignment added stay
    until phase two if they have every committed record."""
    original = partition.original
    committed = (*partition.isr, *partition.elr)
    held = tuple(b for b in partition.adding if b in committed and b not in target)
    removing = (*(b for b in original if b not in target), *held)
    adding = (*(b for b in target if b not in original), *held)
    return (*target, *removing), adding, removing


def _set_replicas(
    state: ControllerState,
    decision: DecisionBuilder,
    partition: Partition,
    target: tuple[int, ...],
) -> None:
    """Phase one. It replaces a running reassignment: replicas that only that one added are removed,
    now or, if they have every committed record, in phase two."""
    before = partition.replicas
    partition.replicas, partition.adding, partition.removing = _lists(partition, target)
    for broker_id in before:
        if broker_id not in partition.replicas:
            _remove_replica(state, decision, partition, broker_id)
    for broker_id in partition.adding:
        if broker_id in before:
            continue
        topic_deletion.cancel_replica_deletion(state, decision, partition, broker_id)
        partition.move_replica(broker_id, ReplicaPhase.NEW)
        if broker_id not in state.brokers:
            partition.move_replica(broker_id, ReplicaPhase.OFFLINE)
        directory = state.sole_directory(broker_id)
        if directory is not None:
            partition.directories[broker_id] = directory
        decision.create_replica(partition, broker_id)
    state.reassigning.pop(partition.key, None)  # the same replicas in another order move nothing
    state.add_partition(partition)
    decision.write_assignment(state.topics[partition.topic])
    decision.partition_changed(partition)


def advance(state: ControllerState, decision: DecisionBuilder, partition: Partition) -> bool:
    """Phase two, if the whole target is in the ISR and one of it may lead (B2-192). True when done.

    KRaft, too, requires the target's old replicas in the ISR: without that the ISR could shrink to
    one of them.
    """
    if not (partition.adding or partition.removing):
        return False
    target = partition.target
    if not set(target) <= set(partition.isr):
        return False
    if partition.phase is not PartitionPhase.ONLINE:
        return False
    able = leader_elections.may_lead(state, partition)
    choice = leader_selectors.reassigned(target, partition.leader, partition.isr, able)
    if choice.leader is None:
        return False
    leaving = partition.removing
    partition.replicas = target
    partition.adding = ()
    partition.removing = ()
    # The leader epoch rises even if the leader stays: it cannot add a removed replica again
    # (B2-184).
    leader_elections.lead(state, decision, partition, choice.leader, choice.isr)
    for broker_id in leaving:
        topic_deletion.delete_replica(state, decision, partition, broker_id)
    state.reassigning.pop(partition.key, None)
    decision.write_assignment(state.topics[partition.topic])
    return True


def cancel(state: ControllerState, decision: DecisionBuilder, partition: Partition) -> Outcome:
    """Cancel: restore the original replicas and remove the added ones.

    If fewer than min.insync.replicas of the ISR would remain, the way back is a reassignment of its
    own: added replicas in the ISR are removed once the original ones are in sync.
    """
    if not (partition.adding or partition.removing):
        text = f"{partition.name}: no reassignment is in progress"
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, text
    original = partition.original
    remaining = sum(b in original for b in partition.isr)
    least = max(1, min(state.min_insync_replicas(partition), len(original)))
    if remaining < min(least, len(partition.isr)):
        _set_replicas(state, decision, partition, original)
        advance(state, decision, partition)
        return OK
    added = partition.adding
    partition.replicas = original
    partition.adding = ()
    partition.removing = ()
    for broker_id in added:
        _remove_replica(state, decision, partition, broker_id)
    state.reassigning.pop(partition.key, None)
    decision.write_assignment(state.topics[partition.topic])
    decision.partition_changed(partition)
    return OK


def _remove_replica(
    state: ControllerState, decision: DecisionBuilder, partition: Partition, broker_id: int
) -> None:
    """Take a replica that is no longer assigned out of the ISR, and delete it."""
    partition.isr = tuple(b for b in partition.isr if b != broker_id)
    partition.elr = tuple(b for b in partition.elr if b != broker_id)
    topic_deletion.delete_replica(state, decision, partition, broker_id)
    if partition.leader == broker_id:
        case = leader_elections.elect(state, decision, partition)
        assert case is not Case.NOT_NEEDED
