"""Three replicas in memory under a random schedule: lost fetches, late answers, elections, crashes.

Every run is a seed. Fetches, AlterPartition and LeaderAndIsr may be late, lost or repeated; a
crash may lose the log's unsynced tail of one broker that is not in sync afterwards. What was
acknowledged must be in every later leader's log, at its offset, for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.records import batch
from headwater.testing.clocks import ManualClock
from headwater.wire.control import AlterPartitionItem, AlterPartitionResult, PartitionState
from headwater_broker.log.results import EMPTY
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.replication_config import ReplicationConfig
from headwater_broker.replica.truncation import truncation
from unit.replica.fake_log import TOPIC_ID, FakeLog, make_batch

BROKERS = (1, 2, 3)
LIMITS = ReplicationConfig(replica_lag_time_max_ms=200)


class Broker:
    """One broker's replica; it forgets everything but its log when it restarts."""

    def __init__(self, broker_id: int, world: World) -> None:
        self.id = broker_id
        self.world = world
        self.log = FakeLog()
        self.epoch = 1
        self.alive = True
        self.checkpoint = 0
        self.partition = self._open()

    def _open(self) -> Partition:
        return Partition(
            self.log,  # type: ignore[arg-type]
            self.id,
            self.world.clock,
            LIMITS,
            high_watermark=self.checkpoint,
            propose=self.world.proposed,
        )

    def crash(self) -> None:
        self.alive = False
        self.checkpoint = self.world.random.randint(0, self.partition.high_watermark)

    def restart(self) -> None:
        self.alive = True
        self.epoch += 1
        self.partition = self._open()

    def apply(self, state: PartitionState, broker_epoch: int) -> None:
        """LeaderAndIsr, fenced by the broker epoch, then as `transitions` decides it."""
        mine = self.partition
        if not self.alive or broker_epoch != self.epoch:
            return
        if state.leader_epoch > mine.leader_epoch:
            if state.leader_id == self.id:
                mine.become_leader(state, self.world.min_isr)
            else:
                mine.become_follower(state)
        elif state.leader_epoch == mine.leader_epoch and (
            state.partition_epoch > mine.partition_epoch
        ):
            mine.update_state(state)


class World:
    """The cluster: a controller whose state is one value, and everything in flight."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.min_isr = self.random.choice((1, 2))
        self.flying: list[Callable[[], None]] = []
        self.acked: dict[int, bytes] = {}
        self.waiting: list[tuple[Broker, int, int, bytes]] = []
        self.counter = 0
        self.brokers = {b: Broker(b, self) for b in BROKERS}
        self.state = PartitionState(
            topic="t", topic_id=TOPIC_ID, partition=0, leader_id=1, leader_epoch=0,
            partition_epoch=0, isr=BROKERS, replicas=BROKERS,
        )  # fmt: skip
        self.marks: dict[tuple[int, int, int], int] = {}
        for broker in self.brokers.values():
            broker.apply(self.state, 1)

    # -- the controller

    def change(self, leader: int, isr: tuple[int, ...], *, new_epoch: bool) -> None:
        old = self.state
        self.state = PartitionState(
            topic="t", topic_id=TOPIC_ID, partition=0, leader_id=leader, isr=isr,
            leader_epoch=old.leader_epoch + new_epoch, replicas=BROKERS,
            partition_epoch=old.partition_epoch + 1,
        )  # fmt: skip
        self.tell_all()

    def tell_all(self) -> None:
        state = self.state
        for broker in self.brokers.values():
            self.fly(lambda b=broker, epoch=broker.epoch: b.apply(state, epoch))  # type: ignore[misc]

    def broker_died(self, broker: Broker) -> None:
        isr = tuple(b for b in self.state.isr if b != broker.id) or self.state.isr
        leader = self.state.leader_id
        if leader == broker.id or leader == -1:
            live = [b for b in isr if self.brokers[b].alive]
            leader = self.random.choice(live) if live else -1
            self.change(leader, isr, new_epoch=True)
        elif isr != self.state.isr:
            self.change(leader, isr, new_epoch=False)

    def broker_is_back(self) -> None:
        if self.state.leader_id == -1:
            live = [b for b in self.state.isr if self.brokers[b].alive]
            if live:
                self.change(self.random.choice(live), self.state.isr, new_epoch=True)
        self.tell_all()

    def alter(self, item: AlterPartitionItem) -> AlterPartitionResult:
        """KIP-497 and KIP-903 on the controller's side."""
        state, error = self.state, ErrorCode.NONE
        if item.leader_epoch != state.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif item.partition_epoch != state.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            not self.brokers[m.broker_id].alive or m.broker_epoch != self.brokers[m.broker_id].epoch
            for m in item.new_isr
        ):
            error = ErrorCode.INELIGIBLE_REPLICA
        else:
            isr = tuple(m.broker_id for m in item.new_isr)
            self.change(state.leader_id, isr, new_epoch=False)
        now = self.state
        return AlterPartitionResult(
            topic_id=TOPIC_ID, partition=0, error_code=error, leader_id=now.leader_id,
            leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch,
            isr=now.isr if error is ErrorCode.NONE else (),
        )  # fmt: skip

    def proposed(self, partition: Partition) -> None:
        leader = next((b for b in self.brokers.values() if b.partition is partition), None)
        item = None if leader is None else partition.alter_partition_item(leader.epoch)
        if leader is None or item is None:
            return  # that process is gone, or has nothing to propose any more

        def answer(result: AlterPartitionResult) -> None:
            if leader.alive and leader.partition is partition:
                retry_at = self.clock.monotonic() + 0.05
                if partition.on_isr_result(item, result, retry_at):
                    self.proposed(partition)

        def at_controller() -> None:
            result = self.alter(item)
            self.fly_or_lose(lambda: answer(result), partition)

        self.fly(at_controller)

    def fly_or_lose(self, deliver: Callable[[], None], partition: Partition) -> None:
        if self.random.random() < 0.1:
            self.fly(lambda: self.proposed(partition))  # the answer was lost: the sender repeats
        else:
            self.fly(deliver)

    # -- the network

    def fly(self, deliver: Callable[[], None]) -> None:
        self.flying.append(deliver)

    def deliver_one(self) -> None:
        if self.flying:
            self.flying.pop(self.random.randrange(len(self.flying)))()

    # -- followers and producers

    def fetch(self, follower: Broker) -> None:
        mine = follower.partition
        leader = self.brokers.get(mine.leader_id)
        if not follower.alive or mine.is_leader or leader is None or not leader.alive:
            return
        asked = (mine.leader_epoch, mine.log.log_end_offset, mine.log.latest_epoch, follower.epoch)

        def at_leader() -> None:
            epoch, offset, last_epoch, broker_epoch = asked
            theirs = leader.partition
            if not leader.alive:
                return
            try:
                theirs.check_leader_epoch(epoch)
                parted = theirs.update_follower(
                    follower.id, broker_epoch, offset, self.clock.monotonic(),
                    last_fetched_epoch=last_epoch,
                )  # fmt: skip
                piece = EMPTY
                if parted is None:
                    piece = theirs.read(offset, self.random.choice((1, 200)), replica=follower.id)
            except KafkaError:
                return
            data = piece.file.read_at(piece.position, piece.size_bytes)
            mark, start = theirs.high_watermark, theirs.log.log_start_offset
            if self.random.random() < 0.9:
                self.fly(lambda: at_follower(parted, data, mark, start))

        def at_follower(parted, data: bytes, mark: int, start: int) -> None:  # type: ignore[no-untyped-def]
            now = (
                mine.leader_epoch,
                mine.log.log_end_offset,
                mine.log.latest_epoch,
                follower.epoch,
            )
            if now != asked or mine.is_leader or mine is not follower.partition:
                return
            if parted is None:
                mine.append_as_follower(memoryview(data), mark, start)
                return
            log = mine.log
            cut = truncation(parted, log.log_end_offset, mine.high_watermark, mine.epoch_end)
            mine.truncate_to(cut.offset)

        self.fly(at_leader)

    def produce(self) -> None:
        leaders = [b for b in self.brokers.values() if b.alive and b.partition.is_leader]
        if not leaders:
            return
        leader = self.random.choice(leaders)  # a deposed one may still believe that it leads
        self.counter += 1
        payload = str(self.counter).encode()
        try:
            result = leader.partition.append(make_batch(payload), -1, 0)
        except KafkaError:
            return
        epoch = leader.partition.leader_epoch
        self.waiting.append((leader, result.last_offset, epoch, payload))

    def settle(self) -> None:
        for row in list(self.waiting):
            leader, offset, epoch, payload = row
            outcome = leader.partition.outcome(offset, epoch) if leader.alive else 1
            if outcome is not None:
                self.waiting.remove(row)
            if outcome is ErrorCode.NONE:
                assert self.acked.setdefault(offset, payload) == payload, "one offset, two records"

    def check(self) -> None:
        """Leaders of the newest epoch hold all that was acknowledged; marks never fall."""
        for broker in self.brokers.values():
            mine = broker.partition
            if not broker.alive or not mine.is_leader:
                continue
            key = (broker.id, broker.epoch, mine.leader_epoch)
            assert mine.high_watermark >= self.marks.get(key, 0)
            self.marks[key] = mine.high_watermark
            if mine.leader_epoch == self.state.leader_epoch:
                held = {base: payload for base, _, payload in broker.log.offsets()}
                for offset, payload in self.acked.items():
                    assert held.get(offset) == payload, f"offset {offset} is lost on {broker.id}"

    def step(self) -> None:
        choice = self.random.random()
        broker = self.brokers[self.random.choice(BROKERS)]
        if choice < 0.30:
            self.fetch(broker)
        elif choice < 0.70:
            self.deliver_one()
        elif choice < 0.88:
            self.produce()
        elif choice < 0.93:
            self.clock.advance(self.random.choice((1, 20, 100)))
            if broker.alive:
                broker.partition.isr_tick(self.clock.monotonic())
        elif choice < 0.955:
            self.crash_or_restart(broker)
        elif choice < 0.97:
            self.tell_all()
        elif choice < 0.98:
            live = [b for b in self.state.isr if self.brokers[b].alive]
            if live:  # preferred leader election, reassignment: a new epoch without a crash
                self.change(self.random.choice(live), self.state.isr, new_epoch=True)
        self.settle()
        self.check()

    def crash_or_restart(self, broker: Broker) -> None:
        if broker.alive:
            broker.crash()
            self.fly(lambda: None if broker.alive else self.broker_died(broker))
        else:
            if broker.id in self.state.isr and len(self.state.isr) > 1:
                self.broker_died(broker)  # its old registration goes before the new one comes
            broker.restart()
            self.broker_is_back()

    def heal(self) -> None:
        """No more faults: everybody must end with the same log, and all in sync."""
        for broker in self.brokers.values():
            if not broker.alive:
                self.crash_or_restart(broker)
        for _ in range(3000):
            self.clock.advance(5)
            for broker in self.brokers.values():
                self.fetch(broker)
                broker.partition.isr_tick(self.clock.monotonic())
            while self.flying:
                self.deliver_one()
            if self.random.random() < 0.1:
                self.tell_all()
            self.settle()
            self.check()
            if self.is_whole():
                return
        logs = [broker.log.offsets() for broker in self.brokers.values()]
        raise AssertionError(f"did not heal: {self.state} {logs}")

    def is_whole(self) -> bool:
        logs = [b.log.offsets() for b in self.brokers.values()]
        leader = self.brokers[self.state.leader_id].partition
        return (
            set(self.state.isr) == set(BROKERS)
            and logs[0] == logs[1] == logs[2]
            and leader.high_watermark == leader.log.log_end_offset
            and all(
                b.partition.leader_epoch == self.state.leader_epoch for b in self.brokers.values()
            )
        )


@pytest.mark.parametrize("seed", range(120))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    world = World(seed)
    for _ in range(600):
        world.step()
    world.heal()


def test_the_schedules_do_acknowledge_and_do_change_leaders() -> None:
    world = World(1)
    for _ in range(2000):
        world.step()
    assert len(world.acked) > 20
    assert world.state.leader_epoch > 3


def test_the_suffix_of_a_deposed_leader_is_cut() -> None:
    world = World(0)
    first, second = world.brokers[1], world.brokers[2]
    first.partition.append(make_batch(b"committed"), 1, 0)
    for broker in (second, world.brokers[3]):
        while broker.log.log_end_offset < 1:
            world.fetch(broker)
            while world.flying:
                world.deliver_one()
    for payload in (b"lost 1", b"lost 2", b"lost 3"):
        first.partition.append(make_batch(payload), 1, 0)
    world.flying.clear()
    world.change(2, (2, 3), new_epoch=True)
    while world.flying:
        world.deliver_one()
    second.partition.append(make_batch(b"new"), 1, 0)
    world.heal()
    payloads = [payload for _, _, payload in first.log.offsets()]
    assert payloads == [b"committed", b"new"]
    assert batch.read_header(first.log.batches[1]).leader_epoch == 1
