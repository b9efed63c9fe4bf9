"""The producer's ledger: for every record sent, its offset and the time of its acknowledgement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from flights.proof import Row
from flights.records import FLIGHTS, Feed
from headwater.client.futures import SendFuture
from headwater.clock import Clock

PAUSE_WINDOW_S = 8.0


class Ack(NamedTuple):
    """One acknowledged record: partition, offset, and the time of the ack (monotonic seconds).

    A tuple of plain values, as the garbage collector need not traverse 360,000 of them.
    """

    topic: str
    identity: int
    partition: int
    offset: int
    at_s: float


@dataclass
class Ledger:
    """Acks and failures, appended by the producer's futures. Appending needs no lock."""

    clock: Clock
    sent: int = 0
    acks: list[Ack] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def in_flight(self) -> int:
        """The number of records that were sent and neither acknowledged nor failed."""
        return self.sent - len(self.acks) - len(self.failures)

    def note(self, topic: str, identity: int, future: SendFuture) -> None:
        """Record the outcome of one send."""
        self.sent += 1

        def settle(done: SendFuture) -> None:
            error = done.exception()
            if error is not None:
                self.failures.append(f"{topic} {identity}: {error}")
                return
            where = done.result()
            now = self.clock.monotonic()
            self.acks.append(Ack(topic, identity, where.partition, where.offset, now))

        future.add_done_callback(settle)

    def rows(self, feeds: list[Feed]) -> list[Row]:
        """The acknowledged records as rows of the proof."""
        by_topic = {feed.topic: feed for feed in feeds}
        rows: list[Row] = []
        for ack in self.acks:
            feed, i = by_topic[ack.topic], ack.identity
            place = (ack.topic, ack.partition, ack.offset, int(feed.timestamps_ms[i]))
            rows.append((*place, feed.keys[i], feed.values[i], feed.headers[i]))
        return rows

    def pause_ms(self, killed_at_s: float) -> float:
        """The longest time without an ack of any one partition around a kill, in milliseconds.

        Counts the gaps between consecutive acks of a partition that end within `PAUSE_WINDOW_S`
        after the kill. Only of the flights topic, whose records come all the time.
        """
        until = killed_at_s + PAUSE_WINDOW_S
        last: dict[tuple[str, int], float] = {}
        longest = 0.0
        for ack in sorted(self.acks, key=lambda a: a.at_s):
            if ack.at_s > until:
                break
            slot = (ack.topic, ack.partition)
            if ack.at_s > killed_at_s and slot in last and ack.topic == FLIGHTS:
                longest = max(longest, ack.at_s - last[slot])
            last[slot] = ack.at_s
        return longest * 1000
