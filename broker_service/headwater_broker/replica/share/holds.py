"""Holds: locks of a share partition that outlive time, sessions and leaders. Headwater's own. Pure.

A queue source for Spark plans a batch of acquired records, and may run it again after any crash. So
its records must stay its own until it says what became of them. It turns the locks of its member
into holds of an *owner*, which the checkpoint names, and a batch's number. A hold ends when its
owner accepts or releases it, or an operator does. Runs of one owner are ordered by tickets
(docs/epochs.md): one with a lower ticket than the highest seen is fenced.

A held record is ACQUIRED by no member. The persister keeps it as AVAILABLE, which is what brokers
know that know no holds, and the table of holds beside it.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.schema import Message, Struct, decoder, encoder, wire, wire_schema
from headwater_broker.replica.share.runs import Change, Delivery, Hold, RecordState, Run, Runs

OWNERS_MAX = 32
"""Owners without a hold that are remembered: the eldest are forgotten."""
RELEASED_TICKET = 2**63 - 1
"""Of an owner that an operator has released: it is fenced for good."""
_NEVER = float("inf")
_VERSION = struct.Struct(">h")

Range = tuple[int, int]
"""First and last offset, both inclusive."""


class HeldRange(NamedTuple):
    """Offsets `first` to `last`, both inclusive, that an owner holds."""

    owner: str
    batch: int
    first: int
    last: int


@wire_schema
class StoredRange(Struct):
    """A held range."""

    batch: int = wire("int64")
    first_offset: int = wire("int64")
    last_offset: int = wire("int64")


@wire_schema
class StoredOwner(Struct):
    """An owner, and what it holds."""

    owner: str = wire("string")
    ticket: int = wire("int64")
    accepted: int = wire("int64")
    ranges: tuple[StoredRange, ...] = wire(StoredRange, array=True)


@wire_schema
class StoredHolds(Message):
    """The table of holds of a share partition, as the persister keeps it behind an int16 version.

    A later version may add only tagged fields: what this broker cannot read it must not drop.
    """

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    owners: tuple[StoredOwner, ...] = wire(StoredOwner, array=True)


@dataclass(slots=True)
class _Owner:
    ticket: int
    accepted: int = -1
    """The last batch of which records were accepted here: asked again, it is done."""


class Holds:
    """The holds of one share partition."""

    def __init__(self, runs: Runs, stored: bytes = b"") -> None:
        """`stored`: what `encoded` gave. What is not in `runs`, or done with, is held no more: it
        is behind the end of a log that was cut, or a later write says so.

        Raises SchemaError.
        """
        self._runs = runs
        self._owners: dict[str, _Owner] = {}
        if not stored:
            return
        table = decoder(StoredHolds, _VERSION.unpack_from(stored)[0])(stored, _VERSION.size)[0]
        for row in table.owners:
            self._owners[row.owner] = _Owner(row.ticket, row.accepted)
            for held in row.ranges:
                self._load(Hold(row.owner, held.batch), held.first_offset, held.last_offset)
        runs.join()

    def _load(self, hold: Hold, first: int, last: int) -> None:
        for run in self._runs.within(first, last):
            if run.delivery.state is RecordState.AVAILABLE:
                run.delivery = _held(run.delivery.deliveries, hold)

    def __iter__(self) -> Iterator[HeldRange]:
        """The holds, those included whose end is not durable yet."""
        yield from _ranges(_standing(run, ()) for run in self._runs)

    def encoded(self, durable: Container[Change]) -> bytes:
        """The table as it stands once the changes `durable` are durable, and no other one is."""
        by_owner: dict[str, list[StoredRange]] = {name: [] for name in self._owners}
        for held in _ranges(_standing(run, durable) for run in self._runs):
            by_owner.setdefault(held.owner, []).append(
                StoredRange(batch=held.batch, first_offset=held.first, last_offset=held.last)
            )
        owners = tuple(
            StoredOwner(
                owner=name,
                ticket=self._owners[name].ticket,
                accepted=self._owners[name].accepted,
                ranges=tuple(ranges),
            )
            for name, ranges in by_owner.items()
        )
        return _VERSION.pack(0) + encoder(StoredHolds, 0)(StoredHolds(owners=owners))

    # -- what owners do

    def claim(self, owner: str, ticket: int) -> None:
        """Fence the runs of `owner` with lower tickets. Raises KafkaError(PRODUCER_FENCED).

        It need not be durable. What a fenced run does under a leader that forgot this is a hold
        that no checkpoint names, which the next run releases.
        """
        known = self._owners.get(owner)
        if known is None:
            self._forget_idle()
            self._owners[owner] = _Owner(ticket)
            return
        if ticket < known.ticket:
            why = (
                "an operator has ended its holds: start the query with a new checkpoint"
                if known.ticket == RELEASED_TICKET
                else f"a newer run of it (ticket {known.ticket}) holds records here"
            )
            raise KafkaError(ErrorCode.PRODUCER_FENCED, f"owner {owner}, ticket {ticket}: {why}")
        known.ticket = ticket

    def _forget_idle(self) -> None:
        holding = {held.owner for held in self}
        idle = [name for name in self._owners if name not in holding]
        for name in idle[: max(len(idle) - OWNERS_MAX + 1, 0)]:
            del self._owners[name]

    def hold(
        self, owner: str, ticket: int, batch: int, member: str, ranges: Sequence[Range]
    ) -> Change | None:
        """Turn locks of `member` into holds, all or none. None: they are holds already.

        Raises KafkaError: PRODUCER_FENCED; INVALID_RECORD_STATE for what `member` does not hold any
        more; INVALID_REQUEST for a batch that was accepted already; REQUEST_TIMED_OUT while an
        earlier change of these records is not durable.
        """
        self.claim(owner, ticket)
        if batch <= self._owners[owner].accepted:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"batch {batch} of owner {owner} was accepted already: its checkpoint is older "
                "than the group",
            )
        wanted = Hold(owner, batch)
        for run in self._whole(ranges):
            delivery = run.delivery
            is_locked = delivery.state is RecordState.ACQUIRED and delivery.member == member
            if delivery.hold != wanted and not (is_locked and delivery.hold is None):
                raise _not_held(run, f"member {member} does not hold them")
        change = Change()
        for run in self._cut(ranges):
            if run.delivery.hold is None:
                _set(run, _held(run.delivery.deliveries, wanted), change)
        return self._noted(change)

    def accept(self, owner: str, ticket: int, batch: int, ranges: Sequence[Range]) -> Change | None:
        """Accept what `owner` holds for `batch`. None: that was done before.

        Raises KafkaError: PRODUCER_FENCED; INVALID_RECORD_STATE for records that it does not hold
        and has not accepted; REQUEST_TIMED_OUT as `hold`.
        """
        self.claim(owner, ticket)
        known, wanted = self._owners[owner], Hold(owner, batch)
        if batch > known.accepted:
            for run in self._whole(ranges):
                if run.delivery.hold != wanted:
                    raise _not_held(run, f"owner {owner} does not hold them for batch {batch}")
        known.accepted = max(known.accepted, batch)
        return self._end(ranges, wanted, RecordState.ACKNOWLEDGED)

    def release(
        self, owner: str, ticket: int, batch: int, ranges: Sequence[Range]
    ) -> Change | None:
        """Give back what `owner` holds of these for `batch`: nobody has processed it, so the
        delivery does not count. None: it holds none.

        Raises KafkaError: PRODUCER_FENCED; REQUEST_TIMED_OUT as `hold`.
        """
        self.claim(owner, ticket)
        return self._end(ranges, Hold(owner, batch), RecordState.AVAILABLE)

    def end_all(self, owner: str, state: RecordState) -> Change | None:
        """An operator accepts (ACKNOWLEDGED) or releases (AVAILABLE) all that `owner` holds, and
        fences it for good. None: it held nothing. Raises KafkaError(REQUEST_TIMED_OUT)."""
        change = Change()
        for run in self._runs:
            for delivery in (run.delivery, run.before):
                if delivery and delivery.hold and delivery.hold.owner == owner:
                    _check_settled(run)
        for run in self._runs:
            if run.delivery.hold is not None and run.delivery.hold.owner == owner:
                _set(run, _ended(run.delivery, state), change)
        self._owners.setdefault(owner, _Owner(RELEASED_TICKET)).ticket = RELEASED_TICKET
        return self._noted(change)

    def _end(self, ranges: Sequence[Range], hold: Hold, state: RecordState) -> Change | None:
        for run in self._touching(ranges):
            if hold in (run.delivery.hold, run.before and run.before.hold):
                _check_settled(run)
        change = Change()
        for run in self._cut(ranges):
            if run.delivery.hold == hold:
                _set(run, _ended(run.delivery, state), change)
        return self._noted(change)

    def _noted(self, change: Change) -> Change | None:
        self._runs.join()
        change.has_holds = True
        return change if change.batches else None

    def _whole(self, ranges: Sequence[Range]) -> list[Run]:
        """The runs of these offsets, all of which are in flight and settled."""
        found = self._touching(ranges)
        size = sum(last - first + 1 for first, last in ranges)
        seen = sum(
            min(run.last, last) - max(run.first, first) + 1
            for first, last in ranges
            for run in self._runs.touching(first, last)
        )
        if seen != size:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                f"some of the offsets {ranges[0][0]} to {ranges[-1][1]} are not in flight",
            )
        for run in found:
            _check_settled(run)
        return found

    def _touching(self, ranges: Iterable[Range]) -> list[Run]:
        return [run for first, last in ranges for run in self._runs.touching(first, last)]

    def _cut(self, ranges: Iterable[Range]) -> list[Run]:
        return [run for first, last in ranges for run in self._runs.within(first, last)]


def _held(deliveries: int, hold: Hold) -> Delivery:
    return Delivery(RecordState.ACQUIRED, deliveries, deadline=_NEVER, hold=hold)


def _ended(delivery: Delivery, state: RecordState) -> Delivery:
    is_uncounted = state is RecordState.AVAILABLE
    return Delivery(state, max(delivery.deliveries - is_uncounted, 0))


def _set(run: Run, delivery: Delivery, change: Change) -> None:
    run.before, run.change, run.delivery = run.delivery, change, delivery
    change.add(run.first, run.last, delivery)


def _check_settled(run: Run) -> None:
    if run.change is not None:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"a change of offsets {run.first} to {run.last} is being made durable: ask again",
        )


def _standing(run: Run, durable: Container[Change]) -> tuple[Run, Hold | None]:
    """A run with its hold, counted by what is durable."""
    if run.change is None or run.change in durable or run.before is None:
        return run, run.delivery.hold
    return run, run.before.hold


def _ranges(rows: Iterable[tuple[Run, Hold | None]]) -> Iterator[HeldRange]:
    joined: HeldRange | None = None
    for run, hold in rows:
        if hold is None:
            continue
        if joined is not None:
            if joined.last + 1 == run.first and (joined.owner, joined.batch) == hold:
                joined = joined._replace(last=run.last)
                continue
            yield joined
        joined = HeldRange(hold.owner, hold.batch, run.first, run.last)
    if joined is not None:
        yield joined


def _not_held(run: Run, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD_STATE,
        f"offsets {run.first} to {run.last} are {run.delivery.state.name}: {why}",
    )
