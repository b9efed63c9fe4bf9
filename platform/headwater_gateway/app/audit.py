"""Audit lines of what the gateway was asked to change, as the brokers write theirs."""

from __future__ import annotations

import logging
from collections import deque
from typing import NamedTuple

from headwater.clock import Clock
from headwater_gateway.app.login import Login

AUDIT_LOGGER = "headwater.audit"
LINES_KEPT = 1_000
WHAT_CHARS_MAX = 500

logger = logging.getLogger(AUDIT_LOGGER)


class AuditLine(NamedTuple):
    """One change that was asked for."""

    at_ms: int
    principal: str
    host: str
    what: str
    outcome: str

    def __str__(self) -> str:
        return (
            f"Principal = {self.principal} asked the gateway: {self.what} "
            f"from host = {self.host}: {self.outcome}"
        )


class Audit:
    """Writes lines to the log, and keeps the last ones for the console."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: deque[AuditLine] = deque(maxlen=LINES_KEPT)

    def wrote(self, login: Login, host: str, what: str, outcome: str = "done") -> None:
        """Note a change; `what`: method and path, or a sentence."""
        line = AuditLine(
            self._clock.now_ms(),
            _escaped(login.principal),
            _escaped(host),
            _escaped(what[:WHAT_CHARS_MAX]),
            _escaped(outcome),
        )
        self._lines.append(line)
        logger.info("%s", line)

    def recent(self) -> list[AuditLine]:
        """The last lines, newest first."""
        return list(reversed(self._lines))


def _escaped(text: str) -> str:
    """Text of a client without control characters: it cannot forge a line."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
