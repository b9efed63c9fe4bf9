"""Why automatic topic creations failed: the answer to the next requests for their metadata."""

from __future__ import annotations

from headwater.clock import Clock
from headwater.errors import ErrorCode

KEPT_S = 3.0
"""Longer than a client's pause between two metadata requests; then the creation is tried again."""
NAMES_MAX = 1_000


class FailedTopicCreations:
    """Error codes by topic name, forgotten after KEPT_S; of too many, the oldest go first."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[float, ErrorCode]] = {}

    def put(self, name: str, code: ErrorCode, clock: Clock) -> None:
        """The controller refused to create `name`. Errors that may pass by themselves are not
        kept."""
        self._rows.pop(name, None)
        if code.retriable or code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return
        if len(self._rows) >= NAMES_MAX:
            del self._rows[next(iter(self._rows))]
        self._rows[name] = (clock.monotonic() + KEPT_S, code)

    def find(self, name: str, clock: Clock) -> ErrorCode | None:
        """Why the last creation of `name` failed; None if it did not."""
        until, code = self._rows.get(name, (0.0, ErrorCode.NONE))
        if clock.monotonic() < until:
            return code
        self._rows.pop(name, None)
        return None
