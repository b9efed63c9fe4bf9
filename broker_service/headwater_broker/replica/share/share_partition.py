"""A share partition: what a share group has in flight of one partition (Kafka's SharePartition).

Pure: it knows neither log nor persister nor clock. Offsets below `start_offset` (Kafka's SPSO) are
done with, those from `end_offset` on were never delivered; each offset between them is in one
`Run`. A caller that changes states gets a `Change`, makes it durable, and then calls `commit` or
`roll_back`. Until then nobody acquires these records, and the start offset does not pass them.

Acquisition is not durable: after a crash the records are AVAILABLE again, and a delivery that
nobody answered is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.replica.share.acquired_rows import Acquired, AcquiredRows
from headwater_broker.replica.share.holds import Holds
from headwater_broker.replica.share.ports import StateBatch
from headwater_broker.replica.share.runs import NEW, Change, Delivery, RecordState, Run, Runs, Step


class AcknowledgeType(IntEnum):
    """A member's acknowledgement of a record, with Kafka's numbers."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


THROTTLED_DELIVERIES_MIN = 2
"""Records are delivered freely at least this often."""
_ARCHIVED = RecordState.ARCHIVED
_AVAILABLE = RecordState.AVAILABLE
_ACQUIRED = RecordState.ACQUIRED


class Acknowledgement(NamedTuple):
    """Offsets `first` to `last`, both inclusive: one type for all, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class Limits(NamedTuple):
    """The settings of a share group that bound what is in flight."""

    record_locks: int = 2_000
    """How many records may lie between start and end offset."""
    deliveries: int = 5
    """A record is archived when so many deliveries did not end in an acknowledgement."""


class Wanted(NamedTuple):
    """How much a fetch asks for."""

    records: int
    batch_size: int = 2**31 - 1
    """Rows of the answer are cut at the ends of record batches, at about so many records."""
    is_exact: bool = False
    """`records` is not exceeded (KIP-1206, record-limit); else record batches stay whole."""


class SharePartition:
    """The deliveries of one share group in one partition, while this broker leads it."""

    __slots__ = (
        "_log_start",
        "_runs",
        "acquired",
        "archived",
        "end_offset",
        "holds",
        "redelivered",
        "start_offset",
    )

    def __init__(
        self, start_offset: int, batches: Iterable[StateBatch] = (), holds: bytes = b""
    ) -> None:
        """`batches`: the durable states from `start_offset` on; offsets that they leave out were
        acquired by members that the last leader knew, and are AVAILABLE. `holds`: see `Holds`."""
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._log_start = 0
        self._runs = Runs()
        self.acquired = 0
        """Records acquired, the redelivered included."""
        self.redelivered = 0
        """Records acquired that had been delivered before."""
        self.archived = 0
        """Records archived: rejected, or delivered as often as the limit says."""
        for batch in batches:
            self._load(batch)
        self.holds = Holds(self._runs, holds)
        self._advance()

    def _load(self, batch: StateBatch) -> None:
        first, last = max(batch.first_offset, self.start_offset), batch.last_offset
        if last < first:
            return
        state = RecordState(batch.delivery_state)
        if state is RecordState.ARCHIVING:
            state = _ARCHIVED
        elif state is _ACQUIRED:
            state = _AVAILABLE
        self._reach(last + 1)
        for run in self._runs.within(first, last):
            run.delivery = Delivery(state, batch.delivery_count)
        self._runs.join()

    # -- what a fetch asks

    @property
    def in_flight(self) -> int:
        """How many records lie between start and end offset."""
        return self.end_offset - self.start_offset

    @property
    def locks(self) -> int:
        """How many records members hold now."""
        return sum(r.last - r.first + 1 for r in self._runs if r.delivery.state is _ACQUIRED)

    @property
    def complete(self) -> int:
        """How many records between start and end offset are done with."""
        return sum(r.last - r.first + 1 for r in self._runs if r.is_done)

    def next_fetch_offset(self) -> int:
        """The first offset that a member may acquire; the end offset if all others are taken."""
        for run in self._runs:
            if run.is_acquirable:
                return run.first
        return self.end_offset

    def can_acquire(self, limits: Limits) -> bool:
        """False while every record is taken and no more may be in flight."""
        return self.in_flight < limits.record_locks or self.next_fetch_offset() < self.end_offset

    # -- acquire

    def acquire(
        self,
        member: str,
        fetch_offset: int,
        batches: Sequence[tuple[int, int]],
        wanted: Wanted,
        limits: Limits,
        deadline: float,
    ) -> list[Acquired]:
        """Lock records for `member` until `deadline`.

        `batches`: first and last offset of each record batch that was read from `fetch_offset` on.
        Offsets between them, and before the first one, hold no record to deliver (`skip_absent`).
        """
        rows = AcquiredRows(wanted.batch_size, is_exact=wanted.is_exact)
        left = wanted.records
        at = max(fetch_offset, self.start_offset)
        for first, last in batches:
            if left <= 0:
                break
            if first > at:
                self._archive_absent(at, first - 1)
                self._advance()  # a wide gap takes no room from what comes behind it
            first, at = max(first, self.start_offset), last + 1
            if last < first:
                continue
            room = limits.record_locks - self.in_flight
            if last >= self.end_offset and (room <= 0 or wanted.is_exact):
                last = min(last, self.end_offset - 1 + max(min(room, left), 0))
            if last < first:
                break
            self._reach(last + 1)
            taken, is_throttled = self._acquire_batch(
                member, first, last, left if wanted.is_exact else None, limits, deadline, rows
            )
            left -= taken
            rows.end_batch()
            if is_throttled:
                break
        self._trim_untouched()
        self._runs.join()
        self._advance()
        return rows.done()

    def _acquire_batch(
        self,
        member: str,
        first: int,
        last: int,
        most: int | None,
        limits: Limits,
        deadline: float,
        rows: AcquiredRows,
    ) -> tuple[int, bool]:
        """(how many records of one batch were acquired, whether the fetch ends here)."""
        taken = 0
        for run in self._runs.within(first, last):
            if not run.is_acquirable:
                continue
            count = run.delivery.deliveries
            size = run.last - run.first + 1
            portion = late_portion(count, size, limits.deliveries)
            if portion is not None and rows:
                return taken, True  # late deliveries go alone
            size = size if portion is None else portion
            if most is not None:
                size = min(size, most - taken)
            if size <= 0:
                break
            self._lock(run.first, run.first + size - 1, member, deadline, rows)
            taken += size
            if portion is not None:
                return taken, True
        return taken, False

    def _lock(
        self, first: int, last: int, member: str, deadline: float, rows: AcquiredRows
    ) -> None:
        for run in self._runs.within(first, last):
            count = run.delivery.deliveries + 1
            run.delivery = Delivery(_ACQUIRED, count, member, deadline)
            rows.add(run.first, run.last, count)
            size = run.last - run.first + 1
            self.acquired += size
            if count > 1:
                self.redelivered += size

    def skip_absent(self, first: int, last: int) -> None:
        """Archive offsets that nobody may read: no record of them is in the log, or it is aborted.
        They need not become durable: whoever reads there again finds the same."""
        if first > self.end_offset:
            return
        self._archive_absent(max(first, self.start_offset), last)
        self._runs.join()
        self._advance()

    def _archive_absent(self, first: int, last: int) -> None:
        if last < first:
            return
        self._reach(last + 1)
        for run in self._runs.within(first, last):
            if run.is_acquirable:
                run.delivery = Delivery(_ARCHIVED, run.delivery.deliveries)

    def _reach(self, end: int) -> None:
        """Let the runs end at `end` at least."""
        if end > self.end_offset:
            self._runs.append(self.end_offset, end - 1, NEW)
            self.end_offset = end

    def _trim_untouched(self) -> None:
        """Give back what was not acquired of the tail: it was never delivered."""
        tail = self._runs.tail()
        if tail is not None and tail.delivery == NEW and tail.change is None:
            self._runs.drop_from(tail.first)
            self.end_offset = tail.first

    # -- acknowledge, release, expire

    def acknowledge(
        self,
        member: str,
        acknowledgements: Iterable[Acknowledgement],
        limits: Limits,
        *,
        renewed: float | None,
    ) -> Change | None:
        """All of it or nothing. None: nothing is to be made durable.

        `renewed`: the deadline of renewed locks; None: the group allows no renewal. Offsets below
        the log start are passed over. Raises KafkaError: INVALID_REQUEST for offsets that were
        never delivered, INVALID_RECORD_STATE for those that `member` does not hold (any more): its
        lock may have ended, and another member may have accepted them.
        """
        steps: list[Step] = []
        for first, last, types in checked(acknowledgements):
            steps += _steps(max(first, self._log_start), first, last, types)
        self._check(member, steps, renewed)
        change = Change()
        for run, kind in self._runs.pieces(steps):
            if kind == AcknowledgeType.RENEW:
                assert renewed is not None
                run.delivery = run.delivery._replace(deadline=renewed)
                continue
            run.before, run.change = run.delivery, change
            run.delivery = _answered(run.delivery.deliveries, kind, limits)
            change.add(run.first, run.last, run.delivery)
            if run.delivery.state is _ARCHIVED and kind != AcknowledgeType.GAP:
                change.archived += run.last - run.first + 1
        if steps:
            self._runs.join(steps[0][0], steps[-1][1])
        return change if change.batches else None

    def _check(self, member: str, steps: list[Step], renewed: float | None) -> None:
        if steps and steps[-1][1] >= self.end_offset:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"offset {steps[-1][1]} was not delivered: {self.end_offset} comes next",
            )
        if steps and steps[0][0] < self.start_offset:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                f"offset {steps[0][0]} is done with: the start offset is {self.start_offset}",
            )
        for run, (_, _, kind) in self._runs.covering(steps):
            delivery = run.delivery
            if run.change is not None or delivery.state is not _ACQUIRED:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"offsets {run.first} to {run.last} are {delivery.state.name}, not ACQUIRED",
                )
            if delivery.member != member or delivery.hold is not None:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"another member holds offsets {run.first} to {run.last}",
                )
            if kind == AcknowledgeType.RENEW and renewed is None:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    "this group renews no locks (share.renew.acknowledge.enable)",
                )

    def release(self, member: str, limits: Limits) -> Change | None:
        """Give back all that `member` holds: its session is over. At once: nobody waits for it to
        be durable, and if it never is, deliveries are counted too low after a crash."""
        return self._give_back(
            [run for run in self._runs if run.delivery.member == member and run.change is None],
            limits,
        )

    def expire(self, now: float, limits: Limits) -> Change | None:
        """Give back what was locked until `now` or earlier, as `release` does. A lock whose
        acknowledgement is being made durable does not expire unless that fails."""
        return self._give_back([run for run in self._runs if _is_late(run, now)], limits)

    def _give_back(self, runs: list[Run], limits: Limits) -> Change | None:
        change = Change()
        for run in runs:
            run.delivery = _answered(run.delivery.deliveries, AcknowledgeType.RELEASE, limits)
            if run.delivery.state is _ARCHIVED:
                change.archived += run.last - run.first + 1
            change.add(run.first, run.last, run.delivery)
        if not runs:
            return None
        self.archived += change.archived
        self._runs.join()
        self._advance()
        return change

    def next_deadline(self) -> float | None:
        """When the next lock ends; None: nothing is locked."""
        return min(
            (
                run.delivery.deadline
                for run in self._runs
                if run.delivery.state is _ACQUIRED and run.change is None and not run.delivery.hold
            ),
            default=None,
        )

    # -- durability, and the log

    def commit(self, change: Change) -> None:
        """`change` is durable."""
        for run in self._of(change):
            run.change = run.before = None
        self.archived += change.archived
        self._runs.join(change.first, change.last)
        self._advance()

    def roll_back(self, change: Change) -> None:
        """`change` did not become durable, or nobody knows: the member holds its records again, as
        long as their locks last."""
        for run in self._of(change):
            assert run.before is not None
            run.delivery, run.change, run.before = run.before, None, None
        self._runs.join(change.first, change.last)

    def log_start_moved(self, offset: int) -> None:
        """Records below `offset` are not in the log any more."""
        self._log_start = max(self._log_start, offset)
        if offset <= self.start_offset:
            return
        self._runs.drop_below(offset)
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)
        self._advance()

    def _of(self, change: Change) -> list[Run]:
        return [r for r in self._runs.touching(change.first, change.last) if r.change is change]

    def _advance(self) -> None:
        """The start offset passes records that are durably done with."""
        while (head := self._runs.head()) is not None and head.is_done:
            self.start_offset = head.last + 1
            self._runs.drop_head()

    def runs(self) -> list[Run]:
        """The runs as they are, in offset order: for tests and descriptions."""
        return list(self._runs)


def late_portion(count: int, size: int, limit: int) -> int | None:
    """How many of `size` records, delivered `count` times before, one fetch may take; None: all.

    A consumer that fails at one record gives back all that it was sent. Towards the limit records
    are delivered in ever smaller pieces, at last one by one: the others pass, and the one that
    cannot be processed is archived alone.
    """
    threshold = max(THROTTLED_DELIVERIES_MIN, -(-limit // 2))
    if limit > THROTTLED_DELIVERIES_MIN and count == limit - 1:
        return 1
    if count < threshold:
        return None
    return max(size >> (count - threshold + 1), 1)


def checked(acknowledgements: Iterable[Acknowledgement]) -> list[Acknowledgement]:
    """The acknowledgements of one partition. Raises KafkaError(INVALID_REQUEST) unless they are in
    offset order, and have one type for all of their offsets or one for each."""
    found: list[Acknowledgement] = []
    end = -1
    for row in acknowledgements:
        where = f"acknowledged offsets {row.first} to {row.last}"
        if row.last < row.first or row.first <= end or row.first < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{where} do not follow {end}")
        if len(row.types) not in (1, row.last - row.first + 1):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{where} have {len(row.types)} types")
        for kind in set(row.types):
            if not AcknowledgeType.GAP <= kind <= AcknowledgeType.RENEW:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{where} have the type {kind}")
        end = row.last
        found.append(row)
    return found


def _answered(count: int, kind: int, limits: Limits) -> Delivery:
    """The delivery after an acknowledgement of this type."""
    if kind == AcknowledgeType.ACCEPT:
        return Delivery(RecordState.ACKNOWLEDGED, count)
    if kind == AcknowledgeType.RELEASE and count < limits.deliveries:
        return Delivery(_AVAILABLE, count)
    return Delivery(_ARCHIVED, count)


def _is_late(run: Run, now: float) -> bool:
    delivery = run.delivery
    return delivery.state is _ACQUIRED and delivery.deadline <= now and run.change is None


def _steps(start: int, first: int, last: int, types: Sequence[int]) -> list[Step]:
    """(first, last, type) of the offsets from `start` on, neighbours of one type together."""
    if len(types) == 1:
        return [(start, last, types[0])] if start <= last else []
    steps: list[Step] = []
    for offset in range(start, last + 1):
        kind = types[offset - first]
        if steps and steps[-1][2] == kind:
            steps[-1] = (steps[-1][0], offset, kind)
        else:
            steps.append((offset, offset, kind))
    return steps
