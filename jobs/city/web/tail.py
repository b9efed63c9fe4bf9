"""One consumer for all browsers: follows the topics and tells each stream what has changed.

A stream holds the names of the sections that its browser has not got yet: never more than there are
sections, however slow the browser is.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from city.fields import (
    ALARMS,
    STATISTICS,
    STATISTICS_INSTRUCTIONS,
    TRACKS,
    VIDEO_OBJECTS,
    WATCH_INSTRUCTIONS,
)
from city.web.state import CityState
from city.whole_topics import partitions_of
from headwater import Consumer
from headwater.client.security_options import SecurityOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLLOWED = (
    WATCH_INSTRUCTIONS,
    STATISTICS_INSTRUCTIONS,
    TRACKS,
    STATISTICS,
    ALARMS,
    VIDEO_OBJECTS,
)
POLL_MS = 100
SEND_EVERY_S = 0.2
KEEP_ALIVE_S = 15.0
STREAMS_MAX = 64


@dataclass(eq=False)
class Stream:
    """One browser's stream of a page's sections."""

    sections: frozenset[str]
    """Which it wants; "track:" stands for the track of any instruction."""
    loop: asyncio.AbstractEventLoop
    due: set[str] = field(default_factory=set)
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wants(self, section: str) -> bool:
        """True for a section of its page."""
        kind, colon, _ = section.partition(":")
        return kind + colon in self.sections or section in self.sections


class Tail:
    """Follows the topics on a thread of its own, from the first record on."""

    def __init__(self, servers: str, login: SecurityOptions) -> None:
        self.state = CityState()
        self._servers = servers
        self._login = login
        self._lock = threading.Lock()
        self._streams: set[Stream] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="city-web-tail", daemon=True)
        self.error: BaseException | None = None
        self._caught_up = threading.Event()

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def wait_caught_up(self, timeout_s: float) -> None:
        """Wait until it has read what the topics had when it began."""
        self._caught_up.wait(timeout_s)

    def close(self) -> None:
        """End the thread and every stream."""
        self._stopping.set()
        self._wake(list(self._streams))
        self._thread.join()

    def _run(self) -> None:
        try:
            with Consumer(
                bootstrap_servers=self._servers,
                client_id="city-web",
                max_poll_records=2_000,
                **self._login,
            ) as consumer:
                parts = partitions_of(consumer, FOLLOWED)
                consumer.assign(parts)
                consumer.seek_to_beginning(*parts)
                ends = consumer.end_offsets(parts)
                while not self._stopping.is_set():
                    if all(consumer.position(part) >= ends[part] for part in parts):
                        self._caught_up.set()
                    for part, records in consumer.poll(POLL_MS).items():
                        self.take(part.topic, [record.value for record in records])
        except Exception as e:  # noqa: BLE001 - the end of the thread: the streams tell it
            self.error = e
            self._wake(list(self._streams))

    def take(self, topic: str, values: Iterable[bytes | None]) -> None:
        """Apply records, and wake the streams whose sections they change."""
        with self._lock:
            changed = set().union(*(self.state.apply(topic, value) for value in values))
            woken = []
            for stream in self._streams:
                due = {section for section in changed if stream.wants(section)}
                if due - stream.due:
                    stream.due |= due
                    woken.append(stream)
        self._wake(woken)

    @staticmethod
    def _wake(streams: Iterable[Stream]) -> None:
        for stream in streams:
            stream.loop.call_soon_threadsafe(stream.woken.set)

    @property
    def is_full(self) -> bool:
        """True when no further stream may begin."""
        return len(self._streams) >= STREAMS_MAX

    @contextmanager
    def _stream(self, sections: frozenset[str]) -> Iterator[Stream]:
        stream = Stream(sections, asyncio.get_running_loop())
        with self._lock:
            stream.due = {s for s in sections if not s.endswith(":")}
            if "track:" in sections:
                stream.due |= {f"track:{identity}" for identity in self.state.tracks}
            self._streams.add(stream)
        stream.woken.set()
        try:
            yield stream
        finally:
            with self._lock:
                self._streams.discard(stream)

    def _take_due(self, stream: Stream) -> str:
        with self._lock:
            due, stream.due = sorted(stream.due), set()
            bodies = {section: self.state.body(section) for section in due}
        return json.dumps(bodies, ensure_ascii=False, separators=(",", ":"))

    async def events(self, sections: frozenset[str]) -> AsyncIterator[str]:
        """Server-sent events: the page's sections at first, then those that change."""
        yield "retry: 1000\n\n"
        with self._stream(sections) as stream:
            while not self._stopping.is_set():
                try:
                    await asyncio.wait_for(stream.woken.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                stream.woken.clear()
                if self.error is not None:
                    text = json.dumps({"error": str(self.error)})
                    yield f"event: lost\ndata: {text}\n\n"
                    return
                yield f"data: {self._take_due(stream)}\n\n"
                await asyncio.sleep(SEND_EVERY_S)
