"""Tickets: numbers that rise strictly in the whole cluster, and so order the runs of a sink. Pure.

One coordinator allocates them, from ranges that a record reserves. A range per broker would not
rise: a newer run could get a lower ticket than the run that it replaces.
"""

from __future__ import annotations

from headwater_broker.coordinator.common.shard import Decision, Token
from headwater_broker.coordinator.transaction.epoch_records import tickets_record

RESERVED_AT_ONCE = 1_000


class TicketAllocator:
    """The tickets of the shard of `TICKETS_KEY`."""

    def __init__(self) -> None:
        self._next = 1
        self._reserved_end = 1

    def replay(self, reserved_end: int) -> None:
        """The record of a reservation."""
        self._reserved_end = reserved_end

    def loaded(self) -> None:
        """The log is read to its end: any reserved ticket may have been allocated."""
        self._next = self._reserved_end

    def allocate(self, token: Token) -> Decision:
        """Replies the next ticket. A deposed coordinator must not: its tickets would be lower than
        those of its successor, though they are taken later."""
        ticket = self._next
        self._next += 1  # also where the record is rejected: the ticket is never allocated then
        decision = Decision()
        if ticket < self._reserved_end:
            return decision.reply_as_leader(token, ticket)
        decision.records.append(tickets_record(ticket + RESERVED_AT_ONCE))
        return decision.confirm(token, ticket)
