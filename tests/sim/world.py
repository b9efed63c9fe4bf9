"""The simulated world of one seed: brokers, clients, ZooKeeper, faults.

outcome = run(seed)          # raises nothing; outcome.violation is None if all invariants held
"""

from __future__ import annotations

import gc
import logging
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from headwater.ports.metadata_store import Node as StoreNode
from headwater.records.record import read_records
from headwater.testing.clocks import EPOCH_MS
from headwater_broker.app.wiring import BrokerServer
from headwater_broker.metadata import znodes
from headwater_broker.replica.partition import Partition
from sim.admin import Admin, unfinished
from sim.broker import Broker
from sim.classic_members import group_members
from sim.clients import Client, Consumer, Creator, IdempotentProducer, Producer
from sim.collection import collect
from sim.consumer_members import unsettled
from sim.control import ControlPlane
from sim.epoch_ledger import EpochLedger
from sim.epoch_rules import EPOCHAL
from sim.fault_injection import FaultInjector
from sim.group_ledger import GroupLedger
from sim.invariants import ALL, Invariant, Seen, ViolationError, overriding
from sim.ledger import Acked, AdminLedger, Key, Ledger
from sim.loop import ProcessLoop, Scheduler
from sim.network import Network
from sim.plan import GROUPED, Plan, make_plan
from sim.releases import Release
from sim.share_rules import NoSharedRecordIsLost, ShareCreator, left_to_share, share_members
from sim.spark_queries import spark_queries
from sim.store import Ensemble
from sim.transaction_ledger import TransactionLedger
from sim.transaction_rules import TRANSACTIONAL, unmarked
from sim.transactional import transactional_clients

START_S = 30.0
"""Limit on the time until the topics exist."""
HEAL_S = 120.0
"""Limit on the time until a healed cluster is whole."""
LOOK_EVERY = 50
"""Turns between two checks of the admin's work."""
EVENTS = ("replica", "store", "acked", "read", "read_committed", "administered", "ended")
INTERNAL_TOPICS = {"__transaction_state": 2, "__consumer_offsets": 1, "__share_group_state": 2}
"""With their partitions. Their first use creates them."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a seed."""

    seed: int
    events: int
    seconds: float
    """Virtual seconds."""
    log: list[str]
    violation: ViolationError | None = None
    acked: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Faults, by kind."""
    administered: dict[str, int] = field(default_factory=dict)
    """The admin's successful requests, by kind."""
    transactions: dict[str, int] = field(default_factory=dict)
    """Events of transactional clients, by kind."""
    groups: dict[str, int] = field(default_factory=dict)
    """Events of the members of consumer groups, by kind."""


class World:
    """A simulated cluster with its clients, on one scheduler."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.plan = plan or make_plan(self.random)
        self.topics = dict(self.plan.topics)
        """The partitions of topics that stay; their number may grow."""
        self.admin_ledger = AdminLedger()
        self.transactions = TransactionLedger()
        self.epochs = EpochLedger()
        self.groups = GroupLedger(self.plan.session_s)
        self.today = Release()
        self.scheduler = Scheduler(self.random)
        self.network = Network(self.scheduler)
        self.control = ControlPlane(self.network)
        self.ensemble = Ensemble(self.network)
        self.ensemble.tree.on_change = self._store_changed
        self.ledgers: dict[Key, Ledger] = {}
        self._passing: dict[tuple[UUID, int], Ledger] = {}
        self.rules = [rule(self) for rule in self.invariants()]
        self._by_event = {name: overriding(self.rules, name) for name in EVENTS}
        self.log: list[str] = []
        self.registered: dict[int, int] = {}
        self.wiped: set[int] = set()
        self.is_healing = False
        self.has_given_up = False
        self.is_over = False
        self.violation: ViolationError | None = None
        self._processes = 0
        self._looks = 0
        self._was_whole = False
        self._watched: dict[ProcessLoop, tuple[Broker, dict[Any, Partition]]] = {}
        self._seen: dict[Partition, Seen] = {}
        self.scheduler.after_event = self._after_event
        self.brokers = [Broker(self, number) for number in (1, 2, 3)]
        self.clients: list[Client] = []
        self.injector = FaultInjector(self)

    # -- parts

    def invariants(self) -> tuple[type[Invariant], ...]:
        """The invariants of this world."""
        transactional = TRANSACTIONAL if self.plan.transactional_producers else ()
        shared = (NoSharedRecordIsLost,) if self.plan.share_members else ()
        return (*ALL, *transactional, *(EPOCHAL if self.plan.queries else ()), *shared)

    @property
    def now_ms(self) -> int:
        """The true wall time."""
        return EPOCH_MS + int(self.scheduler.now * 1000)

    def process(self, name: str, host: str) -> ProcessLoop:
        """Create a process on a host."""
        self._processes += 1
        loop = ProcessLoop(self.scheduler, name, self._processes)
        loop.host = host
        loop.network = self.network
        loop.on_exception = self._loop_exception
        return loop

    def note(self, text: str) -> None:
        """Add a line to the log."""
        self.log.append(f"{self.scheduler.now:10.6f} {text}")

    def watch(self, broker: Broker, node: BrokerServer) -> None:
        """Check the replicas of this broker from now on."""
        assert broker.loop is not None
        self._watched[broker.loop] = (broker, node.replicas.partitions)

    def forget(self, broker: Broker) -> None:
        """Stop checking this broker: its process is gone."""
        if broker.loop is not None:
            self._watched.pop(broker.loop, None)

    def ledger(self, topic: str, index: int, topic_id: UUID | None = None) -> Ledger:
        """The ledger of a partition; of topics that are deleted and re-created, by topic id."""
        if topic_id is not None and topic not in self.topics and topic not in INTERNAL_TOPICS:
            passing = self._passing.get((topic_id, index))
            if passing is None:
                passing = self._passing[topic_id, index] = Ledger(topic, index)
            return passing
        found = self.ledgers.get((topic, index))
        if found is None:
            found = self.ledgers[topic, index] = Ledger(topic, index)
        return found

    # -- events

    def _after_event(self, loop: ProcessLoop) -> None:
        watched = self._watched.get(loop)
        if watched is None:
            return
        seen_of = self._seen
        for partition in watched[1].values():
            seen = seen_of.get(partition)
            if seen is None:
                seen = seen_of[partition] = Seen()
            if (
                partition.high_watermark != seen.high_watermark
                or partition.leader_epoch != seen.epoch
                or partition.is_leader is not seen.is_leader
            ):
                self._replica_moved(watched[0], partition, seen)

    def _replica_moved(self, broker: Broker, partition: Partition, seen: Seen) -> None:
        ledger = self.ledger(partition.topic, partition.partition, partition.topic_id)
        if partition.leader_epoch != seen.epoch or partition.is_leader is not seen.is_leader:
            log = partition.log
            self.note(
                f"{broker} {partition!r} isr {list(partition.isr)} "
                f"hw {partition.high_watermark} end {log.log_end_offset}"
            )
        try:
            for rule in self._by_event["replica"]:
                rule.replica(broker, partition, seen, ledger)
        except ViolationError as violation:
            self.broken(violation)
        seen.high_watermark = partition.high_watermark
        seen.epoch = partition.leader_epoch
        seen.is_leader = partition.is_leader

    def _store_changed(self, paths: set[str]) -> None:
        try:
            for rule in self._by_event["store"]:
                rule.store(paths)
        except ViolationError as violation:
            self.broken(violation)

    def acked(self, topic: str, index: int, acked: Acked) -> None:
        """A producer got an ack."""
        ledger = self.ledger(topic, index)
        ledger.acked.append(acked)
        self.note(f"acked {topic}-{index} at {acked.base_offset}: {acked.values[0].decode()}")
        for rule in self._by_event["acked"]:
            rule.acked(ledger, acked)

    def read(self, topic: str, index: int, offset: int, value: bytes) -> None:
        """A consumer got a record."""
        ledger = self.ledger(topic, index)
        for rule in self._by_event["read"]:
            rule.read(ledger, offset, value)

    def read_committed(self, key: Key, offset: int, value: bytes) -> None:
        """A read_committed consumer got a record."""
        for rule in self._by_event["read_committed"]:
            rule.read_committed(key, offset, value)

    def administered(self) -> None:
        """The admin got a successful reply."""
        for rule in self._by_event["administered"]:
            rule.administered()

    def broken(self, error: BaseException) -> None:
        """Record a broken invariant or an unforeseen failure."""
        if self.violation is not None:
            return
        if isinstance(error, ViolationError):
            # Without its frames, which would keep this world alive.
            self.violation = ViolationError(error.name, error.text)
        else:
            self.note("".join(traceback.format_exception(error)))
            self.violation = ViolationError("NothingUnforeseen", repr(error))
        self.note(f"BROKEN {self.violation}")

    def unforeseen(self, what: str, error: BaseException | None) -> None:
        """Record an exception that must not occur."""
        if error is not None:
            self.note("".join(traceback.format_exception(error)))
        self.broken(ViolationError("NothingUnforeseen", f"{what}: {error!r}"))

    def _loop_exception(self, context: dict[str, Any]) -> None:
        message = str(context.get("message"))
        if "was destroyed" not in message:
            self.unforeseen(message.split("\n")[0][:80], context.get("exception"))

    # -- for the invariants

    def replicas_of(self, key: Key) -> list[tuple[Broker, Partition]]:
        """The replicas of a partition on running brokers."""
        return [
            (broker, broker.node.replicas.partitions[key])
            for broker in self.brokers
            if broker.node is not None and key in broker.node.replicas.partitions
        ]

    def values_of(self, partition: Partition) -> dict[int, bytes]:
        """Offset -> value of all records in a log."""
        found: dict[int, bytes] = {}
        for segment in partition.log.segments:
            data = bytes(segment.file.data)  # type: ignore[attr-defined]
            found.update((r.offset, r.value or b"") for r in read_records(data))
        return found

    def partition_state(self, path: str) -> tuple[znodes.PartitionRecord, tuple[int, ...]] | None:
        """A partition's state and replicas in ZooKeeper."""
        node = self.ensemble.tree.find(path)
        if node is None:
            return None
        parts = path.split("/")
        assignment = self.assignment(parts[3])
        if assignment is None:
            return None
        record = znodes.PartitionRecord.decode(path, self.understood(node).data)
        return record, assignment.partitions.get(int(parts[5]), ())

    def assignment(self, topic: str) -> znodes.TopicAssignment | None:
        """A topic's assignment in ZooKeeper."""
        node = self.ensemble.tree.find(znodes.topic_path(topic))
        return None if node is None else znodes.TopicAssignment.decode(topic, node.data)

    def overrides(self, topic: str) -> dict[str, str]:
        """A topic's configs in ZooKeeper."""
        path = znodes.topic_config_path(topic)
        node = self.ensemble.tree.find(path)
        return {} if node is None else znodes.decode_overrides(path, node.data)

    def partitions(self) -> list[Key]:
        """Every partition that should exist; of topics that are created and deleted, those in
        ZooKeeper."""
        there = {t: n for t, n in INTERNAL_TOPICS.items() if self.assignment(t) is not None}
        topics = {**self.topics, **there}
        found = [(t, index) for t, count in topics.items() for index in range(count)]
        if self.plan.is_administered:
            for topic in self.ensemble.tree.children(znodes.TOPICS):
                assignment = self.assignment(topic)
                if assignment is not None:
                    found += [(topic, index) for index in assignment.partitions]
        return list(dict.fromkeys(found))

    def understood(self, node: StoreNode) -> StoreNode:
        """A node as the invariants read it."""
        return node

    def owner_of(self, path: str) -> int | None:
        """The session that owns a node; None if it does not exist."""
        node = self.ensemble.tree.find(path)
        return None if node is None else node.ephemeral_owner

    # -- the run

    def live(self) -> None:
        """Start, work under faults, heal, converge, check."""
        for broker in self.brokers:
            broker.start_later(self.random.random())
        creator = (ShareCreator if self.plan.share_members else Creator)(self, "creator")
        creator.run()
        self.until(START_S, lambda: creator.is_done)
        if not creator.is_done:
            self.broken(ViolationError("MetadataConverges", "the topic was never created"))
            return
        self._start_clients()
        self.work()
        self.is_healing = True
        self.note("healing")
        self.injector.heal()
        self.until(HEAL_S, self._is_whole)
        self.has_given_up = self.is_over = True
        if self.violation is None:
            self.judge()

    def work(self) -> None:
        """The time under faults."""
        self.injector.begin()
        self.until(self.plan.chaos_s)

    def until(self, seconds: float, done: Callable[[], bool] = lambda: False) -> None:
        """Run for at most so long, until `done` or a violation."""
        stop = lambda: self.violation is not None or done()  # noqa: E731 - one expression
        self.scheduler.run_until(self.scheduler.now + seconds, stop)

    def _start_clients(self) -> None:
        for topic, partitions in self.plan.topics.items():
            for index in range(partitions):
                self.clients += self._clients_of(topic, index)
        if self.plan.is_administered:
            self.clients.append(Admin(self))
        if self.plan.transactional_producers:
            self.clients += transactional_clients(self)
        self.clients += spark_queries(self)
        self.clients += group_members(self) + share_members(self)
        for client in self.clients:
            client.run()

    def start_clients(self, topic: str, index: int) -> None:
        """Start the clients of a new partition."""
        found = self._clients_of(topic, index)
        self.clients += found
        for client in found:
            client.run()

    def _clients_of(self, topic: str, index: int) -> list[Client]:
        if topic == GROUPED:
            return []
        where = f"{topic}.{index}"
        pause_s = self.plan.produce_pause_s
        return [
            IdempotentProducer(self, f"idempotent.{where}", topic, index, pause_s),
            Producer(self, f"plain.{where}", topic, index, pause_s * 2),
            Consumer(self, f"consumer.{where}", topic, index),
        ]

    def _is_whole(self) -> bool:
        self._looks += 1
        if not self.plan.is_administered or self._looks % LOOK_EVERY == 0:
            self._was_whole = not self._not_whole()
        return self._was_whole

    def _not_whole(self) -> str:
        """What is missing; empty if the cluster is whole and all brokers have the same metadata."""
        busy = [c.name for c in self.clients if c.is_awaited and not c.is_done]
        if busy:
            return f"{busy} wait for their replies"
        missing = unsettled(self) or left_to_share(self) or self.not_joined() or self._not_equal()
        missing = missing or unmarked(self)
        return missing or (unfinished(self) if self.plan.is_administered else "")

    def not_joined(self) -> str:
        """Why brokers are not in sync or have different metadata; load may go on meanwhile."""
        for broker in self.brokers:
            if broker.node is None or not broker.node.is_ready:
                return f"{broker} is not ready"
        for key in self.partitions():
            missing = self._not_in_sync(*key)
            if missing:
                return f"{key[0]}-{key[1]}: {missing}"
        return ""

    def _not_in_sync(self, topic: str, index: int) -> str:
        state = self.partition_state(znodes.state_path(topic, index))
        if state is None:
            return "no state in the store"
        record, replicas = state
        if set(record.isr) != set(replicas) or record.leader < 0:
            return f"ISR {record.isr} of {replicas}, leader {record.leader}"
        for broker in self.brokers:
            assert broker.node is not None
            view = broker.node.view.partition(topic, index)
            known = None if view is None else (view.leader_id, view.leader_epoch, set(view.isr))
            if known != (record.leader, record.leader_epoch, set(record.isr)):
                return f"{broker} knows {known}, the store says {record}"
            hosts = (topic, index) in broker.node.replicas.partitions
            if hosts is not (broker.id in replicas):
                return f"{broker} {'hosts it' if hosts else 'does not host it'}, of {replicas}"
        return ""

    def _not_equal(self) -> str:
        for key in self.partitions():
            marks = set()
            for _, partition in self.replicas_of(key):
                marks.add((partition.leader_epoch, partition.high_watermark))
                marks.add((partition.leader_epoch, partition.log.log_end_offset))
            if len(marks) > 1:
                return f"{key[0]}-{key[1]}: marks differ: {sorted(marks)}"
        return ""

    def judge(self) -> None:
        missing = self._not_whole()
        if missing:
            self.broken(ViolationError("MetadataConverges", f"after {HEAL_S:.0f} s: {missing}"))
            return
        try:
            for rule in self._by_event["ended"]:
                rule.ended()
        except ViolationError as violation:
            self.broken(violation)


class _Listener(logging.Handler):
    """Collects the brokers' log lines if wanted, and unforeseen errors always."""

    def __init__(self, world: World, *, tells: bool) -> None:
        super().__init__(logging.INFO if tells else logging.ERROR)
        self._world = world
        self._tells = tells

    def emit(self, record: logging.LogRecord) -> None:
        """Add a line."""
        if self._tells:
            self._world.note(f"    {record.name.rpartition('.')[2]}: {record.getMessage()}")
        if record.levelno >= logging.ERROR and record.exc_info:
            self._world.unforeseen(record.getMessage(), record.exc_info[1])


def run(
    seed: int, *, tells: bool = False, plan: Plan | None = None, kind: type[World] = World
) -> Outcome:
    """Run one seed. `tells`: the log contains the brokers' own log lines."""
    gc.disable()
    gc.freeze()  # collections pass by all that was there before: half a second each in a test run
    listener = _Listener(world := kind(seed, plan), tells=tells)
    root = logging.getLogger()
    before = root.level, root.handlers[:], sys.unraisablehook
    root.handlers[:] = [listener]
    root.setLevel(listener.level)
    try:
        world.live()
    finally:
        # Ignore what frames of killed processes print when they are collected.
        root.handlers[:] = [logging.NullHandler()]
        sys.unraisablehook = lambda _: None
        outcome = Outcome(
            seed, world.scheduler.events, world.scheduler.now, world.log, world.violation,
            sum(len(ledger.acked) for ledger in world.ledgers.values()), world.injector.counts,
            world.admin_ledger.counts, world.transactions.counts, world.groups.counts,
        )  # fmt: skip
        world.note(f"{outcome.events} events, digest {world.scheduler.digest:x}")
        del world, listener
        collect()
        gc.unfreeze()
        gc.enable()
        root.level, root.handlers[:], sys.unraisablehook = before
    return outcome
