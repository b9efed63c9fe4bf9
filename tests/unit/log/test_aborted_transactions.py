"""What a read_committed consumer is told of aborted transactions, slice by slice."""

from __future__ import annotations

import random
from collections import deque

import pytest

from headwater.records.batch import iter_headers
from headwater.records.control import ControlType, parse_marker
from headwater.records.record import decode_batch
from headwater_broker.log.results import LogSlice
from headwater_broker.log.transaction_index import AbortedTransaction, TransactionIndex
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import Box
from unit.log.test_producer_rules import mark, send, send_txn

PRODUCERS = 6


class History:
    """A log with transactions that overlap, and its offsets that are committed."""

    def __init__(self, seed: int, *, segment_bytes: int = 900) -> None:
        self.box = Box()
        self.log = self.box.log(segment_bytes=str(segment_bytes), index_interval_bytes="150")
        self.committed: set[int] = set()
        self.chance = random.Random(seed)
        self._open: dict[int, list[int]] = {}
        self._sequences = dict.fromkeys(range(PRODUCERS + 1), 0)

    def play(self, steps: int) -> None:
        for _ in range(steps):
            pid = self.chance.randrange(PRODUCERS + 1)
            if pid == PRODUCERS:
                self.committed.add(send(self.log, self._next(pid), pid=pid).base_offset)
            elif pid in self._open and self.chance.random() < 0.35:
                self.end(pid, commit=self.chance.random() < 0.5)
            else:
                self._open.setdefault(pid, []).append(send_txn(self.log, pid, self._next(pid)))

    def settle(self) -> None:
        """End all transactions but the youngest."""
        for pid in list(self._open)[:-1]:
            self.end(pid, commit=self.chance.random() < 0.5)

    def end(self, pid: int, *, commit: bool) -> None:
        mark(self.log, pid, commit=commit)
        offsets = self._open.pop(pid)
        self.committed.update(offsets if commit else ())

    def take_sequence(self) -> int:
        """The next one of the producer without transactions."""
        return self._next(PRODUCERS)

    def _next(self, pid: int) -> int:
        self._sequences[pid] += 1
        return self._sequences[pid] - 1

    @property
    def stable(self) -> int:
        return self.log.last_stable_offset(self.log.log_end_offset)


def consume(log: UnifiedLog, start: int, stable: int, size: int) -> tuple[set[int], int]:
    """The offsets that a consumer sees, as Kafka's client filters them; the longest list."""
    seen: set[int] = set()
    offset, longest = start, 0
    while offset < stable:
        part = log.read(offset, size, stable)
        told = log.aborted_in_slice(offset, part, stable)
        longest = max(longest, len(told))
        assert told == sorted(told, key=lambda pair: pair[1])
        offset = _filter(part, deque(told), offset, seen)
    return seen, longest


def _filter(part: LogSlice, told: deque[tuple[int, int]], start: int, seen: set[int]) -> int:
    data = memoryview(part.file.read_at(part.position, part.size_bytes))
    aborting: set[int] = set()
    end = start
    for at, header in iter_headers(data):
        end = header.next_offset
        while told and told[0][1] <= header.last_offset:
            aborting.add(told.popleft()[0])
        if header.is_control:
            kind = parse_marker(decode_batch(data, at, header)[0]).type
            if kind is ControlType.ABORT:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            seen.add(header.base_offset)
    return end


@pytest.mark.parametrize("seed", range(12))
def test_a_consumer_sees_the_committed_records_and_no_others(seed: int) -> None:
    history = History(seed)
    history.play(120)
    history.settle()
    log, stable = history.log, history.stable
    assert len(log.segments) > 5 and stable > 20
    for start in (0, 1, *(history.chance.randrange(stable) for _ in range(8)), stable):
        for size in (1, 300, 1_000_000):
            seen, _ = consume(log, start, stable, size)
            assert seen == {o for o in history.committed if start <= o < stable}


@pytest.mark.parametrize("way", ["crash", "restart", "truncate"])
def test_the_index_is_the_same_after(way: str) -> None:
    history = History(5)
    history.play(100)
    history.settle()
    stable = history.stable
    before, _ = consume(history.log, 0, stable, 300)
    if way == "crash":
        log = history.box.crash(tear=1 << 30)
    elif way == "restart":
        log = history.box.restart()
    else:
        end = history.log.log_end_offset
        history.play(30)
        log = history.log
        log.truncate_to(end)
    assert (log.last_stable_offset(log.log_end_offset), consume(log, 0, stable, 300)[0]) == (
        stable, before
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_an_index_that_a_recovery_filled_survives_a_power_loss(seed: int) -> None:
    """Killed before its flushes, recovered, rolled, and then the power goes: the recovery point is
    above the recovered segments, so nothing would fill their indexes again."""
    history = History(seed)
    with history.box.jobs_held():
        history.play(100)
        history.settle()
    stable = history.stable
    before, _ = consume(history.log, 0, stable, 300)
    history.box.files.crash(tear=1 << 30)
    history.box.open_manager({"segment.bytes": "900"})
    log = history.box.manager.get("t", 0)
    assert log is not None
    last = log.bases[-1]
    while log.bases[-1] == last:
        send(log, history.take_sequence(), pid=PRODUCERS)
    history.box.manager.checkpoint_recovery_points()
    assert log.recovery_point > stable
    log = history.box.crash(tear=0)
    assert consume(log, 0, stable, 300)[0] == before


@pytest.mark.parametrize("seed", range(6))
def test_a_truncated_log_knows_its_open_transactions(seed: int) -> None:
    """Wherever the end is cut: what is open then, and what was ended, follows from what is left."""
    history = History(seed)
    history.play(80)
    log = history.log
    for cut in sorted(history.chance.randrange(1, log.log_end_offset) for _ in range(6))[::-1]:
        log.truncate_to(cut)
        replayed = log.snapshots.producers_at(cut, log.spans())
        fresh = {
            pid: (entry.epoch, entry.last_sequence, entry.transaction_first_offset)
            for pid, entry in replayed.entries.items()
        }
        kept = {
            pid: (entry.epoch, entry.last_sequence, entry.transaction_first_offset)
            for pid, entry in log.producers.entries.items()
        }
        assert kept == fresh
        assert log.last_stable_offset(cut) == min(
            [first for *_, first in fresh.values() if first is not None], default=cut
        )
        seen, _ = consume(log, 0, log.last_stable_offset(cut), 300)
        assert seen <= history.committed


def test_a_slice_is_told_of_its_own_transactions_only() -> None:
    log = Box().log(index_interval_bytes="200")
    for number in range(400):
        send_txn(log, 1, number)
        mark(log, 1, commit=False)
    seen, longest = consume(log, 0, 800, 1000)
    assert seen == set()
    assert longest <= 8
    assert len(log.aborted_transactions(0, 800)) == 400


def test_the_index_is_searched_not_scanned() -> None:
    """A consumer at the end must not pay for each transaction that was ever aborted."""

    class Counted(list):  # type: ignore[type-arg]
        reads = 0

        def __getitem__(self, at):  # type: ignore[no-untyped-def]
            Counted.reads += 1
            return super().__getitem__(at)

    class Index(TransactionIndex):
        rows = Counted(AbortedTransaction(1, 2 * n, 2 * n + 1, 2 * n + 2) for n in range(100_000))
        entries = rows  # type: ignore[assignment]

    index = Index(Box().files, "/x", exists=False)
    for start in (0, 77_777, 199_980):
        found: list[AbortedTransaction] = []
        Counted.reads = 0
        assert index.collect(start, start + 6, found)
        wanted = [n for n in range(start // 2, (start + 7) // 2) if 2 * n + 1 >= start]
        assert [a.first_offset // 2 for a in found] == wanted
        assert Counted.reads < 50
    assert not index.collect(200_000, 300_000, found := [])
    assert found == []
