"""The invariants, one class each, checked after every event that could break them.

`replica` is called when the leader epoch, role or high watermark of a replica changed, `store` when
a ZooKeeper node changed, `acked` and `read` when a client got a reply, `ended` when the cluster is
healed and idle. A broken invariant raises `ViolationError` with its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater_broker.metadata import znodes
from headwater_broker.replica.partition import Partition
from sim.ledger import Acked, Batch, Cursor, Key, Ledger, batches
from sim.plan import CONFIG, MOVED

if TYPE_CHECKING:
    from sim.broker import Broker
    from sim.world import World


class ViolationError(AssertionError):
    """A broken invariant."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text

    def __reduce__(self) -> tuple[type[ViolationError], tuple[str, str]]:
        return type(self), (self.name, self.text)


class Seen:
    """The state of a replica after the last event."""

    __slots__ = ("cursor", "epoch", "high_watermark", "is_leader")

    def __init__(self) -> None:
        self.high_watermark = -1
        self.epoch = -1
        self.is_leader = False
        self.cursor = Cursor()


class Invariant:
    """One invariant. By default it checks nothing."""

    def __init__(self, world: World) -> None:
        self.world = world

    def fail(self, text: str) -> None:
        """Raise ViolationError."""
        raise ViolationError(type(self).__name__, text)

    def replica(self, broker: Broker, partition: Partition, before: Seen, ledger: Ledger) -> None:
        """The leader epoch, role or high watermark of a replica changed."""

    def store(self, paths: set[str]) -> None:
        """ZooKeeper nodes changed."""

    def acked(self, ledger: Ledger, acked: Acked) -> None:
        """A producer got an ack."""

    def read(self, ledger: Ledger, offset: int, value: bytes) -> None:
        """A consumer got a record."""

    def read_committed(self, key: Key, offset: int, value: bytes) -> None:
        """A read_committed consumer got a record."""

    def administered(self) -> None:
        """The admin got a successful reply."""

    def ended(self) -> None:
        """The cluster is healed and idle."""


class OneLeaderPerEpoch(Invariant):
    """A leader epoch has one leader."""

    def replica(self, broker: Broker, partition: Partition, before: Seen, ledger: Ledger) -> None:
        if not partition.is_leader:
            return
        owner = ledger.leaders.setdefault(partition.leader_epoch, broker.id)
        if owner != broker.id:
            self.fail(f"{partition!r}: broker {owner} led this epoch, now {broker} does")


class LeaderEpochRises(Invariant):
    """The leader epoch of a replica never goes back."""

    def replica(self, broker: Broker, partition: Partition, before: Seen, ledger: Ledger) -> None:
        if partition.leader_epoch < before.epoch:
            self.fail(f"{broker} {partition!r}: it was at leader epoch {before.epoch} already")


class HighWatermarkRises(Invariant):
    """The high watermark of a replica never goes back."""

    def replica(self, broker: Broker, partition: Partition, before: Seen, ledger: Ledger) -> None:
        if partition.high_watermark < before.high_watermark:
            self.fail(
                f"{broker} {partition!r}: high watermark {before.high_watermark} -> "
                f"{partition.high_watermark}"
            )


class CommittedPrefixAgrees(Invariant):
    """Replicas have the same batches below their high watermarks."""

    def replica(self, broker: Broker, partition: Partition, before: Seen, ledger: Ledger) -> None:
        mark = partition.high_watermark
        if mark <= before.cursor.offset:
            return
        for batch in before.cursor.read(partition.log, mark):
            known = ledger.at(batch.base_offset)
            if known is None and batch.base_offset == ledger.end:
                ledger.commit(batch, partition.leader_epoch)
            elif known != batch and self.counts(partition, batch):
                self.fail(f"{broker} {partition!r}: has {batch} where {known} was committed")

    def counts(self, partition: Partition, batch: Batch) -> bool:
        """Whether this batch belongs to the partition's log."""
        return True


class LeaderHasAllCommitted(Invariant):
    """A new leader has every record that was committed before its epoch."""

    def replica(self, broker: Broker, partition: Partition, before: Seen, ledger: Ledger) -> None:
        began = partition.is_leader and partition.leader_epoch != before.epoch
        if began:
            missing = first_missing(partition, ledger)
            if missing is not None:
                self.fail(
                    f"{broker} {partition!r}: leads without {missing}; its log ends at "
                    f"{partition.log.log_end_offset}"
                )


class EmptyDiskNeverLeads(Invariant):
    """A replica on a wiped or replaced disk does not lead before it has all committed records."""

    def replica(self, broker: Broker, partition: Partition, before: Seen, ledger: Ledger) -> None:
        if not partition.is_leader or partition.leader_epoch == before.epoch:
            return
        is_empty = partition.log.log_end_offset == 0
        needed = ledger.before(partition.leader_epoch)
        if is_empty and needed and broker.id in self.world.wiped:
            self.fail(
                f"{broker} {partition!r}: its disk was wiped, it is empty, and {len(needed)} "
                "batches are committed"
            )


class AckedIsCommitted(Invariant):
    """Acked records are committed."""

    def acked(self, ledger: Ledger, acked: Acked) -> None:
        last = acked.base_offset + len(acked.values) - 1
        if last >= ledger.end:
            self.fail(f"{ledger.key}: acked offset {last}, but committed is up to {ledger.end}")


class NoAckedRecordIsLost(Invariant):
    """With min.insync.replicas=2, acked records are in the leader's log at their offset."""

    def ended(self) -> None:
        for ledger in self.world.ledgers.values():
            for replica, partition in self.world.replicas_of(ledger.key):
                if partition.is_leader:
                    self._check(replica, partition, ledger)

    def _check(self, broker: Broker, partition: Partition, ledger: Ledger) -> None:
        found = self.world.values_of(partition)
        for acked in ledger.acked:
            for offset, value in enumerate(acked.values, acked.base_offset):
                if found.get(offset) != value:
                    self.fail(
                        f"{broker} {partition!r}: {value!r} was acked at {offset}, where now is "
                        f"{found.get(offset)!r}"
                    )


class IdempotentRecordsComeOnce(Invariant):
    """Records of an idempotent producer occur once at most, in order."""

    def ended(self) -> None:
        for ledger in self.world.ledgers.values():
            for broker, partition in self.world.replicas_of(ledger.key):
                last: dict[bytes, int] = {}
                for offset, value in sorted(self.world.values_of(partition).items()):
                    name, _, number = value.partition(b":")
                    if not name.startswith(b"idempotent"):
                        continue
                    if int(number) <= last.get(name, -1):
                        self.fail(f"{broker} {partition!r}: {value!r} again at {offset}")
                    last[name] = int(number)


class ReadersAgree(Invariant):
    """All consumers get the same record at an offset."""

    def read(self, ledger: Ledger, offset: int, value: bytes) -> None:
        known = ledger.read.setdefault(offset, value)
        if known != value:
            self.fail(f"{ledger.key} offset {offset}: was {known!r}, now {value!r}")


class IsrWithinReplicas(Invariant):
    """In ZooKeeper the ISR is not empty and within the replicas, and the leader is in the ISR."""

    def store(self, paths: set[str]) -> None:
        for path in sorted(paths):
            if path.endswith("/state"):
                self._check(path)
            elif path.startswith(f"{znodes.TOPICS}/") and _is_of_a_topic(path):
                topic = path.rpartition("/")[2]
                assignment = self.world.assignment(topic)
                for index in assignment.partitions if assignment is not None else ():
                    self._check(znodes.state_path(topic, index))

    def _check(self, path: str) -> None:
        state = self.world.partition_state(path)
        if state is None:
            return
        record, replicas = state
        is_set = len(set(record.isr)) == len(record.isr)
        if not record.isr or not is_set or not set(record.isr) <= set(replicas):
            self.fail(f"{path}: ISR {record.isr} of replicas {replicas}")
        if record.leader != -1 and record.leader not in record.isr:
            self.fail(f"{path}: leader {record.leader} is not in the ISR {record.isr}")


class RegistrationLivesWithItsSession(Invariant):
    """A registration is deleted with its session, and only then."""

    def store(self, paths: set[str]) -> None:
        for broker in self.world.brokers:
            path = znodes.broker_path(broker.id)
            if path not in paths or broker.node is None or broker.store is None:
                continue
            owner = self.world.owner_of(path)
            is_registered = broker.node.registration.broker_epoch >= 0
            session = broker.store.session_id
            is_own = is_registered and self.world.registered.get(broker.id) == session
            if owner is not None:
                self.world.registered[broker.id] = owner
            elif is_own and self.world.ensemble.is_alive(session):
                self.fail(f"{path} was deleted, and session {session} lives")


class ReplicasEndEqual(Invariant):
    """After healing all replicas have the same batches."""

    def ended(self) -> None:
        for ledger in self.world.ledgers.values():
            logs: dict[int, list[Batch]] = {
                broker.id: batches(partition.log, partition.log.log_end_offset)
                for broker, partition in self.world.replicas_of(ledger.key)
            }
            first = next(iter(logs.values()))
            for broker_id, found in logs.items():
                if found != first:
                    self.fail(f"{ledger.key}: broker {broker_id} differs: {differ(first, found)}")


class AdminIsToldTheTruth(Invariant):
    """A deleted topic never comes back, a topic that grew keeps its partitions, and a config has a
    value that was requested."""

    def administered(self) -> None:
        world, ledger = self.world, self.world.admin_ledger
        for topic in world.ensemble.tree.children(znodes.TOPICS) if ledger.gone else ():
            assignment = world.assignment(topic)
            if assignment is not None and assignment.topic_id in ledger.gone:
                self.fail(f"{topic} ({assignment.topic_id}) was deleted, and is in the store")
        assignment = world.assignment(MOVED)
        found = 0 if assignment is None else len(assignment.partitions)
        if found < ledger.partitions:
            self.fail(f"{MOVED} has {found} partitions, and had {ledger.partitions}")
        value = world.overrides(MOVED).get(CONFIG)
        if ledger.is_configured and value not in ledger.configs:
            self.fail(f"{MOVED}: {CONFIG} is {value}, asked for was {sorted(ledger.configs)}")

    def store(self, paths: set[str]) -> None:
        if self.world.plan.is_administered and any(map(_is_of_a_topic, paths)):
            self.administered()


def _is_of_a_topic(path: str) -> bool:
    """Whether the path is that of a topic's assignment or configs."""
    return path.rpartition("/")[0] in (znodes.TOPICS, znodes.TOPIC_CONFIGS)


ALL: tuple[type[Invariant], ...] = (
    OneLeaderPerEpoch,
    LeaderEpochRises,
    HighWatermarkRises,
    EmptyDiskNeverLeads,
    CommittedPrefixAgrees,
    LeaderHasAllCommitted,
    AckedIsCommitted,
    NoAckedRecordIsLost,
    IdempotentRecordsComeOnce,
    ReadersAgree,
    IsrWithinReplicas,
    RegistrationLivesWithItsSession,
    ReplicasEndEqual,
    AdminIsToldTheTruth,
)
"""Two more are the world's own: `MetadataConverges` and `NothingUnforeseen`."""


def overriding(rules: Iterable[Invariant], name: str) -> list[Invariant]:
    """The invariants that check this kind of event."""
    return [r for r in rules if getattr(type(r), name) is not getattr(Invariant, name)]


def first_missing(partition: Partition, ledger: Ledger) -> Batch | None:
    """The first batch committed before the leader's epoch that its log does not have."""
    held = iter(batches(partition.log, ledger.end))
    for wanted in ledger.before(partition.leader_epoch):
        if next(held, None) != wanted:
            return wanted
    return None


def differ(left: list[Batch], right: list[Batch]) -> str:
    """The first difference of two logs."""
    for a, b in zip(left, right, strict=False):
        if a != b:
            return f"{a} against {b}"
    return f"{len(left)} batches against {len(right)}"
