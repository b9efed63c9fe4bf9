"""Random histories of brokers, disks, topics and controllers: no empty replica ever leads.

The model knows, per partition, the (broker, disk) pairs with every committed record. A replica
outside the ISR counts as behind at once. Unclean election is off. So each leader, and each member
of the ISR that its leader did not propose, must be such a pair. A controller that is rebuilt from
the store must have the state of the last one.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater_broker.controller.events import (
    AutoPreferredLeaderElection,
    ControlledShutdown,
    DeleteTopics,
    ElectLeaders,
    Reassign,
    Tick,
)
from headwater_broker.controller.state import Partition
from headwater_broker.controller.state_machines import PartitionPhase
from unit.controller.machine_world import World

BROKERS = (1, 2, 3, 4)
Disk = tuple[int, UUID]


class ControllerStories(RuleBasedStateMachine):
    """The events, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.holders: dict[tuple[UUID, int], frozenset[Disk]] = {}
        self.epochs: dict[tuple[UUID, int], int] = {}
        self.proposed: tuple[tuple[UUID, int], int] | None = None
        self.topics = 0

    def teardown(self) -> None:
        self.world.close()

    @initialize()
    def three_brokers(self) -> None:
        for broker_id in (1, 2, 3):
            self.world.up(broker_id)

    def _partitions(self) -> list[Partition]:
        return list(self.world.machine.state.partitions())

    @rule(data=st.data())
    def create_topic(self, data: st.DataObject) -> None:
        state = self.world.machine.state
        known = sorted({*state.brokers, *state.offline_brokers})
        replicas = data.draw(st.permutations(known))[: data.draw(st.integers(1, 3))]
        self.topics += 1
        by_hand = data.draw(st.booleans())
        make = self.world.find if by_hand else self.world.create
        make(f"t{self.topics}", tuple(replicas))

    @precondition(lambda self: self.world.machine.state.topics)
    @rule(data=st.data())
    def delete_topic(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.machine.state.topics)))
        row = ((name, UUID(int=0)),)
        self.world.ask(lambda token: DeleteTopics(token, row))

    @precondition(lambda self: self.world.registered)
    @rule(data=st.data())
    def brokers_die(self, data: st.DataObject) -> None:
        live = sorted(self.world.registered)
        victims = data.draw(st.sets(st.sampled_from(live), min_size=1))
        self.world.down(*victims)

    @rule(data=st.data(), wiped=st.booleans(), power=st.booleans())
    def broker_comes_or_bounces(self, data: st.DataObject, wiped: bool, power: bool) -> None:
        self.world.up(data.draw(st.sampled_from(BROKERS)), wiped=wiped, power_loss=power)

    @precondition(lambda self: self.world.registered)
    @rule(data=st.data())
    def broker_drains(self, data: st.DataObject) -> None:
        leaving = data.draw(st.sampled_from(sorted(self.world.registered)))
        epoch = self.world.registered[leaving].epoch
        self.world.ask(lambda token: ControlledShutdown(token, leaving, epoch))

    @precondition(lambda self: any(p.leader > 0 for p in self._partitions()))
    @rule(data=st.data())
    def leader_proposes_an_isr(self, data: st.DataObject) -> None:
        led = [p for p in self._partitions() if p.leader > 0]
        partition = data.draw(st.sampled_from(led))
        others = [b for b in partition.replicas if b != partition.leader]
        extra = data.draw(st.sets(st.sampled_from(others))) if others else set()
        isr = (partition.leader, *sorted(extra))
        state = self.world.machine.state
        disks = frozenset((b, self.world.directories[b]) for b in isr)
        before = self.holders.get(partition.key, frozenset())
        if not any(state.fault(partition, b) for b in extra):
            self.holders[partition.key] = before | disks
        self.world.alter_isr(partition, isr)

    @precondition(lambda self: self.world.machine.state.topics and self.world.registered)
    @rule(data=st.data())
    def reassign(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(self._partitions()))
        state = self.world.machine.state
        known = [b for b in BROKERS if state.was_registered(b)]
        target = data.draw(st.permutations(known))[: data.draw(st.integers(1, 3))]
        is_cancel = data.draw(st.booleans())
        rows: dict[Any, Any] = {
            (partition.topic, partition.index): None if is_cancel else tuple(target)
        }
        self.world.ask(lambda token: Reassign(token, rows))

    @rule()
    def elect_preferred(self) -> None:
        self.world.ask(lambda token: ElectLeaders(token, False, None))

    @rule()
    def time_passes(self) -> None:
        self.world.handle(Tick())
        self.world.handle(AutoPreferredLeaderElection())

    @rule()
    def controller_fails_over(self) -> None:
        before = {p.key: _essence(p) for p in self._partitions()}
        self.world.machine.state.shutting_down.clear()
        self.world.fail_over()
        after = {p.key: p for p in self._partitions()}
        assert after.keys() == before.keys()
        for key, (replicas, isr, directories, leader) in before.items():
            now = after[key]
            assert set(now.replicas) <= set(replicas)
            # The state is the same or better: a broker in shutdown may lead again.
            if leader > 0 and now.leader == leader:
                assert set(now.isr) <= set(isr)
            if now.replicas == replicas and isr and now.leader == leader:
                assert {b: now.directories.get(b) for b in isr} == {
                    b: directories.get(b) for b in isr
                }

    @invariant()
    def only_holders_lead_or_are_in_sync(self) -> None:
        seen = set()
        for partition in self._partitions():
            seen.add(partition.key)
            epoch = self.epochs.get(partition.key, 0)
            assert partition.leader_epoch >= epoch, "leader epochs never fall"
            assert partition.isr or not partition.has_state, "who held the most stays known"
            self.epochs[partition.key] = partition.leader_epoch
            if partition.phase is not PartitionPhase.ONLINE:
                assert partition.leader == -1
                continue
            assert partition.leader in partition.isr
            assert set(partition.isr) <= set(partition.replicas)
            disks = frozenset((b, self.world.directories[b]) for b in partition.isr)
            holders = self.holders.get(partition.key)
            if holders is not None:
                assert disks <= holders, (partition.name, disks, holders)
            self.holders[partition.key] = disks
        self.holders = {k: v for k, v in self.holders.items() if k in seen}

    @invariant()
    def the_store_holds_what_the_machine_knows(self) -> None:
        state = self.world.machine.state
        tree = self.world.tree
        for partition in state.partitions():
            if not partition.has_state:
                continue
            path = f"/brokers/topics/{partition.topic}/partitions/{partition.index}/state"
            node = tree.get(path)
            assert node.version == partition.version
            record = partition.record(-1)
            stored = type(record).decode(path, node.data)
            assert (stored.leader, stored.isr) == (record.leader, record.isr)
            assert stored.leader_epoch == record.leader_epoch
            assert stored.directories == record.directories
        names = set(tree.children("/brokers/topics"))
        assert names == set(state.topics)

    @invariant()
    def what_is_gone_leaves_nothing_behind_once_all_are_up(self) -> None:
        state = self.world.machine.state
        for removal in state.pending_deletions.values():
            waiting = {b for brokers in removal.waiting().values() for b in brokers}
            assert not waiting & set(state.brokers), "a running broker has confirmed"


def _essence(partition: Partition) -> tuple[Any, ...]:
    return (
        partition.replicas,
        partition.isr,
        dict(partition.directories),
        partition.leader,
    )


TestControllerStories = ControllerStories.TestCase
TestControllerStories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
