"""Moving replicas to other brokers (KIP-455).

Phase one: the replica list becomes target + old, and the new ones fetch. Phase two, once all of the
target is in the ISR: the list becomes the target, a leader that leaves is replaced, the data of
those that leave is deleted. Assignment and partition record change in one write, so a crash at any
point leaves one of the two phases.

A replica in sync may be the only one that holds what was committed, also when a move added it that
is replaced or cancelled since: the leader may have lost power a moment ago. So it goes in phase two
only; until then it is both "adding" (a cancel takes it away) and "removing" (the target is without
it).
"""

from __future__ import annotations

from dataclasses import replace

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.metadata_store import Set
from headwater_broker.controller.decisions import elections, leader_selectors, topic_deletion
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
    """Start, replace or cancel per partition; one bad row leaves the others alone."""
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
    """Topics of so many partitions that a node cannot tell of all these moves at once."""
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
            check_size((node,), f"{name}: these moves", code, allowed=MOVING_BYTES_MAX)
        except KafkaError as e:
            found[name] = (code, f"{e.detail}: move fewer of its partitions at a time")
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
    # Who is down may come back, and the move waits for it or is cancelled: as in KRaft.
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
    """(replicas, adding, removing) of phase one. Of what only a replaced move added those stay that
    hold what is committed."""
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
    """Phase one. A running reassignment is replaced: what only it added goes, at the end if it
    holds what is committed."""
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
    state.reassigning.pop(partition.key, None)  # the old lists in another order move nothing
    state.add_partition(partition)
    decision.write_assignment(state.topics[partition.topic])
    decision.partition_changed(partition)


def advance(state: ControllerState, decision: DecisionBuilder, partition: Partition) -> bool:
    """Phase two, when all of the target is in sync and somebody of it can lead (B2-192; KRaft asks
    for the old members of the target too, since else the ISR could shrink to one of them)."""
    if not (partition.adding or partition.removing):
        return False
    target = partition.target
    if not set(target) <= set(partition.isr):
        return False
    if partition.phase is not PartitionPhase.ONLINE:
        return False
    able = elections.may_lead(state, partition)
    choice = leader_selectors.reassigned(target, partition.leader, partition.isr, able)
    if choice.leader is None:
        return False
    leaving = partition.removing
    partition.replicas = target
    partition.adding = ()
    partition.removing = ()
    # Also when the leader stays, its epoch rises: it can't take a leaving replica back (B2-184).
    elections.lead(state, decision, partition, choice.leader, choice.isr)
    for broker_id in leaving:
        topic_deletion.delete_replica(state, decision, partition, broker_id)
    state.reassigning.pop(partition.key, None)
    decision.write_assignment(state.topics[partition.topic])
    return True


def cancel(state: ControllerState, decision: DecisionBuilder, partition: Partition) -> Outcome:
    """Back to the replicas from before; those that were being added go.

    When too few of the ISR would remain for min.insync.replicas, going back is a move of its own:
    those in sync go once the replicas from before are.
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
    """Take away a replica that is no longer in the list: out of the ISR, then deleted."""
    partition.isr = tuple(b for b in partition.isr if b != broker_id)
    partition.elr = tuple(b for b in partition.elr if b != broker_id)
    topic_deletion.delete_replica(state, decision, partition, broker_id)
    if partition.leader == broker_id:
        case = elections.elect(state, decision, partition)
        assert case is not Case.NOT_NEEDED
