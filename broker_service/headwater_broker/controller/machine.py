"""The controller as a pure machine: events in, one Ready out per round.

    machine = ControllerMachine(...)        # from a snapshot of the store
    machine.start(registered)
    while True:
        ready = machine.take_ready()              # write it, then tell brokers and answer
        machine.handle(event)               # any number of events per round

Which function decides on which event is the table `_HANDLERS`. No I/O, no clock, no logging here.
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
    elect_leaders,
    elections,
    isr_changes,
    quota_changes,
    reassignments,
    topic_changes,
    topic_deletion,
)
from headwater_broker.controller.decisions.decision_builder import DecisionBuilder
from headwater_broker.controller.events import (
    AllocateProducerIds,
    AlterClientQuotas,
    AlterConfigs,
    AlterPartition,
    AssignReplicaToDir,
    AutoPreferredLeaderElection,
    BrokerChange,
    BrokerConfigChange,
    ClientQuotaChange,
    ControlledShutdown,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    Event,
    LeaderAndIsrResponseReceived,
    LogDirFailure,
    Ready,
    Reassign,
    RegisteredBroker,
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
"""Ids per block, as Kafka's."""
PARTITIONS_PER_TICK = 500
"""A tick may not hold the loop for longer than a millisecond or two."""


class ControllerMachine:
    """Owns the state of one term of office."""

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
        """Catch up with what happened since the last controller, then tell everybody all."""
        # A new minimum may be stored without what follows from it, or be that of an edited file.
        elections.recheck_elr(self.state, self._decision, self.state.partitions())
        self.handle(BrokerChange(registered))
        reconcile(self.state, self._decision, self.state.partitions())
        topic_deletion.adopt(self.state, self._decision)
        for broker_id in self.state.brokers:  # the last controller may have waited for some
            elect_leaders.watch_catching_up(self.state, broker_id)
        for broker_id in self.state.brokers:
            self._decision.publish_brokers(full=broker_id)

    def handle(self, event: Event) -> None:
        """Decide. Errors of a request are its reply; an exception is a defect."""
        _HANDLERS[type(event)](self, event)

    def mark_shutting_down(self, broker_id: int, broker_epoch: int) -> None:
        """This broker is about to ask for its shutdown. Of brokers that stop at the same time none
        hands over to another: thousands of leaderships would move twice, and then in vain."""
        broker_changes.mark_shutting_down(self.state, broker_id, broker_epoch)

    def take_ready(self) -> Ready:
        """What the events since the last call decided."""
        ready = self._decision.build()
        self._decision = DecisionBuilder(self.state)
        return ready

    def _on_tick(self, _event: Tick) -> None:
        """Look at a slice of the partitions, at all of them in the course of some ticks."""
        part = list(islice(self._scan, PARTITIONS_PER_TICK))
        if len(part) < PARTITIONS_PER_TICK:
            self._scan = iter(list(self.state.partitions()))
        known = [p for p in part if p.topic_id in self.state.topic_by_id]
        reconcile(self.state, self._decision, known)
        elect_leaders.balance_caught_up(self.state, self._decision)
        topic_deletion.retry(self.state, self._decision)

    def _on_auto_preferred_leader_election(self, _event: AutoPreferredLeaderElection) -> None:
        if self.state.config.auto_leader_rebalance_enable:
            elect_leaders.balance(self.state, self._decision)

    def _on_log_dir_failure(self, event: LogDirFailure) -> None:
        """Told everything anew, the broker refuses what is on the failed disk."""
        if event.broker_id in self.state.brokers:
            self._decision.publish_brokers(full=event.broker_id)

    def _on_allocate(self, event: AllocateProducerIds) -> None:
        """A block that was never given out: durable before it is answered."""
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
    """Desired against actual: whoever leads must be able to; whoever can't must not be in sync."""
    for partition in partitions:
        if partition.phase is not PartitionPhase.ONLINE:
            continue
        if _is_unable(state, partition, partition.leader):
            elections.elect(state, decision, partition)
            continue
        for broker_id in partition.isr:
            if _is_unable(state, partition, broker_id):
                elections.leave_isr(state, decision, partition, broker_id)
    for partition in list(state.leaderless.values()):
        elections.elect(state, decision, partition)
    for partition in list(state.reassigning.values()):
        reassignments.advance(state, decision, partition)


def _is_unable(state: ControllerState, partition: Partition, broker_id: int) -> bool:
    """A fault other than leaving in order, which moves leaders by itself."""
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
    CreateTopics: _with_entropy(topic_changes.on_create_topics),
    CreatePartitions: _without_entropy(topic_changes.on_create_partitions),
    AlterConfigs: _without_entropy(config_changes.on_alter_configs),
    AlterClientQuotas: _without_entropy(quota_changes.on_alter_client_quotas),
    DeleteTopics: _without_entropy(topic_deletion.on_delete_topics),
    AlterPartition: _without_entropy(isr_changes.on_alter_partition),
    AssignReplicaToDir: _without_entropy(isr_changes.on_assign_replica_to_dir),
    LeaderAndIsrResponseReceived: _without_entropy(isr_changes.on_leader_and_isr_response),
    StopReplicaResponseReceived: _without_entropy(topic_deletion.on_stop_replica_response),
    ElectLeaders: _without_entropy(elect_leaders.on_elect_leaders),
    Reassign: _without_entropy(reassignments.on_reassign),
    AllocateProducerIds: ControllerMachine._on_allocate,
    LogDirFailure: ControllerMachine._on_log_dir_failure,
    Tick: ControllerMachine._on_tick,
    AutoPreferredLeaderElection: ControllerMachine._on_auto_preferred_leader_election,
}
