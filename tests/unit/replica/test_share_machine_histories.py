"""Share partitions under any interleaving: deliveries, answers, expiry, failed writes, crashes.

The log has record batches of three offsets, of which some hold no record any more. A write to the
persister may be made or not, and its answer may be lost either way.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headwater_broker.replica.share.ports import StateBatch
from headwater_broker.replica.share.runs import Change, RecordState
from headwater_broker.replica.share.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    Limits,
    SharePartition,
    Wanted,
)

MEMBERS = ("a", "b", "c")
BATCH = 3
ANSWERS = st.sampled_from([AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT])


class Histories(RuleBasedStateMachine):
    """The machine, the persister's states by offset, and what members were told."""

    @initialize(
        deliveries=st.integers(2, 5),
        locks=st.integers(3, 12),
        absent=st.sets(st.integers(0, 40), max_size=6),
    )
    def begin(self, deliveries: int, locks: int, absent: set[int]) -> None:
        self.limits = Limits(locks, deliveries)
        self.absent = absent
        self.machine = SharePartition(0)
        self.now = 0.0
        self.log_end = 0
        self.start = 0
        self.durable: dict[int, tuple[int, int]] = {}
        self.durable_start = 0
        self.open: list[tuple[Change, str | None, list[tuple[int, int]]]] = []
        self.accepted: set[int] = set()
        self.finished: set[int] = set()
        """Rejected, at the limit, or in an acknowledgement whose answer was lost."""
        self.delivered: Counter[int] = Counter()
        self.crashed = False
        self.held: dict[int, str] = {}

    def batches(self, first: int) -> list[tuple[int, int]]:
        rows = []
        for base in range(0, self.log_end, BATCH):
            if base // BATCH not in self.absent and base + BATCH > first:
                rows.append((base, base + BATCH - 1))
        return rows

    @rule(count=st.integers(1, 4))
    def produce(self, count: int) -> None:
        self.log_end += BATCH * count

    @rule(
        member=st.sampled_from(MEMBERS),
        wanted=st.integers(1, 9),
        is_exact=st.booleans(),
        batch_size=st.integers(1, 6),
    )
    def fetch(self, member: str, wanted: int, is_exact: bool, batch_size: int) -> None:
        machine = self.machine
        if not machine.can_acquire(self.limits):
            return
        offset = machine.next_fetch_offset()
        room = max(self.limits.record_locks - machine.in_flight, 0)
        old_end = machine.end_offset
        rows = machine.acquire(
            member, offset, self.batches(offset), Wanted(wanted, batch_size, is_exact),
            self.limits, self.now + 10,
        )  # fmt: skip
        total = sum(last - first + 1 for first, last, _ in rows)
        new = sum(last - max(first, old_end) + 1 for first, last, _ in rows if last >= old_end)
        slack = 0 if is_exact else BATCH - 1
        assert total <= wanted + slack
        assert new <= max(room + slack, 0)
        for first, last, count in rows:
            for at in range(first, last + 1):
                assert at not in self.accepted, f"{at} was accepted, and is delivered again"
                assert at not in self.held, f"{at} is held by {self.held[at]}"
                assert at // BATCH not in self.absent and at < self.log_end
                self.delivered[at] += 1
                assert count <= self.delivered[at]
                assert self.crashed or count == self.delivered[at]
                self.held[at] = member

    @rule(data=st.data(), kind=ANSWERS)
    def acknowledge(self, data: st.DataObject, kind: AcknowledgeType) -> None:
        free = self._free()
        if not free:
            return
        first = data.draw(st.sampled_from(sorted(free)))
        member = self.held[first]
        last = first
        while self.held.get(last + 1) == member and last + 1 in free and data.draw(st.booleans()):
            last += 1
        rows = [Acknowledgement(first, last, (kind,))]
        change = self.machine.acknowledge(member, rows, self.limits, renewed=None)
        assert change is not None
        self.open.append((change, kind.name, [(first, last)]))

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        free = self._free()
        if free:
            at = data.draw(st.sampled_from(sorted(free)))
            rows = [Acknowledgement(at, at, (AcknowledgeType.RENEW,))]
            assert not self.machine.acknowledge(
                self.held[at], rows, self.limits, renewed=self.now + 10
            )

    @rule(is_made=st.booleans(), is_told=st.booleans())
    def write(self, is_made: bool, is_told: bool) -> None:
        """The oldest open change reaches the persister, or not; its answer comes, or not."""
        if not self.open:
            return
        change, kind, ranges = self.open.pop(0)
        if is_made:
            self._apply(change)
        if kind is None:
            return
        offsets = {at for first, last in ranges for at in range(first, last + 1)}
        offsets = {at for at in offsets if at >= self.machine.start_offset}
        if is_made and is_told:
            self.machine.commit(change)
            for at in offsets:
                self.held.pop(at, None)
            if kind == "ACCEPT":
                assert not offsets & self.accepted, "accepted twice"
                self.accepted |= offsets
            elif kind == "REJECT":
                self.finished |= offsets
        else:
            self.machine.roll_back(change)
            if is_made and kind != "RELEASE":
                self.finished |= offsets

    @rule(by=st.integers(1, 8))
    def time_passes(self, by: int) -> None:
        self.now += by
        change = self.machine.expire(self.now, self.limits)
        self._given_back(change)
        deadline = self.machine.next_deadline()
        assert deadline is None or deadline > self.now

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        self._given_back(self.machine.release(member, self.limits))

    @rule(by=st.integers(1, 9))
    def delete_records(self, by: int) -> None:
        to = min(self.machine.start_offset + by, self.log_end)
        self.machine.log_start_moved(to)
        self.finished |= set(range(to))
        self.held = {at: member for at, member in self.held.items() if at >= to}

    @rule()
    def crash(self) -> None:
        """Another leader reads the durable states; open writes are fenced."""
        self.open.clear()
        self.held.clear()
        self.crashed = True
        states = [StateBatch(at, at, *row) for at, row in sorted(self.durable.items())]
        self.machine = SharePartition(self.durable_start, states)
        assert self.machine.start_offset >= self.durable_start
        self.start = self.machine.start_offset

    @invariant()
    def offsets_are_covered(self) -> None:
        machine = self.machine
        assert machine.start_offset >= self.start, "the start offset went back"
        self.start = machine.start_offset
        at = machine.start_offset
        for run in machine.runs():
            assert run.first == at and run.last >= run.first
            at = run.last + 1
        assert at == machine.end_offset
        head = machine.runs()[0] if machine.runs() else None
        assert head is None or not head.is_done

    @invariant()
    def nothing_is_lost(self) -> None:
        """What the start offset has passed was answered for, or is not in the log."""
        for at in range(self.start):
            assert (
                at in self.accepted
                or at in self.finished
                or at // BATCH in self.absent
                or self.delivered[at] >= self.limits.deliveries
            ), f"{at} is lost"

    @invariant()
    def locks_are_where_members_think(self) -> None:
        locked = {
            at
            for run in self.machine.runs()
            if run.delivery.state is RecordState.ACQUIRED or run.change is not None
            for at in range(run.first, run.last + 1)
        }
        assert locked == set(self.held)

    def _free(self) -> set[int]:
        """Offsets that a member holds and has not answered for."""
        return {
            at
            for run in self.machine.runs()
            if run.delivery.state is RecordState.ACQUIRED and run.change is None
            for at in range(run.first, run.last + 1)
        }

    def _given_back(self, change: Change | None) -> None:
        if change is None:
            return
        self.open.append((change, None, []))
        for batch in change.batches:
            for at in range(batch.first_offset, batch.last_offset + 1):
                self.held.pop(at, None)

    def _apply(self, change: Change) -> None:
        self.durable_start = self.machine.start_offset
        for batch in change.batches:
            for at in range(batch.first_offset, batch.last_offset + 1):
                self.durable[at] = (batch.delivery_state, batch.delivery_count)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
