"""The in-flight offsets of a share partition as runs of one state (Kafka's InFlightBatch)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import NamedTuple

from headwater_broker.replica.share.ports import StateBatch


class RecordState(IntEnum):
    """The delivery state of a record, with Kafka's numbers."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Read as ARCHIVED; never written here."""
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """The record is not delivered again."""
        return self >= RecordState.ACKNOWLEDGED


class Hold(NamedTuple):
    """The holder of records beyond any lock: an owner, for its batch of this number (`holds`)."""

    owner: str
    batch: int


class Delivery(NamedTuple):
    """The state of the records of a run."""

    state: RecordState
    deliveries: int
    """How often the records were delivered, the delivery at hand included."""
    member: str = ""
    """The member that holds them; empty unless ACQUIRED."""
    deadline: float = 0.0
    """When the lock of an ACQUIRED run ends, in monotonic seconds."""
    hold: Hold | None = None
    """Not None: ACQUIRED by no member, and without an end."""


class Change:
    """A change that is being made durable. `first` and `last` bound the offsets it may cover."""

    __slots__ = ("archived", "batches", "first", "has_holds", "last")

    def __init__(self) -> None:
        self.archived = 0
        """How many records it archives, gaps left out."""
        self.batches: list[StateBatch] = []
        self.first = 2**63 - 1
        self.last = -1
        self.has_holds = False
        """Holds begin or end by it: their table is written along."""

    def add(self, first: int, last: int, delivery: Delivery) -> None:
        """Record that these offsets are to have this state."""
        self.first = min(self.first, first)
        self.last = max(self.last, last)
        before = self.batches[-1] if self.batches else None
        state = delivery.state if delivery.hold is None else RecordState.AVAILABLE
        if (
            before is not None
            and before.last_offset == first - 1
            and before.delivery_state == state
            and before.delivery_count == delivery.deliveries
        ):
            first = before.first_offset
            self.batches.pop()
        self.batches.append(StateBatch(first, last, int(state), delivery.deliveries))


class Run:
    """Offsets `first` to `last`, both inclusive, of one delivery."""

    __slots__ = ("before", "change", "delivery", "first", "last")

    def __init__(
        self,
        first: int,
        last: int,
        delivery: Delivery,
        change: Change | None = None,
        before: Delivery | None = None,
    ) -> None:
        self.first = first
        self.last = last
        self.delivery = delivery
        self.change = change
        """Not None: the delivery is not durable yet; `before` holds if it does not become so."""
        self.before = before

    def __repr__(self) -> str:
        mark = "" if self.change is None else "*"
        state, count = self.delivery.state.name, self.delivery.deliveries
        return f"<{self.first}-{self.last} {state}{mark} {count}>"

    def head(self, last: int) -> Run:
        """Cut off the offsets up to `last`, as a run of their own."""
        head = Run(self.first, last, self.delivery, self.change, self.before)
        self.first = last + 1
        return head

    @property
    def is_acquirable(self) -> bool:
        """True when a fetch may deliver the records."""
        return self.delivery.state is RecordState.AVAILABLE and self.change is None

    @property
    def is_done(self) -> bool:
        """True when the records are durably done with."""
        return self.delivery.state.is_terminal and self.change is None


_first = attrgetter("first")
Step = tuple[int, int, int]
"""First and last offset, both inclusive, and what is to be done with them: a kind."""
NEW = Delivery(RecordState.AVAILABLE, 0)


class Runs:
    """Neighbouring runs without a gap. Iteration is in offset order."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def head(self) -> Run | None:
        """The run with the lowest offsets."""
        return self._runs[0] if self._runs else None

    def tail(self) -> Run | None:
        """The run with the highest offsets."""
        return self._runs[-1] if self._runs else None

    def drop_head(self) -> None:
        """Forget the first run."""
        del self._runs[0]

    def drop_below(self, offset: int) -> None:
        """Forget everything below `offset`."""
        self._cut_at(offset)
        count = 0
        while count < len(self._runs) and self._runs[count].last < offset:
            count += 1
        del self._runs[:count]

    def drop_from(self, offset: int) -> None:
        """Forget everything from `offset` on."""
        self._cut_at(offset)
        while self._runs and self._runs[-1].first >= offset:
            self._runs.pop()

    def append(self, first: int, last: int, delivery: Delivery) -> None:
        """Add a run behind the last one."""
        self._runs.append(Run(first, last, delivery))

    def within(self, first: int, last: int) -> list[Run]:
        """The runs of these offsets, cut so that they hold no others."""
        self._cut_at(first)
        self._cut_at(last + 1)
        return self.touching(first, last)

    def touching(self, first: int, last: int) -> list[Run]:
        """The runs that hold some of these offsets."""
        runs = self._runs
        at = max(bisect_right(runs, first, key=_first) - 1, 0)
        found = []
        while at < len(runs) and runs[at].first <= last:
            if runs[at].last >= first:
                found.append(runs[at])
            at += 1
        return found

    def covering(self, steps: Sequence[Step]) -> Iterator[tuple[Run, Step]]:
        """Each run with each step that holds some of its offsets. `steps` are in offset order."""
        if not steps:
            return
        at = 0
        for run in self.touching(steps[0][0], steps[-1][1]):
            while at < len(steps) and steps[at][1] < run.first:
                at += 1
            held = at
            while held < len(steps) and steps[held][0] <= run.last:
                yield run, steps[held]
                held += 1

    def pieces(self, steps: Sequence[Step]) -> list[tuple[Run, int]]:
        """The runs of these steps, cut so that they hold no other offsets, each with the step's
        kind. `steps` are in offset order; one pass, however many there are."""
        if not steps:
            return []
        runs, cut, found = self._runs, list[Run](), list[tuple[Run, int]]()
        begin = index = max(bisect_right(runs, steps[0][0], key=_first) - 1, 0)
        at = 0
        while index < len(runs) and at < len(steps):
            run, (first, last, kind) = runs[index], steps[at]
            if run.last < first:
                cut.append(run)
                index += 1
                continue
            if run.first < first:
                cut.append(run.head(first - 1))
            if run.first > last:
                at += 1
            elif run.last > last:
                piece = run.head(last)
                cut.append(piece)
                found.append((piece, kind))
                at += 1
            else:
                cut.append(run)
                found.append((run, kind))
                index += 1
        runs[begin:index] = cut
        return found

    def join(self, first: int = 0, last: int = 2**62) -> None:
        """Join neighbours that are alike, of the runs that hold or touch these offsets."""
        runs, joined = self._runs, list[Run]()
        begin = max(bisect_right(runs, first, key=_first) - 2, 0)
        end = bisect_right(runs, last + 1, key=_first)
        for run in runs[begin:end]:
            before = joined[-1] if joined else None
            if (
                before is not None
                and before.change is run.change
                and before.delivery == run.delivery
                and before.before == run.before
            ):
                before.last = run.last
            else:
                joined.append(run)
        runs[begin:end] = joined

    def _cut_at(self, offset: int) -> None:
        """Let no run hold both `offset` and the offset before it."""
        runs = self._runs
        at = bisect_right(runs, offset - 1, key=_first) - 1
        if at < 0 or runs[at].last < offset:
            return
        run = runs[at]
        if run.first >= offset:
            return
        runs.insert(at + 1, Run(offset, run.last, run.delivery, run.change, run.before))
        run.last = offset - 1
