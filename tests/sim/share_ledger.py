"""The ledger of a share group and its invariants: deliveries, acknowledgements, start offsets.

A record is ended once an accept or a reject of it is confirmed. An acknowledgement without an
answer may have been taken or not. A leader that was deposed and does not know may still hand out
records, as in Kafka: what it hands out cannot be acknowledged, so that breaks no invariant.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from headwater_broker.replica.share.share_partition import AcknowledgeType
from sim.invariants import ViolationError

At = tuple[int, int]
"""Partition and offset."""
ENDING = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


@dataclass(slots=True)
class Delivered:
    """One record, as the members of the group know it."""

    count: int = 0
    """The highest delivery count that a member was told."""
    ended_by: str = ""
    ended_s: float = 0.0
    """When its accept or reject was confirmed."""
    may_be_ended: bool = False
    """An accept or reject of it was sent."""
    released: int = 0
    """The highest delivery count of a confirmed release."""
    released_s: float = 0.0


class ShareLedger:
    """All that the members of the world's share group were told and have said."""

    def __init__(self, counts: dict[str, int], deliveries_max: int) -> None:
        self._counts = counts
        self._deliveries_max = deliveries_max
        self._records: dict[At, Delivered] = {}
        self._lost_s: dict[int, list[float]] = {}
        """Partition -> when fetches were lost with their answers, which may have held records."""
        self._starts: dict[int, tuple[int, float]] = {}
        """Partition -> the last start offset that was told, and when."""

    def count(self, what: str, times: int = 1) -> None:
        """Count events."""
        self._counts[what] = self._counts.get(what, 0) + times

    # -- deliveries

    def delivered(
        self, at: At, count: int, fetched_s: float, member: str, *, by_leader: bool
    ) -> None:
        """A member was given a record by a fetch that was sent at `fetched_s`; `by_leader`: the
        broker led the partition for the whole time. Raises ViolationError."""
        known = self._records.setdefault(at, Delivered())
        where = f"{member} was given offset {at[1]} of partition {at[0]} at delivery count {count}"
        if not 1 <= count <= self._deliveries_max:
            raise ViolationError(
                "DeliveryLimitHolds", f"{where}; the limit is {self._deliveries_max}"
            )
        if not by_leader:
            self.count("delivered by a deposed leader")
        elif known.ended_by and known.ended_s < fetched_s:
            raise ViolationError(
                "WhatIsEndedIsNotDelivered", f"{where}; {known.ended_by} at {known.ended_s:.3f} s"
            )
        elif known.released >= count and known.released_s < fetched_s:
            raise ViolationError(
                "DeliveryCountRises", f"{where}; it was released at count {known.released}"
            )
        elif at[1] < (start := self._starts.get(at[0], (0, 0.0)))[0] and start[1] < fetched_s:
            raise ViolationError(
                "NothingIsDeliveredBelowTheStart", f"{where}; the start offset is {start[0]}"
            )
        known.count = max(known.count, count)
        self.count("delivered")
        if count > 1:
            self.count("redelivered")

    def fetch_lost(self, partition: int, now_s: float) -> None:
        """A fetch has no answer: it may have acquired records that nobody knows of."""
        self._lost_s.setdefault(partition, []).append(now_s)

    # -- acknowledgements

    def sent(self, at: At, kind: int) -> None:
        """An acknowledgement is sent."""
        if kind in ENDING:
            self._records[at].may_be_ended = True

    def confirmed(self, at: At, kind: int, count: int, now_s: float, member: str) -> None:
        """An acknowledgement of a delivery with this count was confirmed. Raises ViolationError
        when the record was ended already."""
        known, name = self._records[at], AcknowledgeType(kind).name.lower()
        self.count(name)
        if kind == AcknowledgeType.RELEASE:
            known.released, known.released_s = max(known.released, count), now_s
        if kind not in ENDING:
            return
        if known.ended_by:
            raise ViolationError(
                "NoRecordIsEndedTwice",
                f"offset {at[1]} of partition {at[0]}: {name} of {member} was confirmed; before, "
                f"{known.ended_by} at {known.ended_s:.3f} s",
            )
        known.ended_by, known.ended_s = f"{name} of {member}", now_s

    # -- start offsets

    def started(self, partition: int, offset: int, asked_s: float, now_s: float) -> None:
        """A start offset was told. Raises ViolationError when it went back."""
        known, told_s = self._starts.get(partition, (-1, -1.0))
        if offset < known and told_s < asked_s:
            raise ViolationError(
                "StartOffsetRises",
                f"partition {partition}: the start offset was {known} at {told_s:.3f} s, "
                f"now it is {offset}",
            )
        if offset >= known:
            self._starts[partition] = offset, now_s
            self.count("starts told")

    # -- the end

    def missing(self, partition: int, offset: int, written_s: float) -> str:
        """Why a committed record below the start offset is lost; empty if it is not."""
        known = self._records.get((partition, offset), Delivered())
        lost_s = self._lost_s.get(partition, [])
        unseen = len(lost_s) - bisect_left(lost_s, written_s)
        if known.may_be_ended or known.count + unseen >= self._deliveries_max:
            return ""
        return (
            f"offset {offset} of partition {partition} is done with, nobody has acknowledged it, "
            f"and its highest delivery count was {known.count} ({unseen} fetches had no answer)"
        )
