"""Leader elections: applies the choice of a leader selector to a partition.

A change of leader raises the leader epoch. A change of the ISR alone does not (KIP-497), so that
the leader goes on without truncation.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater_broker.controller.decisions import leader_selectors
from headwater_broker.controller.decisions.decision_builder import DecisionBuilder
from headwater_broker.controller.decisions.leader_selectors import Case
from headwater_broker.controller.state import (
    NO_LEADER,
    ControllerState,
    Partition,
)
from headwater_broker.controller.state_machines import PartitionPhase


def may_lead(state: ControllerState, partition: Partition) -> frozenset[int]:
    """The replicas that may lead: those without a fault."""
    return frozenset(b for b in partition.replicas if not state.fault(partition, b))


def first_leader(state: ControllerState, decision: DecisionBuilder, partition: Partition) -> bool:
    """New -> Online: the first live replica leads, and all live replicas are in the ISR.

    False without a live replica: the partition stays New, and nothing is written.
    """
    live = tuple(b for b in partition.replicas if not state.fault(partition, b))
    if not live:
        _set_offline_reason(state, decision, partition)
        state.leaderless[partition.key] = partition
        return False
    for broker_id in live:
        directory = state.sole_directory(broker_id)
        if directory is not None:
            partition.directories[broker_id] = directory
        decision.create_replica(partition, broker_id)
    lead(state, decision, partition, live[0], live)
    return True


def lead(
    state: ControllerState,
    decision: DecisionBuilder,
    partition: Partition,
    leader: int,
    isr: tuple[int, ...],
    *,
    unclean: bool = False,
) -> None:
    """Make `leader` the leader with this ISR, in a new leader epoch. After an `unclean` election no
    other replica is eligible to lead."""
    if partition.phase is not PartitionPhase.NEW:
        partition.leader_epoch += 1
    partition.leader = leader
    partition.set_isr(isr, 0 if unclean else state.min_insync_replicas(partition))
    partition.offline_reason = ""
    partition.move(PartitionPhase.ONLINE)
    state.leaderless.pop(partition.key, None)
    decision.partition_changed(partition)


def go_offline(state: ControllerState, decision: DecisionBuilder, partition: Partition) -> None:
    """No replica may lead: set no leader, in a new leader epoch. The ISR stays: its members may
    return."""
    if partition.leader != NO_LEADER:
        partition.leader = NO_LEADER
        partition.leader_epoch += 1
        decision.partition_changed(partition)
    partition.move(PartitionPhase.OFFLINE)
    state.leaderless[partition.key] = partition
    _set_offline_reason(state, decision, partition)


def elect(
    state: ControllerState,
    decision: DecisionBuilder,
    partition: Partition,
    *,
    unclean: bool = False,
) -> Case:
    """Elect a leader where it is gone or missing, by the offline selector."""
    if partition.phase is PartitionPhase.NEW:
        return Case.CLEAN if first_leader(state, decision, partition) else Case.NONE_LIVE
    allowed = unclean or state.is_unclean_allowed(partition.topic)
    able = may_lead(state, partition)
    choice = leader_selectors.offline(
        partition.replicas, partition.isr, able, unclean=allowed, elr=partition.elr
    )
    if choice.leader is None and allowed:
        choice = _elect_without_log(state, decision, partition, forced=unclean)
    if choice.leader is None:
        go_offline(state, decision, partition)
        return choice.case
    is_unclean = choice.case is Case.UNCLEAN
    if is_unclean:
        state.unclean_elections += 1
        decision.warn(
            f"{partition.name}: unclean election: broker {choice.leader} leads, "
            "which was not in sync: acknowledged records may be lost"
        )
    lead(state, decision, partition, choice.leader, choice.isr, unclean=is_unclean)
    return choice.case


def _elect_without_log(
    state: ControllerState, decision: DecisionBuilder, partition: Partition, *, forced: bool
) -> leader_selectors.Choice:
    """An unclean election where only replicas without their log are left: one of them leads, empty.

    A replica on a failed disk leads only by an operator's request (`forced`): by itself the
    election would be repeated for ever.
    """
    for broker_id in partition.replicas:
        fault = (partition.key, broker_id)
        if broker_id not in state.brokers or broker_id in state.shutting_down:
            continue
        if state.has_lost_directory(partition, broker_id):
            reset_directory(state, partition, broker_id)
        elif not (forced and fault in state.storage_faults):
            continue
        state.storage_faults.discard(fault)
        decision.create_replica(partition, broker_id)
        return leader_selectors.Choice(Case.UNCLEAN, broker_id, (broker_id,))
    return leader_selectors.Choice(Case.NONE_LIVE)


def reset_directory(state: ControllerState, partition: Partition, broker_id: int) -> None:
    """Have the broker create this replica in a directory that it has."""
    directory = state.sole_directory(broker_id)
    if directory is None:
        partition.directories.pop(broker_id, None)
    else:
        partition.directories[broker_id] = directory


def leave_isr(
    state: ControllerState, decision: DecisionBuilder, partition: Partition, broker_id: int
) -> bool:
    """Take a follower out of the ISR. The last member always stays; True when it left.

    The last member has every committed record: without it an empty replica could be elected.
    """
    rest = tuple(b for b in partition.isr if b != broker_id)
    if broker_id not in partition.isr or not rest:
        return False
    partition.set_isr(rest, state.min_insync_replicas(partition))
    if partition.phase is PartitionPhase.OFFLINE:
        _set_offline_reason(state, decision, partition)
    decision.partition_changed(partition)
    return True


def replica_lost_data(
    state: ControllerState, decision: DecisionBuilder, partition: Partition, broker_id: int
) -> None:
    """A replica came back without some of its records: it leaves the ISR and the ELR.

    If it is the last member of the ISR, the eligible leader replicas become the ISR. Without any it
    stays, as no replica is known to have more. So an ISR is never empty; Kafka stores that last
    member as `LastKnownElr` (`api/k75_describe_topic_partitions`).
    """
    if broker_id not in (*partition.isr, *partition.elr):
        return
    rest = tuple(b for b in partition.isr if b != broker_id)
    others = tuple(b for b in partition.elr if b != broker_id)
    if rest:
        partition.set_isr(rest, state.min_insync_replicas(partition))
        partition.elr = tuple(b for b in partition.elr if b != broker_id)
    elif others:
        partition.isr, partition.elr = others, ()
    else:
        return
    if partition.phase is PartitionPhase.OFFLINE:
        _set_offline_reason(state, decision, partition)
    decision.partition_changed(partition)


def recheck_elr(
    state: ControllerState, decision: DecisionBuilder, partitions: Iterable[Partition]
) -> None:
    """Recompute the ELR after min.insync.replicas may have become lower: then leaders commit with
    fewer replicas, and replicas outside the ISR may lack records."""
    for partition in partitions:
        before = partition.elr
        if before:
            partition.set_isr(partition.isr, state.min_insync_replicas(partition))
        if partition.elr != before:
            decision.partition_changed(partition)


def _set_offline_reason(
    state: ControllerState, decision: DecisionBuilder, partition: Partition
) -> None:
    """Set the reason, in one line, why no replica leads, and the remedy."""
    members = (*partition.isr, *partition.elr) or partition.replicas
    faults = "; ".join(f for b in members if (f := state.fault(partition, b)))
    kind = f"ISR {list(partition.isr)}" if partition.isr else "no replica has ever been live"
    kind += f", eligible {list(partition.elr)}" if partition.elr else ""
    lost = any(state.has_lost_directory(partition, b) for b in members)
    remedy = "bring back the old disk" if lost else "start the broker"
    reason = (
        f"no in-sync replica may lead ({kind}): {faults}. {remedy[0].upper()}{remedy[1:]}, or run "
        "an unclean election and lose the records that only this replica has"
    )
    if reason != partition.offline_reason:
        partition.offline_reason = reason
        decision.publish(partition)
