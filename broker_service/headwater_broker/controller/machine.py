"""The controller's decisions as a pure state machine: events in, one Ready per round out.

    machine = ControllerMachine(...)        # from a snapshot of the store
    while True:
        ready = machine.take_ready()        # write it, send it to the brokers, answer requests
        machine.handle(event)               # any number of events per round

The table `_HANDLERS` names the function for each event. No I/O, no clock, no logging here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from headwater.entropy import Entropy
from headwater.errors import ErrorCode
from headwater.ports.metadata_store import Create, Set
from headwater.wire.control import AllocateProducerIdsReply
from headwater_broker.controller.decisions import (
    broker_changes,
    config_changes,
    credential_changes,
    group_config_changes,
    isr_changes,
    leader_balance,
    leader_elections,
    quota_changes,
    reassignments,
    token_changes,
    topic_changes,
    topic_deletion,
)
from headwater_broker.controller.decisions.decision_builder import DecisionBuilder
from headwater_broker.controller.events import (
    AllocateProducerIds,
    AlterClientQuotas,
    AlterConfigs,
    AlterPartition,
    AlterUserCredentials,
    AssignReplicaToDir,
    AutoPreferredLeaderElection,
    BrokerChange,
    BrokerConfigChange,
    ClientQuotaChange,
    ControlledShutdown,
    CreatePartitions,
    CreateToken,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    Event,
    ExpireToken,
    ExpireTokens,
    GroupConfigChange,
    LeaderAndIsrResponseReceived,
    LogDirFailure,
    Ready,
    Reassign,
    RegisteredBroker,
    RenewToken,
    Reply,
    StopReplicaResponseReceived,
    Tick,
    TopicChange,
    TopicConfigChange,
    TopicConfigRejected,
)
from headwater_broker.controller.state import ControllerConfig, ControllerState, Partition
from headwater_broker.controller.state_machines import PartitionPhase
from headwater_broker.controller.zk.state_loader import Snapshot, build_state
from headwater_broker.metadata import znodes

PRODUCER_ID_BLOCK = 1000
"""Ids per block, as in Kafka."""
PARTITIONS_PER_TICK = 500
"""Bounds a tick's work to a millisecond or two."""


class ControllerMachine:
    """Owns the controller's state for one controller epoch."""

    def __init__(
        self,
        controller_id: int,
        controller_epoch: int,
        cluster_id: str,
        config: ControllerConfig,
        snapshot: Snapshot,
        entropy: Entropy,
    ) -> None:
        self._entropy = entropy
        self.state, unwritten, unfinished = build_state(
            controller_id, controller_epoch, cluster_id, config, snapshot, entropy
        )
        self._decision = DecisionBuilder(self.state)
        for topic in unwritten:
            self._decision.write_assignment(topic)
        for topic in unfinished:
            topic_deletion.delete_topic(self.state, self._decision, topic)
        topic_deletion.drop_assigned(self.state, self._decision)
        self._scan = iter(list(self.state.partitions()))
        self._start(snapshot.registered)

    def _start(self, registered: Mapping[int, RegisteredBroker]) -> None:
        """Handle what happened since the last controller, then send the full state to all."""
        # The last controller may have died between storing a new min.insync.replicas and acting on
        # it; or a broker's file was edited.
        leader_elections.recheck_elr(self.state, self._decision, self.state.partitions())
        self.handle(BrokerChange(registered))
        reconcile(self.state, self._decision, self.state.partitions())
        topic_deletion.resume(self.state, self._decision)
        for broker_id in self.state.brokers:  # the last controller's list is lost
            leader_balance.watch_catching_up(self.state, broker_id)
        for broker_id in self.state.brokers:
            self._decision.publish_brokers(full=broker_id)

    def handle(self, event: Event) -> None:
        """Decide on one event. A bad request gets an error reply; an exception is a bug."""
        _HANDLERS[type(event)](self, event)

    def mark_shutting_down(self, broker_id: int, broker_epoch: int) -> None:
        """A broker is about to send ControlledShutdown: give it no more leaderships.

        Known before the first request is decided on, so that of brokers that stop together none
        gets the leaderships of another: thousands would move twice.
        """
        broker_changes.mark_shutting_down(self.state, broker_id, broker_epoch)

    def take_ready(self) -> Ready:
        """The decisions on the events since the last call."""
        ready = self._decision.build()
        self._decision = DecisionBuilder(self.state)
        return ready

    def _on_tick(self, _event: Tick) -> None:
        """Check the next slice of the partitions. A few ticks cover all of them."""
        part = list(islice(self._scan, PARTITIONS_PER_TICK))
        if len(part) < PARTITIONS_PER_TICK:
            self._scan = iter(list(self.state.partitions()))
        known = [p for p in part if p.topic_id in self.state.topic_by_id]
        reconcile(self.state, self._decision, known)
        leader_balance.balance_caught_up(self.state, self._decision)
        topic_deletion.retry_failed(self.state, self._decision)

    def _on_auto_preferred_leader_election(self, _event: AutoPreferredLeaderElection) -> None:
        if self.state.config.auto_leader_rebalance_enable:
            leader_balance.balance(self.state, self._decision)

    def _on_log_dir_failure(self, event: LogDirFailure) -> None:
        """Send the broker its full state: its answer names the replicas on the failed disk."""
        if event.broker_id in self.state.brokers:
            self._decision.publish_brokers(full=event.broker_id)

    def _on_allocate(self, event: AllocateProducerIds) -> None:
        """Allocate the next block. It is durable before the reply, so no block is given twice."""
        state = self.state
        broker = state.brokers.get(event.broker_id)
        if broker is None or broker.epoch != event.broker_epoch:
            stale = AllocateProducerIdsReply(error_code=ErrorCode.STALE_BROKER_EPOCH)
            self._decision.reply(Reply(event.token, stale))
            return
        start = state.next_producer_id
        state.next_producer_id += PRODUCER_ID_BLOCK
        block = znodes.ProducerIdBlock(event.broker_id, start, state.next_producer_id - 1)
        path, data = znodes.PRODUCER_IDS, block.encode()
        self._decision.write(Set(path, data) if state.has_producer_ids else Create(path, data))
        state.has_producer_ids = True
        reply = AllocateProducerIdsReply(
            error_code=ErrorCode.NONE, start=start, length=PRODUCER_ID_BLOCK
        )
        self._decision.reply(Reply(event.token, reply))


def reconcile(
    state: ControllerState, decision: DecisionBuilder, partitions: Iterable[Partition]
) -> None:
    """Compare desired with actual state: replace leaders that may not lead, shrink ISRs, elect
    where a leader is missing, go on with reassignments."""
    for partition in partitions:
        if partition.phase is not PartitionPhase.ONLINE:
            continue
        if _is_unable(state, partition, partition.leader):
            leader_elections.elect(state, decision, partition)
            continue
        for broker_id in partition.isr:
            if _is_unable(state, partition, broker_id):
                leader_elections.leave_isr(state, decision, partition, broker_id)
    for partition in list(state.leaderless.values()):
        leader_elections.elect(state, decision, partition)
    for partition in list(state.reassigning.values()):
        reassignments.advance(state, decision, partition)


def _is_unable(state: ControllerState, partition: Partition, broker_id: int) -> bool:
    """Whether a replica has a fault. A controlled shutdown is none: it moves leaders by itself."""
    if broker_id in state.shutting_down:
        return False
    return bool(state.fault(partition, broker_id))


def _without_entropy(
    decide: Callable[[ControllerState, DecisionBuilder, Any], None],
) -> Callable[..., None]:
    def run(machine: ControllerMachine, event: Any) -> None:
        decide(machine.state, machine._decision, event)

    return run


def _with_entropy(
    decide: Callable[[ControllerState, DecisionBuilder, Any, Entropy], None],
) -> Callable[..., None]:
    def run(machine: ControllerMachine, event: Any) -> None:
        decide(machine.state, machine._decision, event, machine._entropy)

    return run


_HANDLERS: dict[type, Callable[..., None]] = {
    BrokerChange: _without_entropy(broker_changes.on_broker_change),
    ControlledShutdown: _without_entropy(broker_changes.on_controlled_shutdown),
    TopicChange: _with_entropy(topic_changes.on_topic_change),
    TopicConfigChange: _without_entropy(config_changes.on_topic_config_change),
    TopicConfigRejected: _without_entropy(config_changes.on_topic_config_rejected),
    BrokerConfigChange: _without_entropy(config_changes.on_broker_config_change),
    ClientQuotaChange: _without_entropy(quota_changes.on_client_quota_change),
    GroupConfigChange: _without_entropy(group_config_changes.on_group_config_change),
    CreateTopics: _with_entropy(topic_changes.on_create_topics),
    CreatePartitions: _without_entropy(topic_changes.on_create_partitions),
    AlterConfigs: _without_entropy(config_changes.on_alter_configs),
    AlterClientQuotas: _without_entropy(quota_changes.on_alter_client_quotas),
    AlterUserCredentials: _without_entropy(credential_changes.on_alter_user_credentials),
    CreateToken: _with_entropy(token_changes.on_create_token),
    RenewToken: _without_entropy(token_changes.on_renew_token),
    ExpireToken: _without_entropy(token_changes.on_expire_token),
    ExpireTokens: _without_entropy(token_changes.on_expire_tokens),
    DeleteTopics: _without_entropy(topic_deletion.on_delete_topics),
    AlterPartition: _without_entropy(isr_changes.on_alter_partition),
    AssignReplicaToDir: _without_entropy(isr_changes.on_assign_replica_to_dir),
    LeaderAndIsrResponseReceived: _without_entropy(isr_changes.on_leader_and_isr_response),
    StopReplicaResponseReceived: _without_entropy(topic_deletion.on_stop_replica_response),
    ElectLeaders: _without_entropy(leader_balance.on_elect_leaders),
    Reassign: _without_entropy(reassignments.on_reassign),
    AllocateProducerIds: ControllerMachine._on_allocate,
    LogDirFailure: ControllerMachine._on_log_dir_failure,
    Tick: ControllerMachine._on_tick,
    AutoPreferredLeaderElection: ControllerMachine._on_auto_preferred_leader_election,
}
