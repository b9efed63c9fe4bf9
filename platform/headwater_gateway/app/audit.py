"""Audit lines of what the gateway was asked to change, as the brokers write theirs."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from typing import NamedTuple

from headwater.clock import Clock
from headwater_gateway.app.login import Login

AUDIT_LOGGER = "headwater.audit"
LINES_KEPT = 1_000
WHAT_CHARS_MAX = 500
NAME_CHARS_MAX = 200
"""Of a principal, and of a host as a proxy tells it; a longer one ends with its digest."""
REFUSED_S = 1.0
"""Refused logins have one line in this time."""

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
        self._refused = 0
        self._refused_again_s = clock.monotonic()

    def wrote(self, login: Login, host: str, what: str, outcome: str = "done") -> None:
        """Note a change; `what`: method and path, or a sentence."""
        line = AuditLine(
            self._clock.now_ms(),
            principal_of(login),
            _named(host),
            _escaped(what[:WHAT_CHARS_MAX]),
            _escaped(outcome),
        )
        self._lines.append(line)
        logger.info("%s", line)

    def login_refused(self, login: Login, host: str) -> None:
        """Note a login that the brokers refuse: a line a second, with a count. It is nobody's
        change: the console's lines have no place for it, or who tries passwords would fill them."""
        now = self._clock.monotonic()
        if now < self._refused_again_s:
            self._refused += 1
            return
        more, self._refused = self._refused, 0
        self._refused_again_s = now + REFUSED_S
        logger.info(
            "Principal = %s was refused a login at the gateway from host = %s%s",
            principal_of(login),
            _named(host),
            f" ({more} more logins were refused before)" if more else "",
        )

    def recent(self) -> list[AuditLine]:
        """The last lines, newest first."""
        return list(reversed(self._lines))


def principal_of(login: Login) -> str:
    """The user as lines name it."""
    return _named(login.principal)


def _named(text: str) -> str:
    if len(text) > NAME_CHARS_MAX:
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
        text = f"{text[:NAME_CHARS_MAX]}...{digest}"
    return _escaped(text)


def _escaped(text: str) -> str:
    """Text of a client without control characters: it cannot forge a line."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
