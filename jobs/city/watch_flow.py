"""Flow 5, watch-list and statistics: the live service, its instructions, and their proof.

The service runs in a process of its own. When another site takes over it starts there, and the
police give their instructions again, from a little before the switch on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from city.arrivals import Arrival, Arrivals
from city.child import Child
from city.clock import at_hour
from city.fields import (
    FACES,
    STATISTICS,
    STATISTICS_INSTRUCTIONS,
    TRACKS,
    TRACKS_BATCH,
    VEHICLES,
    WATCH_INSTRUCTIONS,
)
from city.flows import City, Figure, Site
from city.instructions import CountInstruction, WatchInstruction
from city.sites import LOST_AT_H
from city.watch_oracle import LATE, Watched, counts_differ, watched
from headwater import Producer

FLOW = "watch-list"
CITY_FLOW = "city-flow"
"""Counts every camera, for the map."""
LATE_HOUR = 12.0
BACK_H = 2.0
"""Instructions are given again for so long before the loss, in city time: what the service had read
by then, it has reported."""
EVENT_P99_MAX_S = 1.0
BATCH_P99_MAX_S = 60.0
COUNTED_UNTIL_H = 20.0
SEND_TIMEOUT_S = 30.0


class Watch:
    """The flow."""

    name = FLOW

    def __init__(self) -> None:
        self._readers: list[Arrivals] = []
        self._switched_ms: float | None = None
        self._late_sent_ms = float("nan")

    def start(self, city: City) -> None:
        """Start the service, and give the instructions that hold all day."""
        self._city = city
        self._watched = watched(city.world)
        self._begin(city.site)
        self._instruct([w.instruction for w in self._watched if w.name != LATE])
        self._count(None)
        city.schedule.at(LATE_HOUR, "a watch instruction at noon", self._ask_late)
        city.on_switch.append(self._move)

    def stop(self) -> None:
        """Let the service report all that is in the log."""
        self._summary = self._child.stop(tells=True)
        self._readers[-1].finish()

    def first_reader(self) -> Arrivals:
        """The reader of the tracks of the first site."""
        return self._readers[0]

    def last_reader(self) -> Arrivals:
        """The reader of the tracks of the last site."""
        return self._readers[-1]

    def _begin(self, site: Site) -> None:
        arguments = ["--bootstrap-server", site.servers]
        self._child = Child("city.live", arguments, self._city.out / f"live-{site.name}.log")
        self._child.wait_ready()
        topics = (TRACKS, TRACKS_BATCH, STATISTICS)
        reader = Arrivals(site.servers, site.name, topics, self._city.clock.clock)
        reader.start()
        self._readers.append(reader)

    def _move(self, site: Site) -> None:
        """The service ends with its site; it goes on at the other one."""
        clock = self._city.clock
        self._switched_ms = clock.real_ms(at_hour(LOST_AT_H))
        since_ms = at_hour(LOST_AT_H - BACK_H)
        self._child.kill()
        self._readers[-1].stop()
        self._begin(site)
        self._instruct([w.since(since_ms) for w in self._watched])
        self._count(since_ms)

    def _ask_late(self) -> None:
        late = next(w for w in self._watched if w.name == LATE)
        self._late_sent_ms = self._city.clock.real_now_ms()
        self._instruct([late.instruction])

    def _instruct(self, instructions: Sequence[WatchInstruction]) -> None:
        with Producer(self._city.site.servers, linger_ms=0) as producer:
            for one in instructions:
                producer.send(WATCH_INSTRUCTIONS, one.value(), key=one.instruction_id)
            producer.flush(SEND_TIMEOUT_S)

    def _count(self, since_ms: int | None) -> None:
        asked = CountInstruction(CITY_FLOW, "vehicle", since_ms=since_ms)
        with Producer(self._city.site.servers, linger_ms=0) as producer:
            producer.send(STATISTICS_INSTRUCTIONS, asked.value(), key=CITY_FLOW)
            producer.flush(SEND_TIMEOUT_S)

    # The proof.

    def figures(self) -> Sequence[Figure]:
        """Tracks, their order, counts, and the time from match to report, both ways."""
        live = [a for reader in self._readers for a in reader.points(TRACKS)]
        rows = [self._track(w, live) for w in self._watched]
        rows.append(self._order(live))
        rows.append(self._counts())
        first = self._readers[0]
        for topic, bound, how in (
            (TRACKS, EVENT_P99_MAX_S, "per event"),
            (TRACKS_BATCH, BATCH_P99_MAX_S, "micro-batches of 2 s"),
        ):
            found = self._delays_s(first.points(topic))
            name = f"sent to reported, p99, {how} ({len(found):,} points)"
            p99 = float(np.percentile(found, 99)) if len(found) else float("inf")
            rows.append(Figure.at_most(FLOW, name, bound, p99, "s"))
            rows.append(Figure(FLOW, f"  median, {how}", "", f"{_median(found):.3g} s", True))
        taken_s = (first.taken().get(LATE, float("inf")) - self._late_sent_ms) / 1000
        rows.append(Figure.at_most(FLOW, "an instruction is taken within", 1.0, taken_s, "s"))
        return rows

    def _track(self, one: Watched, live: Sequence[Arrival]) -> Figure:
        """Exactly the records that the truth names; for the late instruction, those between."""
        points = {a.row for a in live if a.told["instruction_id"] == one.name}
        rows = set(one.rows.tolist())
        if one.name != LATE:
            said = f"{len(points & rows):,} of these, {len(points - rows):,} others"
            oracle = f"{len(rows):,} captures"
            return Figure(FLOW, f"track of {one.wanted}", oracle, said, points == rows)
        sent_ms = self._city.ledger.real_sent_ms(one.topic)
        taken_ms = self._readers[0].taken().get(LATE, float("inf"))
        must = {row for row in rows if sent_ms[row] > taken_ms}
        may = {row for row in rows if sent_ms[row] > self._late_sent_ms - 1000}
        found = f"{len(points):,} points"
        name = f"track of {one.wanted}, asked at noon"
        return Figure(
            FLOW, name, f"{len(must):,} points or a few more", found, must <= points <= may
        )

    def _order(self, live: Sequence[Arrival]) -> Figure:
        """The points of a track come in the order in which the matched records are in the log."""
        last: dict[tuple[str, str, str], int] = {}
        breaks = 0
        for arrival in live:
            slot = (arrival.site, arrival.told["instruction_id"], arrival.told["partition"])
            breaks += arrival.told["offset"] <= last.get(slot, -1)
            last[slot] = arrival.told["offset"]
        return Figure.same(FLOW, "points out of order", 0, breaks)

    def _counts(self) -> Figure:
        """Every camera's passages in every interval that closed well before the switch."""
        found: dict[int, dict[str, int]] = {}
        for arrival in list(self._readers[0].all):
            if arrival.told.get("kind") == "count" and arrival.told["instruction_id"] == CITY_FLOW:
                found[arrival.told["bucket_ms"]] = arrival.told["counts"]
        compared, wrong = counts_differ(self._city.world, found, COUNTED_UNTIL_H)
        name = f"passages per camera and ten minutes until {COUNTED_UNTIL_H:.0f} h"
        found_text = f"{compared:,} counts, {wrong:,} differ"
        return Figure.same(FLOW, name, f"{compared:,} counts, 0 differ", found_text)

    def _delays_s(self, points: Sequence[Arrival]) -> list[float]:
        """From the real time at which a device sent the record to the point's arrival, before the
        site was lost."""
        delays = []
        for arrival in points:
            topic = VEHICLES if arrival.told["what"] == "vehicle" else FACES
            sent_ms = self._city.ledger.real_sent_ms(topic)[arrival.row]
            if self._switched_ms is None or arrival.at_ms < self._switched_ms:
                delays.append((arrival.at_ms - sent_ms) / 1000)
        return delays


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if len(values) else float("nan")
