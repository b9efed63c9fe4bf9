"""Each invariant detects a bad event, and passes the good event before it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headwater.ports.metadata_store import Create, Delete, Operation, Set
from headwater_broker.metadata import znodes
from sim import invariants
from sim.invariants import ALL, Invariant, Seen, ViolationError
from sim.ledger import Acked, Batch, Ledger
from sim.plan import CONFIG, MOVED, Plan
from sim.world import World

T = "log"
TOPIC_ID = UUID(int=7)


def batch(base: int, last: int, epoch: int = 0, crc: int = 1) -> Batch:
    return Batch(base, last, epoch, crc, -1, -1)


def replica(
    epoch: int = 0, mark: int = 0, *, leads: bool = True, held: tuple[Batch, ...] = ()
) -> Any:
    """A replica as the invariants see it; `held`: the batches of its log."""
    end = held[-1].last_offset + 1 if held else 0
    log = SimpleNamespace(log_end_offset=end, held=held)
    return SimpleNamespace(
        topic=T, partition=0, topic_id=TOPIC_ID, leader_epoch=epoch, is_leader=leads,
        high_watermark=mark, isr=(1,), log=log,
    )  # fmt: skip


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world that does not run: tests call the invariants. Logs are lists of batches."""

    def read(self: Any, log: Any, upper: int) -> list[Batch]:
        found = [b for b in log.held if self.offset <= b.base_offset and b.last_offset < upper]
        self.offset = found[-1].last_offset + 1 if found else self.offset
        return found

    monkeypatch.setattr(invariants.Cursor, "read", read)
    monkeypatch.setattr(
        invariants, "batches", lambda log, upper: [b for b in log.held if b.last_offset < upper]
    )
    made = World(0, Plan())
    for path in znodes.PERSISTENT_PATHS:
        made.ensemble.tree.ensure_path(path, 0)
    return made


def rule(world: World, name: str) -> Any:
    (found,) = [r for r in world.rules if type(r).__name__ == name]
    return found


def sees(world: World, name: str, kind: str, *event: Any) -> None:
    with pytest.raises(ViolationError) as broken:
        getattr(rule(world, name), kind)(*event)
    assert broken.value.name == name


def moved(world: World, partition: Any, broker: int, seen: Seen | None = None) -> Any:
    """The event of a replica whose state changed."""
    return (world.brokers[broker - 1], partition, seen or Seen(), world.ledger(T, 0))


def passes(world: World, name: str, partition: Any, broker: int = 1) -> None:
    rule(world, name).replica(*moved(world, partition, broker))


def fails(
    world: World, name: str, partition: Any, broker: int = 1, seen: Seen | None = None
) -> None:
    sees(world, name, "replica", *moved(world, partition, broker, seen))


def test_one_leader_per_epoch(world: World) -> None:
    passes(world, "OneLeaderPerEpoch", replica(3))
    passes(world, "OneLeaderPerEpoch", replica(3, leads=False), broker=2)
    fails(world, "OneLeaderPerEpoch", replica(3), broker=2)


def before(epoch: int = -1, mark: int = -1) -> Seen:
    seen = Seen()
    seen.epoch, seen.high_watermark = epoch, mark
    return seen


def test_leader_epoch_rises(world: World) -> None:
    passes(world, "LeaderEpochRises", replica(3))
    fails(world, "LeaderEpochRises", replica(3), seen=before(epoch=4))


def test_high_watermark_rises(world: World) -> None:
    passes(world, "HighWatermarkRises", replica(mark=3))
    fails(world, "HighWatermarkRises", replica(mark=3), seen=before(mark=4))


def test_empty_disk_never_leads(world: World) -> None:
    world.ledger(T, 0).commit(batch(0, 0), 0)
    passes(world, "EmptyDiskNeverLeads", replica(1))
    world.wiped.add(1)
    fails(world, "EmptyDiskNeverLeads", replica(1))


def test_committed_prefix_agrees(world: World) -> None:
    passes(world, "CommittedPrefixAgrees", replica(mark=2, held=(batch(0, 1),)))
    passes(world, "CommittedPrefixAgrees", replica(mark=2, held=(batch(0, 1),)), broker=2)
    other = replica(mark=2, held=(batch(0, 1, crc=2),))
    fails(world, "CommittedPrefixAgrees", other, broker=3)


def test_leader_has_all_committed(world: World) -> None:
    world.ledger(T, 0).commit(batch(0, 1), 0)
    passes(world, "LeaderHasAllCommitted", replica(1, held=(batch(0, 1),)))
    fails(world, "LeaderHasAllCommitted", replica(1), broker=2)


def test_acked_is_committed(world: World) -> None:
    ledger = world.ledger(T, 0)
    ledger.commit(batch(0, 1), 0)
    rule(world, "AckedIsCommitted").acked(ledger, Acked(0, (b"a", b"b"), "p"))
    sees(world, "AckedIsCommitted", "acked", ledger, Acked(1, (b"b", b"c"), "p"))


def holding(
    world: World, monkeypatch: pytest.MonkeyPatch, *logs: tuple[Any, dict[int, bytes]]
) -> Ledger:
    """Replicas with their records at the end."""
    rows = [(world.brokers[n], partition) for n, (partition, _) in enumerate(logs)]
    values = {id(partition): records for partition, records in logs}
    monkeypatch.setattr(world, "replicas_of", lambda key: rows)
    monkeypatch.setattr(world, "values_of", lambda partition: values[id(partition)])
    return world.ledger(T, 0)


def test_no_acked_record_is_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    records = {0: b"a"}
    ledger = holding(world, monkeypatch, (replica(), records), (replica(leads=False), {}))
    ledger.acked.append(Acked(0, (b"a",), "p"))
    rule(world, "NoAckedRecordIsLost").ended()
    records[0] = b"b"
    sees(world, "NoAckedRecordIsLost", "ended")


@pytest.mark.parametrize("again", [b"idempotent.x:1", b"idempotent.x:0"])
def test_idempotent_records_come_once_and_in_order(
    world: World, monkeypatch: pytest.MonkeyPatch, again: bytes
) -> None:
    records = {0: b"idempotent.x:0", 1: b"idempotent.x:1", 2: b"plain.x:0", 3: b"plain.x:0"}
    holding(world, monkeypatch, (replica(), records))
    rule(world, "IdempotentRecordsComeOnce").ended()
    records[4] = again
    sees(world, "IdempotentRecordsComeOnce", "ended")


def test_readers_agree(world: World) -> None:
    ledger = world.ledger(T, 0)
    for offset, value in ((0, b"a"), (1, b"b"), (0, b"a")):
        rule(world, "ReadersAgree").read(ledger, offset, value)
    sees(world, "ReadersAgree", "read", ledger, 1, b"c")


def test_replicas_end_equal(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = replica(held=(batch(0, 1),)), replica(held=(batch(0, 1),), leads=False)
    holding(world, monkeypatch, (one, {}), (other, {}))
    rule(world, "ReplicasEndEqual").ended()
    other.log.held = (batch(0, 1, epoch=1),)
    sees(world, "ReplicasEndEqual", "ended")
    other.log.held = ()
    sees(world, "ReplicasEndEqual", "ended")


def write(world: World, *operations: Operation) -> str:
    """The invariant that a write to ZooKeeper breaks; empty if none."""
    world.violation = None
    world.ensemble.tree.apply(operations, 0)
    return "" if world.violation is None else world.violation.name


def assignment(*replicas: int, topic_id: UUID = TOPIC_ID) -> bytes:
    rows = {0: replicas} if replicas else {}
    return znodes.TopicAssignment(topic_id=topic_id, partitions=rows).encode()


def state(leader: int, *isr: int) -> bytes:
    return znodes.PartitionRecord(
        leader=leader, leader_epoch=0, isr=isr, controller_epoch=1
    ).encode()


@pytest.fixture
def placed(world: World) -> World:
    """A world whose topic has one partition on brokers 1 and 2."""
    assert write(world, Create(znodes.topic_path(T), assignment(1, 2))) == ""
    world.ensemble.tree.ensure_path(znodes.partition_path(T, 0), 0)
    assert write(world, Create(znodes.state_path(T, 0), state(1, 1, 2))) == ""
    return world


@pytest.mark.parametrize("bad", [state(1), state(1, 1, 3), state(1, 1, 1), state(2, 1)])
def test_isr_within_replicas(placed: World, bad: bytes) -> None:
    path = znodes.state_path(T, 0)
    assert write(placed, Set(path, state(-1, 2))) == ""
    assert write(placed, Set(path, bad)) == "IsrWithinReplicas"


def test_isr_within_replicas_when_the_assignment_changes(placed: World) -> None:
    """The state node of the partition stays the same."""
    assert write(placed, Set(znodes.topic_path(T), assignment(2, 1, 3))) == ""
    assert write(placed, Set(znodes.topic_path(T), assignment(2, 3))) == "IsrWithinReplicas"


def test_registration_lives_with_its_session(world: World) -> None:
    broker, path = world.brokers[0], znodes.broker_path(1)
    loop = world.process("b1.1", broker.host)
    broker.store = world.ensemble.connect(loop, 3.0, world.today)
    broker.node = cast(Any, SimpleNamespace(registration=SimpleNamespace(broker_epoch=5)))
    tree, session = world.ensemble.tree, broker.store.session_id
    for ends in (True, False):
        tree.apply([Create(path, b"{}", ephemeral=True)], session)
        assert world.violation is None
        if ends:
            world.ensemble.end_session(session)
            broker.store.session_id = session = tree.join(broker.store)
        else:
            tree.apply([Delete(path)], 0)
    assert world.violation is not None
    assert world.violation.name == "RegistrationLivesWithItsSession"


def administered(world: World) -> World:
    world.plan.is_administered = True
    return world


def test_admin_is_told_the_truth_of_a_deletion(placed: World) -> None:
    world = administered(placed)
    rule(world, "AdminIsToldTheTruth").administered()
    world.admin_ledger.gone.add(UUID(int=8))
    path = znodes.topic_path("made")
    assert write(world, Create(path, assignment(topic_id=UUID(int=9)))) == ""
    again = Set(path, assignment(topic_id=UUID(int=8)))
    assert write(world, again) == "AdminIsToldTheTruth"


def test_admin_is_told_the_truth_of_a_growth(world: World) -> None:
    administered(world).admin_ledger.partitions = 1
    path = znodes.topic_path(MOVED)
    assert write(world, Create(path, assignment(1, 2))) == ""
    assert write(world, Set(path, assignment())) == "AdminIsToldTheTruth"


def test_admin_is_told_the_truth_of_a_config(world: World) -> None:
    ledger = administered(world).admin_ledger
    ledger.is_configured, ledger.configs = True, {"5", "6"}
    path = znodes.topic_config_path(MOVED)
    assert write(world, Create(path, znodes.encode_overrides({CONFIG: "6"}))) == ""
    assert write(world, Set(path, znodes.encode_overrides({}))) == "AdminIsToldTheTruth"


def test_metadata_converges(world: World) -> None:
    """No broker runs, so the cluster is not whole."""
    world.judge()
    assert world.violation is not None
    assert world.violation.name == "MetadataConverges"
    assert "broker 1 is not ready" in world.violation.text


def test_nothing_unforeseen(world: World) -> None:
    loop = world.process("b1.1", "b1")
    loop.call_exception_handler({"message": "what a task let out", "exception": KeyError("x")})
    assert world.violation is not None
    assert world.violation.name == "NothingUnforeseen"
    assert "KeyError" in "\n".join(world.log)


def test_every_rule_has_its_test() -> None:
    tests = {name.replace("_", "") for name in globals() if name.startswith("test_")}
    for kind in ALL:
        name = f"test{kind.__name__.lower()}"
        assert any(test.startswith(name) for test in tests), kind
    assert issubclass(ALL[0], Invariant)
