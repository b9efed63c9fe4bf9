"""Why topics could not be created on demand: told to those who ask for their metadata again."""

from __future__ import annotations

from headwater.clock import Clock
from headwater.errors import ErrorCode

TOLD_FOR_S = 3.0
"""Longer than a client's pause between two looks; then the topic is tried again."""
NAMES_MAX = 1_000


class RefusedTopics:
    """Codes by topic name, forgotten after TOLD_FOR_S; of too many, the oldest go first."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[float, ErrorCode]] = {}

    def put(self, name: str, code: ErrorCode, clock: Clock) -> None:
        """The controller refused to create `name`. What may end well by itself is not kept."""
        self._rows.pop(name, None)
        if code.retriable or code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return
        if len(self._rows) >= NAMES_MAX:
            del self._rows[next(iter(self._rows))]
        self._rows[name] = (clock.monotonic() + TOLD_FOR_S, code)

    def find(self, name: str, clock: Clock) -> ErrorCode | None:
        """Why `name` was refused just now; None: it was not."""
        until, code = self._rows.get(name, (0.0, ErrorCode.NONE))
        if clock.monotonic() < until:
            return code
        self._rows.pop(name, None)
        return None
