"""The producer's own book: what was sent, what was acknowledged where and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from flights.proof import Row
from flights.records import FLIGHTS, Feed
from headwater.client.futures import SendFuture
from headwater.clock import Clock

PAUSE_WINDOW_S = 8.0


class Ack(NamedTuple):
    """One acknowledged record: its place in the log, and when the ack came (monotonic s).

    A tuple of plain values: 360,000 of them cost the garbage collector nothing.
    """

    topic: str
    identity: int
    partition: int
    offset: int
    at_s: float


@dataclass
class Ledger:
    """Acks and failures, filled by the producer's futures. Lists only grow, so no lock."""

    clock: Clock
    sent: int = 0
    acks: list[Ack] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def in_flight(self) -> int:
        """Records sent and neither acknowledged nor failed."""
        return self.sent - len(self.acks) - len(self.failures)

    def note(self, topic: str, identity: int, future: SendFuture) -> None:
        """Follow one send to its end."""
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
        """What was acknowledged, as rows of the proof."""
        by_topic = {feed.topic: feed for feed in feeds}
        rows: list[Row] = []
        for ack in self.acks:
            feed, i = by_topic[ack.topic], ack.identity
            place = (ack.topic, ack.partition, ack.offset, int(feed.timestamps_ms[i]))
            rows.append((*place, feed.keys[i], feed.values[i], feed.headers[i]))
        return rows

    def pause_ms(self, killed_at_s: float) -> float:
        """The longest time any one partition went without an ack around a kill, in milliseconds.

        Gaps between consecutive acks of a partition that end within `PAUSE_WINDOW_S` of the kill;
        the one that the kill interrupts counts from the last ack before it. Of the flights topic,
        which gets records all the time; weather comes once an hour of the year.
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
