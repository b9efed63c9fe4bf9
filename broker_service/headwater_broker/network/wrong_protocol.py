"""Hints for clients that speak TLS where there is none, or none where there is TLS.

Kafka logs such a client as a frame of 369 MB, or as a broken handshake, and says no more. A client
tries again for ever, so a listener writes one hint a second.
"""

from __future__ import annotations

import logging
from typing import ClassVar

from headwater.clock import Clock
from headwater.security.protocol import SecurityProtocol
from headwater_broker.api.replies import CloseConnectionError

HANDSHAKE_RECORD = 0x16
"""First byte of a TLS client."""
TLS_VERSION = 3
"""Second byte of every version since SSL 3.0."""
HINT_INTERVAL_S = 1.0

logger = logging.getLogger(__name__)


class TlsClientError(CloseConnectionError):
    """The client begins a TLS handshake on a listener without TLS."""


def is_client_hello(size: int) -> bool:
    """Whether the size of a frame is the head of a TLS record: no request is so long."""
    return size >> 16 == HANDSHAKE_RECORD << 8 | TLS_VERSION


class WrongProtocolHints:
    """The hints of one listener."""

    REMEDY: ClassVar[str] = "set security.protocol=%s in the client, or use another listener"

    def __init__(self, listener: str, protocol: SecurityProtocol, clock: Clock) -> None:
        self._listener = listener
        self._protocol = protocol
        self._clock = clock
        self._written_s: float | None = None
        self._unwritten = 0

    def speaks_tls(self, host: str) -> None:
        """A client began a TLS handshake on a listener without TLS."""
        self._hint(host, "speaks TLS, which listener %s has not")

    def speaks_plaintext(self, host: str) -> None:
        """A client sent bytes that are no TLS to a listener with TLS."""
        self._hint(host, "does not speak TLS, which listener %s needs")

    def _hint(self, host: str, what: str) -> None:
        now_s = self._clock.monotonic()
        if self._written_s is not None and now_s - self._written_s < HINT_INTERVAL_S:
            self._unwritten += 1
            return
        more = f" ({self._unwritten} connections more since the last line)"
        text = f"client %s {what}: {self.REMEDY}{more if self._unwritten else ''}"
        self._written_s, self._unwritten = now_s, 0
        logger.warning(text, host, self._listener, self._protocol.name)
