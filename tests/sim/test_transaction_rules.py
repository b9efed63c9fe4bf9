"""Each invariant of transactions detects a bad event, and passes the good event before it."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.records.builder import BatchBuilder
from sim.invariants import Seen, ViolationError
from sim.ledger import Key
from sim.plan import COPIED, TRANSACTED, Plan, transact
from sim.transaction_ledger import Fate, Initialisation, committed_of, decided
from sim.transaction_rules import unmarked
from sim.world import World

MARKER_KEY, MARKER_VALUE = struct.Struct(">hh"), struct.Struct(">hi")
A, B = 7, 8
"""Producer ids."""
SOURCE, TARGET = (TRANSACTED, 0), (COPIED, 0)


class Log:
    """A log of batches that are built here."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.end = 0

    def write(self, value: bytes, producer_id: int = A, *, transactional: bool = True) -> Log:
        builder = BatchBuilder()
        builder.append(0, None, value)
        self.data += builder.build(
            base_offset=self.end,
            producer_id=producer_id if transactional else -1,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
        )
        self.end += 1
        return self

    def mark(self, producer_id: int = A, *, commit: bool = True) -> Log:
        builder = BatchBuilder()
        builder.append(0, MARKER_KEY.pack(0, commit), MARKER_VALUE.pack(0, 0))
        self.data += builder.build(
            base_offset=self.end,
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        self.end += 1
        return self

    def replica(self, stable: int | None = None, mark: int | None = None) -> Any:
        """The leader with this log."""
        segment = SimpleNamespace(file=SimpleNamespace(data=bytes(self.data)))
        end = self.end if mark is None else mark
        return SimpleNamespace(
            is_leader=True, high_watermark=end, log=SimpleNamespace(segments=[segment]),
            last_stable_offset=end if stable is None else stable,
        )  # fmt: skip


@pytest.fixture
def world() -> World:
    plan = Plan()
    transact(plan)
    return World(0, plan)


def hold(world: World, patch: pytest.MonkeyPatch, **logs: Log) -> None:
    """The leaders' logs at the end: of the source, and of the target of copies."""
    found = {SOURCE: logs.get("source", Log()), TARGET: logs.get("target", Log())}
    empty = Log()
    patch.setattr(
        world,
        "replicas_of",
        lambda key: [(world.brokers[0], found.get(key, empty).replica())],
    )


def rule(world: World, name: str) -> Any:
    (found,) = [r for r in world.rules if type(r).__name__ == name]
    return found


def fails(world: World, name: str, event: str = "ended", *args: Any) -> None:
    with pytest.raises(ViolationError) as broken:
        getattr(rule(world, name), event)(*args)
    assert broken.value.name == name


def began(world: World, name: str, fate: Fate, *values: bytes, key: Key = SOURCE) -> None:
    made = world.transactions.begin(name, "id", 0.0)
    made.fate = fate
    made.records += [(key, value) for value in values]


def test_markers_decide() -> None:
    log = Log().write(b"a").write(b"b", B).write(b"plain", transactional=False)
    log.mark(B, commit=False).mark(A).write(b"open", A)
    found = decided(log.replica())
    assert found == ({0: b"a", 2: b"plain"}, {1: b"b"}, {5: b"open"})
    assert decided(log.replica(mark=4)).committed == {2: b"plain"}, "one marker is not replicated"


def test_a_consumer_skips_what_the_response_lists_as_aborted() -> None:
    log = Log().write(b"a").write(b"b", B).mark(A, commit=False).write(b"c", A).mark(A).mark(B)
    assert committed_of(bytes(log.data), [(A, 0)], 0) == ([(1, b"b"), (3, b"c")], 6)
    assert committed_of(bytes(log.data), [], 3) == ([(3, b"c")], 6)


class Replica:
    """A replica whose offsets change."""

    def __init__(self) -> None:
        self.last_stable_offset = 1
        self.high_watermark = 2
        self.log = SimpleNamespace(log_end_offset=2)


def test_stable_offset_rises(world: World) -> None:
    replica = Replica()
    event = (world.brokers[0], replica, Seen(), world.ledger(*SOURCE))
    rule(world, "StableOffsetRises").replica(*event)
    replica.last_stable_offset = 0
    fails(world, "StableOffsetRises", "replica", *event)
    replica.last_stable_offset = 3
    fails(world, "StableOffsetRises", "replica", *event)


def test_stable_offset_may_fall_below_the_end_that_a_replica_was_loaded_with(world: World) -> None:
    replica = Replica()
    replica.log.log_end_offset = replica.high_watermark + 1
    event = (world.brokers[0], replica, Seen(), world.ledger(*SOURCE))
    rule(world, "StableOffsetRises").replica(*event)
    replica.last_stable_offset = 0
    rule(world, "StableOffsetRises").replica(*event)
    replica.last_stable_offset = replica.high_watermark = replica.log.log_end_offset
    rule(world, "StableOffsetRises").replica(*event)
    replica.last_stable_offset = 0
    fails(world, "StableOffsetRises", "replica", *event)


def test_readers_see_committed_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    began(world, "p.0.1", Fate.COMMITTED, b"p.0.1#0")
    began(world, "p.0.2", Fate.ABORTED, b"p.0.2#0")
    check = rule(world, "ReadersSeeCommittedOnly")
    check.read_committed(SOURCE, 0, b"p.0.1#0")
    check.read_committed(SOURCE, 0, b"p.0.1#0")
    fails(world, "ReadersSeeCommittedOnly", "read_committed", SOURCE, 2, b"p.0.2#0")
    fails(world, "ReadersSeeCommittedOnly", "read_committed", SOURCE, 0, b"another")
    hold(world, monkeypatch, source=Log().write(b"p.0.1#0").mark())
    world.transactions.passes.append((SOURCE, 2, frozenset({0})))
    check.ended()
    world.transactions.passes.append((SOURCE, 2, frozenset()))
    fails(world, "ReadersSeeCommittedOnly")
    world.transactions.passes.clear()
    hold(world, monkeypatch, source=Log().write(b"p.0.1#0").mark(commit=False))
    fails(world, "ReadersSeeCommittedOnly")


@pytest.mark.parametrize(
    ("fate", "log", "holds"),
    [
        (Fate.COMMITTED, Log().write(b"a").write(b"b").mark(), True),
        (Fate.COMMITTED, Log().write(b"a").mark(), False),
        (Fate.COMMITTED, Log().write(b"a").write(b"b").write(b"a").mark(), False),
        (Fate.COMMITTED, Log().write(b"a").write(b"b").mark(commit=False), False),
        (Fate.ABORTED, Log().write(b"a").write(b"b").mark(commit=False), True),
        (Fate.ABORTED, Log().write(b"a").mark(commit=False), True),
        (Fate.ABORTED, Log().write(b"a").write(b"b").mark(), False),
        (Fate.UNKNOWN, Log().write(b"a").write(b"b").mark(), True),
        (Fate.UNKNOWN, Log(), True),
        (Fate.UNKNOWN, Log().write(b"a").mark().write(b"b").mark(commit=False), False),
    ],
)
def test_transactions_are_whole(
    world: World, monkeypatch: pytest.MonkeyPatch, fate: Fate, log: Log, holds: bool
) -> None:
    began(world, "t", fate, b"a", b"b")
    hold(world, monkeypatch, source=log)
    if holds:
        rule(world, "TransactionsAreWhole").ended()
    else:
        fails(world, "TransactionsAreWhole")


def test_no_transaction_stays_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log().write(b"a")
    monkeypatch.setattr(
        world, "replicas_of", lambda key: [(world.brokers[0], log.replica(stable=1))]
    )
    rule(world, "NoTransactionStaysOpen").ended()
    monkeypatch.setattr(
        world, "replicas_of", lambda key: [(world.brokers[0], log.replica(stable=0))]
    )
    fails(world, "NoTransactionStaysOpen")


def test_committed_records_are_in_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    began(world, "p.0.1", Fate.COMMITTED, b"p.0.1#0")
    began(world, "p.0.2", Fate.COMMITTED, b"p.0.2#0")
    hold(world, monkeypatch, source=Log().write(b"p.0.1#0").write(b"p.0.2#0").mark())
    rule(world, "CommittedRecordsAreInOrder").ended()
    hold(world, monkeypatch, source=Log().write(b"p.0.2#0").write(b"p.0.1#0").mark())
    fails(world, "CommittedRecordsAreInOrder")


def test_copies_agree_with_offsets(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Log().write(b"a").mark().write(b"b").mark()
    for name in ("copier.0.1", "copier.0.2"):
        began(world, name, Fate.COMMITTED)
    hold(world, monkeypatch, source=source, target=Log().write(b"copier.0.1#0/a").mark())
    world.transactions.copied_to = 2
    rule(world, "CopiesAgreeWithOffsets").ended()
    world.transactions.copied_to = 4
    fails(world, "CopiesAgreeWithOffsets")
    twice = Log().write(b"copier.0.1#0/a").write(b"copier.0.2#0/a").mark()
    hold(world, monkeypatch, source=source, target=twice)
    world.transactions.copied_to = 2
    fails(world, "CopiesAgreeWithOffsets")


def test_an_instance_is_fenced_by_a_later_one_only(world: World) -> None:
    ledger, first = world.transactions, Initialisation(0, sent_s=1.0, answered_s=2.0)
    ledger.initialisations["id"] = [first]
    assert not ledger.was_fenced("id", first)
    second = Initialisation(1, sent_s=3.0)
    ledger.initialisations["id"].append(second)
    assert ledger.was_fenced("id", first), "its reply was lost: it may have been executed"
    assert not ledger.must_be_fenced("id", first, sent_s=9.0)
    second.answered_s = 4.0
    assert ledger.must_be_fenced("id", first, sent_s=5.0)
    assert not ledger.must_be_fenced("id", first, sent_s=3.5)
    assert not ledger.was_fenced("id", second)


def test_a_cluster_is_not_whole_while_a_marker_is_on_its_way() -> None:
    world: Any = SimpleNamespace(brokers=[SimpleNamespace(node=None)])
    assert unmarked(world) == ""
    pending = SimpleNamespace(
        missing={SOURCE: None}, transaction=SimpleNamespace(transactional_id="t")
    )
    markers = SimpleNamespace(pending=[pending])
    services = SimpleNamespace(transactions=SimpleNamespace(markers=markers))
    world.brokers.append(SimpleNamespace(node=SimpleNamespace(services=services)))
    assert "markers of 't'" in unmarked(world) and TRANSACTED in unmarked(world)
    pending.missing = {}
    assert unmarked(world) == ""
