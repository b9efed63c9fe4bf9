"""Decisions on what brokers report: new ISRs, directories of replicas, failed disks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headwater.errors import ErrorCode
from headwater.wire.control import (
    NOT_NUMBERED,
    AlterPartitionItem,
    AlterPartitionReply,
    AlterPartitionResult,
    AssignReplicasToDirsReply,
    AssignReplicasToDirsRequest,
    PartitionError,
)
from headwater_broker.controller.decisions import leader_elections, reassignments
from headwater_broker.controller.decisions.decision_builder import DecisionBuilder
from headwater_broker.controller.events import (
    AlterPartition,
    AssignReplicaToDir,
    LeaderAndIsrResponseReceived,
    Reply,
)
from headwater_broker.controller.state import Broker, ControllerState, Partition
from headwater_broker.controller.state_machines import ReplicaPhase
from headwater_broker.metadata.znodes import NO_DIRECTORY


def on_alter_partition(
    state: ControllerState, decision: DecisionBuilder, event: AlterPartition
) -> None:
    """AlterPartition: check each proposed ISR against its epochs (KIP-497, KIP-903)."""
    request = event.request
    broker = state.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        stale = AlterPartitionReply(error_code=ErrorCode.STALE_BROKER_EPOCH)
        decision.reply(Reply(event.token, stale))
        return
    makers = [_alter(state, decision, request.broker_id, item) for item in request.partitions]

    def make() -> AlterPartitionReply:
        rows = tuple(make_row() for make_row in makers)
        return AlterPartitionReply(error_code=ErrorCode.NONE, partitions=rows)

    # A later event of this round may change the same partition. Both changes are one write, with
    # one partition epoch, so the reply must hold the state at the end of the round.
    decision.reply_at_end(event.token, make)


def _alter(
    state: ControllerState, decision: DecisionBuilder, broker_id: int, item: AlterPartitionItem
) -> Callable[[], AlterPartitionResult]:
    """Decide now. The returned function builds the result at the end of the round."""
    topic = state.topic_by_id.get(item.topic_id)
    partition = topic.partitions.get(item.partition) if topic else None
    if partition is None:
        is_topic = topic is not None
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_topic else ErrorCode.UNKNOWN_TOPIC_ID
        return partial(
            AlterPartitionResult, topic_id=item.topic_id, partition=item.partition, error_code=code
        )
    code = _judge(state, partition, broker_id, item)
    if code is ErrorCode.NONE:
        isr = tuple(m.broker_id for m in item.new_isr)
        if isr != partition.isr:
            # The leader goes by the min.insync.replicas that it knows.
            known = state.min_insync_replicas(partition)
            partition.set_isr(isr, min(known, item.min_insync_replicas))
            partition.uncreated.difference_update(isr)  # members of the ISR have a log
            for member in set(isr) - partition.directories.keys():
                if (directory := state.sole_directory(member)) is not None:
                    partition.directories[member] = directory
            # Send LeaderAndIsr to the leader too. One with other replicas may be on its way, and
            # the partition epoch in this reply would make it count as old.
            decision.partition_changed(partition)
        if reassignments.advance(state, decision, partition) and partition.leader != broker_id:
            code = ErrorCode.NEW_LEADER_ELECTED
    return partial(_result, partition, item, code)


def _result(
    partition: Partition, item: AlterPartitionItem, code: ErrorCode
) -> AlterPartitionResult:
    return AlterPartitionResult(
        topic_id=item.topic_id,
        partition=item.partition,
        error_code=code,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=max(partition.version, 0),
        isr=partition.isr,
    )


def _judge(
    state: ControllerState, partition: Partition, broker_id: int, item: AlterPartitionItem
) -> ErrorCode:
    if item.leader_epoch > partition.leader_epoch or item.partition_epoch > partition.version:
        # The leader has state from a newer controller than this one.
        return ErrorCode.NOT_CONTROLLER
    if item.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if partition.leader != broker_id:
        return ErrorCode.INVALID_REQUEST
    if item.partition_epoch < partition.version:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [m.broker_id for m in item.new_isr]
    is_set = len(set(members)) == len(members) and set(members) <= set(partition.replicas)
    if not is_set or broker_id not in members:
        return ErrorCode.INVALID_REQUEST
    for member in item.new_isr:
        if member.broker_id == broker_id:
            continue
        if state.fault(partition, member.broker_id):
            return ErrorCode.INELIGIBLE_REPLICA
        is_same_life = member.broker_epoch in (-1, state.brokers[member.broker_id].epoch)
        if not is_same_life:
            return ErrorCode.INELIGIBLE_REPLICA
        if not _is_folder_known(state, partition, member.broker_id):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_folder_known(state: ControllerState, partition: Partition, broker_id: int) -> bool:
    """Whether the member's directory is known. Without it a lost disk would not be noticed, and the
    member could lead without its records.

    Its LeaderAndIsr reply, which names the directory, is on its way; the leader proposes again.
    """
    return broker_id in partition.directories or state.sole_directory(broker_id) is not None


def on_leader_and_isr_response(
    state: ControllerState, decision: DecisionBuilder, event: LeaderAndIsrResponseReceived
) -> None:
    """Store each replica's directory. A replica on a failed disk leaves its ISR."""
    broker = state.brokers.get(event.broker_id)
    if broker is None or broker.epoch != event.broker_epoch:
        return
    for row in event.reply.partitions:
        partition = state.hosted.get(event.broker_id, {}).get((row.topic_id, row.partition))
        if partition is None:
            continue
        if row.error_code == ErrorCode.NONE:
            partition.uncreated.discard(event.broker_id)  # written with the next change
            _learn_directory(state, decision, partition, event.broker_id, row)
        elif row.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            _storage_failed(state, decision, partition, event.broker_id)


def on_assign_replica_to_dir(
    state: ControllerState, decision: DecisionBuilder, event: AssignReplicaToDir
) -> None:
    """A broker is about to move a replica to another of its folders. The reply comes when the new
    directory is durable (KIP-858)."""
    request = event.request
    broker = state.brokers.get(request.broker_id)
    hosted = state.hosted.get(request.broker_id, {})
    partition = hosted.get((request.topic_id, request.partition))
    code = ErrorCode.NONE
    if broker is None or broker.epoch != request.broker_epoch or broker.registration is None:
        code = ErrorCode.STALE_BROKER_EPOCH
    elif not _is_latest(broker, request):
        code = ErrorCode.INVALID_UPDATE_VERSION
    elif partition is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif request.directory_id not in broker.registration.directory_ids:
        code = ErrorCode.LOG_DIR_NOT_FOUND
    elif partition.directories.get(request.broker_id) != request.directory_id:
        partition.directories[request.broker_id] = request.directory_id
        decision.partition_changed(partition)
    decision.reply(Reply(event.token, AssignReplicasToDirsReply(error_code=code)))


def _is_latest(broker: Broker, request: AssignReplicasToDirsRequest) -> bool:
    """False for a late request that the broker gave up, and that a newer one has overtaken."""
    if request.sequence == NOT_NUMBERED:
        return True
    is_latest = request.sequence >= broker.assignments
    broker.assignments = max(broker.assignments, request.sequence)
    return is_latest


def _learn_directory(
    state: ControllerState,
    decision: DecisionBuilder,
    partition: Partition,
    broker_id: int,
    row: PartitionError,
) -> None:
    if row.directory_id == NO_DIRECTORY or state.has_lost_directory(partition, broker_id):
        return
    registration = state.brokers[broker_id].registration
    if registration is None or row.directory_id not in registration.directory_ids:
        return
    if partition.directories.get(broker_id) != row.directory_id:
        partition.directories[broker_id] = row.directory_id
        decision.partition_changed(partition)


def _storage_failed(
    state: ControllerState, decision: DecisionBuilder, partition: Partition, broker_id: int
) -> None:
    if (partition.key, broker_id) in state.storage_faults:
        return
    state.storage_faults.add((partition.key, broker_id))
    partition.move_replica(broker_id, ReplicaPhase.OFFLINE)
    if partition.leader == broker_id:
        leader_elections.elect(state, decision, partition)
    else:
        leader_elections.leave_isr(state, decision, partition, broker_id)
    decision.publish(partition)
