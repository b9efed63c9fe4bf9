"""A reader of track topics, as a page is one: which points arrive, in which order, and when."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from city.whole_topics import partitions_of
from headwater import Consumer
from headwater.clock import Clock

POLL_MS = 50


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record of a track topic."""

    topic: str
    site: str
    at_ms: float
    """Real time."""
    told: dict[str, Any]

    @property
    def row(self) -> int:
        """The matched record's row in the world."""
        return int(str(self.told["record_id"])[1:])


class Arrivals:
    """Reads topics of one site on a thread, from the first record until `stop`."""

    def __init__(self, servers: str, site: str, topics: Sequence[str], clock: Clock) -> None:
        self._servers = servers
        self._site = site
        self._topics = topics
        self._clock = clock
        self._stopping = threading.Event()
        self._finishing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"city-arrivals-{site}", daemon=True)
        self.all: list[Arrival] = []
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End it at once: its site is lost."""
        self._stopping.set()
        self._thread.join()

    def finish(self) -> None:
        """Read to the end that the topics have now, then end. Raises what ended it before."""
        self._finishing.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def points(self, topic: str) -> list[Arrival]:
        """The track points of a topic, in the order of their arrival."""
        return [a for a in list(self.all) if a.topic == topic and a.told.get("kind") == "point"]

    def taken(self) -> dict[str, float]:
        """Instruction id -> when the report came that it was taken."""
        return {
            a.told["instruction_id"]: a.at_ms for a in list(self.all) if a.told["kind"] == "taken"
        }

    def _run(self) -> None:
        try:
            with Consumer(
                bootstrap_servers=self._servers, client_id="city-arrivals", fetch_max_wait_ms=100
            ) as consumer:
                parts = partitions_of(consumer, self._topics)
                consumer.assign(parts)
                consumer.seek_to_beginning(*parts)
                ends = None
                while not self._stopping.is_set():
                    if self._finishing.is_set():
                        ends = ends or consumer.end_offsets(parts)
                        if all(consumer.position(part) >= ends[part] for part in parts):
                            break
                    for part, records in consumer.poll(POLL_MS).items():
                        now_ms = self._clock.now_ms()
                        for record in records:
                            told = json.loads(record.value or b"{}")
                            self.all.append(Arrival(part.topic, self._site, now_ms, told))
        except Exception as e:  # noqa: BLE001 - the end of the thread: the flow tells it
            self.error = e
