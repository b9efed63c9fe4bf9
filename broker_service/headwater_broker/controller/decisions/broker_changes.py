"""Decisions on brokers that start, die, return or shut down.

Order matters. A broker that returns without its disk leaves the ISRs before any election and before
it counts as live, so that an empty replica never becomes the leader (KIP-858, KIP-966, KIP-903).
"""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater.wire.control import ControlledShutdownReply
from headwater_broker.controller.decisions import (
    leader_balance,
    leader_elections,
    leader_selectors,
    topic_deletion,
)
from headwater_broker.controller.decisions.decision_builder import DecisionBuilder
from headwater_broker.controller.events import (
    BrokerChange,
    ControlledShutdown,
    RegisteredBroker,
    Reply,
)
from headwater_broker.controller.state import Broker, ControllerState, Partition
from headwater_broker.controller.state_machines import ReplicaPhase


def on_broker_change(
    state: ControllerState, decision: DecisionBuilder, event: BrokerChange
) -> None:
    """Compare registrations with the known brokers. A new epoch stands for a death and a return."""
    found = event.brokers
    gone = [b for b, known in state.brokers.items() if _is_gone(known, found.get(b))]
    fresh = sorted(b for b in found if b not in state.brokers or b in gone)
    if not gone and not fresh:
        return
    _remove_brokers(state, decision, sorted(gone))
    for broker_id in fresh:
        _add_broker(state, decision, broker_id, found[broker_id])
    for partition in list(state.leaderless.values()):
        leader_elections.elect(state, decision, partition)
    if fresh:
        _replace_lost_replicas(state, decision, fresh)
    for broker_id in fresh:
        leader_balance.watch_catching_up(state, broker_id)
    decision.publish_brokers()


def _is_gone(known: Broker, found: RegisteredBroker | None) -> bool:
    return found is None or found.epoch != known.epoch


def _remove_brokers(state: ControllerState, decision: DecisionBuilder, gone: list[int]) -> None:
    """Brokers died: elect other leaders, then take the dead followers out of the ISRs.

    The order matters. While a dead broker still counts as the leader, followers that died with it
    would leave the ISR, and only the dead leader would remain in it.
    """
    for broker_id in gone:
        broker = state.brokers.pop(broker_id)
        broker.registration = None
        state.offline_brokers[broker_id] = broker
        state.shutting_down.discard(broker_id)
        state.catching_up.pop(broker_id, None)
    followed = []
    for broker_id in gone:
        for partition in list(state.hosted.get(broker_id, {}).values()):
            _set_offline(partition, broker_id)
            if partition.leader == broker_id:
                leader_elections.elect(state, decision, partition)
            else:
                followed.append((partition, broker_id))
    for partition, broker_id in followed:
        _drop_follower(state, decision, partition, broker_id)
    for broker_id in gone:
        topic_deletion.on_broker_gone(state, decision, broker_id)


def _set_offline(partition: Partition, broker_id: int) -> None:
    now = partition.replica_phases.get(broker_id, ReplicaPhase.NON_EXISTENT)
    if now is not ReplicaPhase.NON_EXISTENT:
        partition.move_replica(broker_id, ReplicaPhase.OFFLINE)


def _drop_follower(
    state: ControllerState, decision: DecisionBuilder, partition: Partition, broker_id: int
) -> None:
    # Without a leader the ISR stays as it is: each member has every committed record.
    has_leader = partition.leader >= 0
    if not (has_leader and leader_elections.leave_isr(state, decision, partition, broker_id)):
        decision.publish(partition)


def _add_broker(
    state: ControllerState, decision: DecisionBuilder, broker_id: int, found: RegisteredBroker
) -> None:
    """A broker registered. First drop replicas that lost data from ISRs, then count it as live."""
    registration = found.registration
    memory = state.offline_brokers.pop(broker_id, None)
    min_isr = registration.min_insync_replicas
    broker = Broker(broker_id, found.epoch, registration.boot_id, registration, min_isr)
    is_power_loss = memory is not None and _lost_power(memory, broker)
    for partition in list(state.hosted.get(broker_id, {}).values()):
        directory = partition.directories.get(broker_id)
        is_lost = directory is not None and directory not in registration.directory_ids
        if is_lost or is_power_loss:
            leader_elections.replica_lost_data(state, decision, partition, broker_id)
    state.storage_faults = {f for f in state.storage_faults if f[1] != broker_id}
    state.brokers[broker_id] = broker
    # Before it may lead with a lower min.insync.replicas than before its restart.
    leader_elections.recheck_elr(state, decision, state.hosted.get(broker_id, {}).values())
    for partition in state.hosted.get(broker_id, {}).values():
        now = partition.replica_phases.get(broker_id, ReplicaPhase.NON_EXISTENT)
        if now is ReplicaPhase.NON_EXISTENT:
            partition.move_replica(broker_id, ReplicaPhase.NEW)
        else:
            partition.move_replica(broker_id, ReplicaPhase.ONLINE)
        decision.publish(partition)
    decision.write_last_registration(broker)
    decision.publish_brokers(full=broker_id)
    topic_deletion.on_broker_back(state, decision, broker_id)


def _lost_power(memory: Broker, now: Broker) -> bool:
    """Whether the broker stopped uncleanly and its machine rebooted: the page cache is lost."""
    assert now.registration is not None
    is_clean = now.registration.clean_shutdown_epoch == memory.epoch
    return not is_clean and memory.boot_id != now.boot_id


def _replace_lost_replicas(
    state: ControllerState, decision: DecisionBuilder, fresh: list[int]
) -> None:
    """Replicas whose disk is missing, and that are out of the ISR, start empty on another disk."""
    for broker_id in fresh:
        for partition in state.hosted.get(broker_id, {}).values():
            is_outside = broker_id not in partition.isr
            if is_outside and state.has_lost_directory(partition, broker_id):
                leader_elections.reset_directory(state, partition, broker_id)
                decision.create_replica(partition, broker_id)
                decision.partition_changed(partition)


def mark_shutting_down(state: ControllerState, broker_id: int, broker_epoch: int) -> bool:
    """Give this broker no more leaderships. False when its broker epoch is not the current one."""
    broker = state.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        return False
    state.shutting_down.add(broker_id)
    return True


def on_controlled_shutdown(
    state: ControllerState, decision: DecisionBuilder, event: ControlledShutdown
) -> None:
    """A broker is about to stop: move its leaderships, and take it out of the other ISRs (KIP-380).

    Partitions without another live replica do not count as remaining, or the broker would never
    stop.
    """
    if not mark_shutting_down(state, event.broker_id, event.broker_epoch):
        stale = ControlledShutdownReply(error_code=ErrorCode.STALE_BROKER_EPOCH, remaining=0)
        decision.reply(Reply(event.token, stale))
        return
    leaving = event.broker_id
    remaining = 0
    for partition in list(state.hosted.get(leaving, {}).values()):
        if partition.leader == leaving:
            remaining += not _hand_over(state, decision, partition, leaving)
        elif partition.leader in state.shutting_down and leaving in partition.isr:
            continue  # the leader stops, too: this replica may lead when both are back
        elif partition.leader >= 0 and not _is_stopped(partition, leaving):
            leader_elections.leave_isr(state, decision, partition, leaving)
            decision.publish(partition)
            decision.stop_replica(partition, leaving, delete=False)
            _set_offline(partition, leaving)
    decision.publish_brokers()
    reply = ControlledShutdownReply(error_code=ErrorCode.NONE, remaining=remaining)
    decision.reply(Reply(event.token, reply, after_delivery=True))


def _is_stopped(partition: Partition, broker_id: int) -> bool:
    """Whether an earlier try has stopped this replica: a retry does not stop thousands again."""
    is_stopped = partition.replica_phases.get(broker_id) is ReplicaPhase.OFFLINE
    return is_stopped and broker_id not in partition.isr


def _hand_over(
    state: ControllerState, decision: DecisionBuilder, partition: Partition, leaving: int
) -> bool:
    """Move one leadership. True when it moved, or when no other replica is on a live broker."""
    others = (b for b in partition.replicas if b != leaving)
    if not any(b in state.brokers and b not in state.shutting_down for b in others):
        return True
    able = leader_elections.may_lead(state, partition)
    choice = leader_selectors.controlled_shutdown(partition.replicas, partition.isr, able, leaving)
    if choice.leader is None:
        return False
    leader_elections.lead(state, decision, partition, choice.leader, choice.isr)
    return True
