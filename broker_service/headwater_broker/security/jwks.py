"""The keys that sign OAuth tokens (`sasl.oauthbearer.jwks.endpoint.url`), kept up to date.

They are read at the start, at intervals, and at once when a token names an unknown key; the last at
most once a minute, as anybody can send such tokens. Old keys stay while new ones cannot be read.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headwater.clock import Clock
from headwater.errors import HeadwaterError, UsageError
from headwater.security.https_request import ANSWER_BYTES_MAX, check_https_url, https_request
from headwater_broker.security.jwt_validation import VerificationKeys

URL = "sasl.oauthbearer.jwks.endpoint.url"
UNKNOWN_KEY_PAUSE_S = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshTimes:
    """`sasl.oauthbearer.jwks.endpoint.*` in seconds."""

    interval_s: float = 3_600.0
    backoff_s: float = 0.1
    backoff_max_s: float = 10.0


def key_reader(url: str, context: Callable[[], ssl.SSLContext]) -> Callable[[], bytes]:
    """Reads the key set at `url`; it blocks. Raises UsageError for another URL than https and
    file."""
    if urlsplit(url).scheme == "file":
        path = Path(unquote(urlsplit(url).path))
        return lambda: _file(path)
    check_https_url(f"config {URL}:", url)
    settings = context()
    return lambda: https_request(url, settings)


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(ANSWER_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"config {URL}: {path} cannot be read: {error.strerror}") from None
    if len(data) > ANSWER_BYTES_MAX:
        raise UsageError(f"config {URL}: {path} has more than {ANSWER_BYTES_MAX} bytes")
    return data


class Jwks:
    """The present keys of one listener's issuer."""

    def __init__(self, read: Callable[[], bytes], times: RefreshTimes, clock: Clock) -> None:
        """Read the keys. It blocks. Raises UsageError when there are none."""
        self._read = read
        self._times = times
        self._clock = clock
        try:
            self.keys = VerificationKeys(read())
        except HeadwaterError as error:
            told = str(error).removeprefix(f"config {URL}: ")
            raise UsageError(f"config {URL}: no keys: {told}") from error
        self._failures = 0
        self._due_s = clock.monotonic() + times.interval_s
        self._unknown_due_s = clock.monotonic()
        self._reading: asyncio.Task[None] | None = None

    def refresh_if_due(self) -> None:
        """Begin to read the keys anew when the interval is over; nobody waits for it."""
        if self._clock.monotonic() >= self._due_s:
            self._begin()

    async def refresh_for_unknown_key(self) -> bool:
        """Read the keys anew, for a token whose key is unknown; False: not yet again."""
        now_s = self._clock.monotonic()
        if now_s < self._unknown_due_s:
            return False
        self._unknown_due_s = now_s + UNKNOWN_KEY_PAUSE_S
        await asyncio.shield(self._begin())
        return True

    def _begin(self) -> asyncio.Task[None]:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._refresh())
        return self._reading

    async def _refresh(self) -> None:
        try:
            self.keys = VerificationKeys(await asyncio.to_thread(self._read))
        except HeadwaterError as error:
            pause_s = min(self._times.backoff_s * 2**self._failures, self._times.backoff_max_s)
            self._failures = min(self._failures + 1, 30)
            self._due_s = self._clock.monotonic() + pause_s
            logger.warning("the keys of OAuth tokens stay as they are: %s", error)
        else:
            self._failures = 0
            self._due_s = self._clock.monotonic() + self._times.interval_s
