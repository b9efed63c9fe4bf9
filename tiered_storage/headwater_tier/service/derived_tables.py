"""Keeps the derived tables of the service's topics (typed, quarantine, latest), in its own thread.

One bounded turn per topic and round, so that a topic with a long history to decode delays others
by a turn only. Whatever goes wrong here is counted and reported, and never stops the log's tiering.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater_tier.kernels import KERNELS, Kernels
from headwater_tier.service.schedule import BACK_OFF_S
from headwater_tier.service.status import DerivedStatus
from headwater_tier.service.table_thread import Committed, Opened
from headwater_tier.service.topic_finder import TieredTopic
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.decoding import SchemaSource
from headwater_tier.typed.follow_log import FollowResult, follow_topic
from headwater_tier.typed.tables_state import TypedState, typed_state

logger = logging.getLogger(__name__)

FORMAT_KEY = "headwater.value.format"
LAGGING_EVERY_S = 5.0
"""A topic whose derived tables are behind is followed again without a commit."""
WAKE_S = 1.0
State = Callable[[TableLocation], TypedState | None]
Follow = Callable[[TableLocation, Mapping[str, str], SchemaSource, Clock], FollowResult]


@dataclass(slots=True)
class _Followed:
    """One topic with a declared format."""

    topic: TieredTopic
    is_dirty: bool = True
    """The log table has a version that was not followed yet."""
    followed_at: float = float("-inf")
    failures: int = 0
    retry_at: float = float("-inf")
    error: str = ""
    rows: int = 0
    quarantined: int = 0
    merged: int = 0
    result: FollowResult | None = None

    def is_due(self, now: float) -> bool:
        """True when its next turn may begin."""
        if now < self.retry_at:
            return False
        if self.is_dirty or self.result is None or self.result.behind:
            return True
        return self._is_lagging(self.result) and now - self.followed_at >= LAGGING_EVERY_S

    def _is_lagging(self, result: FollowResult) -> bool:
        latest = result.latest.behind if result.latest else 0
        return bool(result.quarantine_behind or latest or result.latest_problem)


class DerivedTables:
    """A `service.Observer`. Its thread runs from `start` to `close`."""

    def __init__(
        self,
        schemas: SchemaSource,
        clock: Clock,
        follow: Follow = follow_topic,
        state: State = typed_state,
        kernels: Kernels = KERNELS,
    ) -> None:
        """`follow`, `state` and `kernels` are for tests."""
        self._kernels = kernels
        self._state = state
        self._schemas = schemas
        self._clock = clock
        self._follow = follow
        self._lock = threading.Lock()
        self._followed: dict[TableLocation, _Followed] = {}
        self._by_topic: dict[str, TableLocation] = {}
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tier-derived", daemon=True)

    def opened(self, topic: TieredTopic, event: Opened) -> None:
        """The topic's declaration may have changed, too."""
        self._note(topic, event.location)

    def committed(self, topic: TieredTopic, event: Committed) -> None:
        """There are rows to decode."""
        self._note(topic, event.location)

    def log_starts(self, topic: TieredTopic, starts: dict[int, int]) -> None:
        """Derived tables keep the rows that they have."""

    def dropped(self, location: TableLocation) -> None:
        """Forget the topic."""
        with self._lock:
            self._followed.pop(location, None)
            self._by_topic = {n: at for n, at in self._by_topic.items() if at != location}

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End after the turn at hand."""
        self._stop.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def is_idle(self) -> bool:
        """True when no table has more to decode now, or all that have failed."""
        now = self._clock.monotonic()
        with self._lock:
            return not any(f.is_due(now) for f in self._followed.values())

    def problems(self) -> dict[str, str]:
        """Topic -> why its derived tables lag."""
        with self._lock:
            return {f.topic.topic.name: p for f in self._followed.values() if (p := _problem(f))}

    def status(self, topic: str, ends: Mapping[int, int]) -> Mapping[str, DerivedStatus]:
        """The status of a topic's derived tables, by their suffix; none without a format.

        `ends` are the last stable offsets: what came after the last turn counts as behind.
        """
        with self._lock:
            at = self._by_topic.get(topic)
            followed = self._followed.get(at) if at is not None else None
            if followed is None:
                return {}
            return _statuses(followed, ends)

    def round(self) -> bool:
        """One turn for each topic that is due; False if none was."""
        now = self._clock.monotonic()
        with self._lock:
            due = [f for f in self._followed.values() if f.is_due(now)]
        for followed in sorted(due, key=lambda f: f.followed_at):
            if self._stop.is_set():
                break
            self._turn(followed)
        return bool(due)

    def _note(self, topic: TieredTopic, location: TableLocation) -> None:
        with self._lock:
            if not topic.declared.get(FORMAT_KEY):
                self._followed.pop(location, None)
                return
            if self._thread.ident is not None:
                self._kernels.compile_aside()
            followed = self._followed.setdefault(location, _Followed(topic))
            if followed.topic.declared != topic.declared:
                followed.failures, followed.retry_at = 0, float("-inf")
            followed.topic, followed.is_dirty = topic, True
            self._by_topic[topic.topic.name] = location
        self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self.round():
                self._wake.wait(WAKE_S)
            self._wake.clear()

    def _turn(self, followed: _Followed) -> None:
        topic = followed.topic
        if topic.location is None:
            return
        with self._lock:
            followed.is_dirty = False
        try:
            result = self._follow(topic.location, topic.declared, self._schemas, self._clock)
            former = self._state(topic.location) if followed.result is None else None
        except BaseException as error:  # noqa: BLE001 - deltalake's panics are no Exceptions
            self._failed(followed, error)
            return
        with self._lock:
            followed.followed_at = self._clock.monotonic()
            followed.failures, followed.error, followed.result = 0, "", result
            if former is not None:  # the first turn: it counts what others have written, too
                followed.rows, followed.quarantined = former.rows, former.quarantined
            else:
                followed.rows += result.rows
                followed.quarantined += result.quarantined
            followed.merged += result.latest.changed if result.latest else 0
            _take_held(followed, result.held)

    def _failed(self, followed: _Followed, error: BaseException) -> None:
        now = self._clock.monotonic()
        text = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, HeadwaterError | OSError):
            logger.exception("the derived tables of %s failed", followed.topic.topic.name)
        elif text != followed.error:
            logger.warning("the derived tables of %s wait: %s", followed.topic.topic.name, text)
        with self._lock:
            pause = BACK_OFF_S[min(followed.failures, len(BACK_OFF_S) - 1)]
            followed.failures += 1
            followed.followed_at, followed.retry_at = now, now + pause
            followed.is_dirty, followed.error = True, text


def _take_held(followed: _Followed, held: Mapping[str, int]) -> None:
    """Counts the rows that the tables hold, whoever wrote them, rather than those of this run."""
    followed.rows = held.get("typed", followed.rows)
    followed.quarantined = held.get("quarantine", followed.quarantined)
    followed.merged = held.get("latest", followed.merged)


def _problem(followed: _Followed) -> str:
    result = followed.result
    if followed.error or result is None:
        return followed.error
    return result.problem or result.quarantine_problem or result.latest_problem


def _statuses(followed: _Followed, ends: Mapping[int, int]) -> dict[str, DerivedStatus]:
    result = followed.result
    if result is None:
        return {"typed": DerivedStatus(None, None, followed.error)}
    seen = result.log_ends
    typed_behind = result.behind + sum(max(0, end - seen.get(p, 0)) for p, end in ends.items())
    error = followed.error or result.problem
    found = {"typed": DerivedStatus(followed.rows, typed_behind, error)}
    if followed.quarantined or result.quarantine_behind or result.quarantine_problem:
        behind = typed_behind + result.quarantine_behind
        found["quarantine"] = DerivedStatus(followed.quarantined, behind, result.quarantine_problem)
    if result.latest is not None or result.latest_problem:
        behind = typed_behind + (result.latest.behind if result.latest else 0)
        found["latest"] = DerivedStatus(followed.merged, behind, result.latest_problem)
    return found
