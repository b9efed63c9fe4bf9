"""Records that survive compaction: properties over random logs, and each rule by itself."""

from __future__ import annotations

from struct import pack_into

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.records.batch import (
    AT_BATCH_LENGTH,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
)
from headwater.records.builder import seal
from headwater.records.record import encode_record
from headwater.records.varint import INT64_MAX, INT64_MIN
from headwater_broker.log.compaction_rules import Transactions
from headwater_broker.log.results import AppendOrigin
from headwater_broker.log.transaction_index import AbortedTransaction
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.compacting import (
    SETTINGS,
    Pair,
    batches,
    compact,
    compacted_log,
    end_transaction,
    fill,
    latest,
    records_batch,
    visible,
)
from unit.log.harness import Box

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
PAIRS = st.lists(st.tuples(KEYS, st.sampled_from([b"1", b"22", None])), min_size=1, max_size=4)
PLAIN = st.tuples(st.just("plain"), PAIRS, st.integers(0, 4))
IN_TRANSACTION = st.tuples(st.just("txn"), PAIRS, st.integers(1, 3))
END = st.tuples(st.sampled_from(["commit", "abort"]), st.just([]), st.integers(1, 3))
COMPACT = st.tuples(st.just("compact"), st.just([]), st.sampled_from([0, 500, 2000]))
RESTART = st.tuples(st.just("restart"), st.just([]), st.just(0))
STEPS = st.lists(st.one_of(PLAIN, PLAIN, IN_TRANSACTION, END, COMPACT, RESTART), max_size=60)


class World:
    """A compacted log under random steps, and what its readers must see."""

    def __init__(self, map_bytes_max: int) -> None:
        self.box = Box()
        self.log: UnifiedLog = compacted_log(self.box)
        self.map_bytes_max = map_bytes_max
        self.sequences: dict[int, int] = {}

    def take(self, kind: str, pairs: list[Pair], number: int) -> None:
        now_ms = self.box.clock.now_ms()
        if kind == "plain":
            self.log.append_as_leader(records_batch(pairs, now_ms, codec=number), 0, now_ms)
        elif kind == "txn":
            sequence = self.sequences.get(number, 0)
            producer = (number, 0, sequence)
            view = records_batch(pairs, now_ms, producer=producer, transactional=True)
            origin = AppendOrigin.COORDINATOR
            self.log.append_as_leader(view, 0, now_ms, origin=origin)
            self.sequences[number] = sequence + len(pairs)
        elif kind in ("commit", "abort"):
            end_transaction(self.log, number, 0, commit=kind == "commit")
        elif kind == "compact":
            self.box.clock.advance(number)
            self.compact()
        else:
            self.box.manager.close()
            self.box.open_manager(SETTINGS)
            found = self.box.manager.get("t", 0)
            assert found is not None and not found.recovered
            self.log = found

    def compact(self) -> None:
        before, state = visible(self.log), self.producers()
        ends = (self.log.log_end_offset, self.log.bases[-1])
        compact(self.box, map_bytes_max=self.map_bytes_max)
        after = visible(self.log)
        left = {record.offset: record for record in after}
        assert all(left.get(record.offset, record) == record for record in before)
        assert [r.offset for r in after] == sorted(left)
        assert left.keys() <= {record.offset for record in before}
        was, now = latest(before), latest(after)
        for key, (offset, value) in was.items():
            if value is not None:
                assert now[key] == (offset, value)
            else:
                assert key not in now or now[key] == (offset, None)
        assert now.keys() <= was.keys()
        assert (self.log.log_end_offset, self.log.bases[-1]) == ends
        assert self.producers() == state

    def producers(self) -> list[tuple[int | None, ...]]:
        entries = self.log.producers.entries
        return [
            (pid, e.epoch, e.last_sequence, e.last_offset, e.transaction_first_offset)
            for pid, e in sorted(entries.items())
        ]


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from([2_000, 1 << 20]))
def test_the_last_value_of_each_key_order_and_offsets_survive(
    steps: list[tuple[str, list[Pair], int]], map_bytes_max: int
) -> None:
    world = World(map_bytes_max)
    for kind, pairs, number in steps:
        world.take(kind, pairs, number)
    world.compact()
    assert not world.log.uncleanable_reason
    # What is left also gives the same producers when no snapshot is there to help.
    state = world.producers()
    world.box.manager.close()
    for name in world.box.files.names("/d/t-0"):
        if name.endswith((".snapshot", "index")):
            world.box.files.remove(f"/d/t-0/{name}")
    seen = visible(world.log)
    world.box.open_manager(SETTINGS)
    found = world.box.manager.get("t", 0)
    assert found is not None
    world.log = found
    assert world.producers() == state
    assert visible(found) == seen


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(PAIRS, st.integers(0, 4)), max_size=40))
def test_a_second_pass_changes_no_record(steps: list[tuple[list[Pair], int]]) -> None:
    box = Box()
    log = compacted_log(box)
    for pairs, codec in steps:
        log.append_as_leader(records_batch(pairs, codec=codec), 0, 2000)
    compact(box)
    once, size = visible(log), log.size_bytes
    log.first_dirty_offset = 0
    compact(box)  # may still put what became small into one segment
    assert visible(log) == once
    assert log.size_bytes <= size


def test_only_the_last_of_each_key_stays_at_its_offset() -> None:
    box = Box()
    log = compacted_log(box)
    fill(log, 40, 3)
    size = log.size_bytes
    compact(box)
    log.first_dirty_offset = 0
    cleaner = compact(box)  # the first pass left segments so small that they fit into one now
    kept = [r for r in visible(log) if r.offset < log.bases[-1]]
    assert len(kept) <= 3 + 1
    assert log.size_bytes < size / 2
    assert len(log.segments) == 2  # what is left of the closed ones is one segment now
    assert log.first_dirty_offset == log.bases[-1]
    assert (cleaner.meter.runs, cleaner.meter.failures) == (1, 0)
    assert cleaner.meter.bytes_written < cleaner.meter.bytes_read
    assert box.files.read("/d/cleaner-offset-checkpoint").endswith(b"t 0 %d\n" % log.bases[-1])
    assert box.restart().first_dirty_offset == log.bases[-1]


def test_a_tombstone_goes_after_its_horizon_and_keeps_its_timestamp_till_then() -> None:
    box = Box()
    log = compacted_log(box)
    log.append_as_leader(records_batch([(b"a", b"1"), (b"gone", b"x")], 1000), 0, 2000)
    log.append_as_leader(records_batch([(b"gone", None), (b"b", b"2")], 1500), 0, 2000)
    log.roll(2000)
    compact(box)
    kept = visible(log)
    assert [(r.offset, r.key, r.value, r.timestamp) for r in kept] == [
        (0, b"a", b"1", 1000),
        (2, b"gone", None, 1500),
        (3, b"b", b"2", 1501),
    ]
    horizons = [header.delete_horizon_ms for header, _ in batches(log)]
    assert horizons == [None, box.clock.now_ms() + 1000]
    found = log.offset_for_timestamp(1200, 100)
    assert found is not None and (found.offset, found.timestamp) == (2, 1500)
    for advance, left in ((999, 3), (1, 2)):
        box.clock.advance(advance)
        log.first_dirty_offset = 0
        compact(box)
        assert len(visible(log)) == left


def test_a_time_beyond_64_bits_stops_no_compaction() -> None:
    """A client may write it, and wraps it as it reads."""
    box = Box()
    log = compacted_log(box)
    far = bytearray(records_batch([(b"a", b"1"), (b"far", None)], 1000)[:HEADER_BYTES])
    far += encode_record(0, 0, b"a", b"1") + encode_record(1, INT64_MAX - 999, b"far", None)
    pack_into(">i", far, AT_BATCH_LENGTH, len(far) - LOG_OVERHEAD_BYTES)
    seal(far)
    log.append_as_leader(memoryview(far), 0, 2000)
    log.append_as_leader(records_batch([(b"b", b"3")], 3000), 0, 4000)
    log.roll(4000)
    compact(box)
    kept = [(r.offset, r.key, r.timestamp) for r in visible(log)]
    assert kept == [(0, b"a", 1000), (1, b"far", INT64_MIN), (2, b"b", 3000)]
    assert batches(log)[0][0].delete_horizon_ms is not None


def test_a_marker_outlives_its_aborted_records_by_one_horizon() -> None:
    box = Box()
    log = compacted_log(box)
    view = records_batch([(b"a", b"1")], producer=(7, 0, 0), transactional=True)
    log.append_as_leader(view, 0, 2000, origin=AppendOrigin.COORDINATOR)
    end_transaction(log, 7, 0, commit=False)
    log.append_as_leader(records_batch([(b"b", b"1")], producer=(7, 0, 1)), 0, 2000)
    log.roll(2000)

    def shown() -> list[tuple[int, int, int | None]]:
        log.first_dirty_offset = 0
        compact(box)
        return [(h.base_offset, h.record_count, h.delete_horizon_ms) for h, _ in batches(log)]

    assert log.aborted_transactions(0, 10) == [(7, 0)]
    assert shown() == [(1, 1, None), (2, 1, None)]  # a reader under way may still need the marker
    assert log.aborted_transactions(0, 10) == [(7, 0)]
    horizon = box.clock.now_ms() + 1000
    assert shown() == [(1, 1, horizon), (2, 1, None)]
    assert log.aborted_transactions(0, 10) == []
    box.clock.advance(1000)
    assert shown() == [(2, 1, None)]


def test_the_last_batch_of_a_live_producer_stays_as_a_header() -> None:
    box = Box()
    log = compacted_log(box)
    for sequence in range(2):
        view = records_batch([(b"a", b"%d" % sequence)], producer=(7, 3, sequence))
        log.append_as_leader(view, 0, 2000)
    fill(log, 5, 1)
    log.append_as_leader(records_batch([(b"a", b"9")]), 0, 2000)
    log.roll(2000)
    compact(box)

    def emptied() -> list[tuple[int, int]]:
        return [(h.producer_id, h.base_sequence) for h, records in batches(log) if not records]

    assert (7, 1) in emptied()
    assert (7, 0) not in emptied()
    view = records_batch([(b"a", b"1")], producer=(7, 3, 1))
    assert box.restart().append_as_leader(view, 0, 2000).duplicate
    for entry in box.manager.logs["t", 0].producers.entries.values():
        entry.last_timestamp = 0
    log = box.manager.logs["t", 0]
    for _ in range(2):  # one that was just loaded may have written a moment ago
        box.manager.expire_producers()
    log.first_dirty_offset = 0
    log.update_config(compacted_log(box).config)
    compact(box)
    assert (7, 1) not in emptied()


def header(offset: int, producer_id: int, *, control: bool = False) -> BatchHeader:
    attributes = 0x30 if control else 0x10
    return BatchHeader(offset, 50, 0, 2, 0, attributes, 0, 0, 0, producer_id, 0, 0, 1)


def test_transactions_are_told_apart_by_producer_and_offset() -> None:
    seen = Transactions([AbortedTransaction(1, 10, 20, 20), AbortedTransaction(1, 30, 40, 40)])
    assert not seen.is_aborted(header(5, 1))
    assert seen.end(header(6, 1, control=True), True) == (False, None)
    assert seen.is_aborted(header(11, 1))
    assert not seen.is_aborted(header(12, 2))
    ended = seen.end(header(20, 1, control=True), False)
    assert ended == (False, AbortedTransaction(1, 10, 20, 20))
    assert seen.end(header(40, 1, control=True), False) == (True, None)
    assert seen.end(header(41, 2, control=True), True) == (False, None)
    assert seen.end(header(42, 2, control=True), True) == (True, None)


def test_a_transaction_that_was_aborted_before_the_dirty_part_ended_there() -> None:
    """Else what its producer commits later hides nothing: a deleted key came back when its
    tombstone went."""
    box = Box()
    log = compacted_log(box)
    now_ms = box.clock.now_ms()

    def in_transaction(pairs: list[Pair], sequence: int, *, commit: bool) -> None:
        view = records_batch(pairs, now_ms, producer=(1, 0, sequence), transactional=True)
        log.append_as_leader(view, 0, now_ms, origin=AppendOrigin.COORDINATOR)
        end_transaction(log, 1, 0, commit=commit)

    log.append_as_leader(records_batch([(b"a", b"old")], now_ms), 0, now_ms)
    in_transaction([(b"b", b"never")], 0, commit=False)
    log.roll(now_ms)
    compact(box)
    assert log.first_dirty_offset == 3
    in_transaction([(b"a", None)], 1, commit=True)
    log.roll(now_ms)
    compact(box)
    assert [(r.offset, r.key, r.value) for r in visible(log)] == [(3, b"a", None)]
    for _ in range(2):
        box.clock.advance(2000)
        fill(log, 3, 2)
        log.roll(now_ms)
        compact(box)
    assert b"a" not in latest(visible(log))
