"""One HTTPS request, for the keys and tokens of OAuth: no redirects, bounded answers.

The URL comes from a configuration, never from a peer or a token: so nobody else chooses where a
broker or client connects to (CVE-2025-27817).
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from headwater.errors import HeadwaterError, UsageError

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 256 * 1024


class HttpsError(HeadwaterError):
    """The server did not answer as it should. The message names the URL, and no secret."""


def check_https_url(key: str, url: str) -> None:
    """Raises UsageError that names the key of this URL, unless it is one for `https_request`."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme == "https" and parts.hostname and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise UsageError(f"{key} {url[:200]!r}: use https://host/path, or file:///path")
    if "@" in parts.netloc:
        raise UsageError(f"{key}: the URL has a user name; leave it out")


def https_request(
    url: str,
    context: ssl.SSLContext,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """GET, or POST of `body`; the answer of status 200. It blocks. Raises HttpsError."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=TIMEOUT_S, context=context
    )
    try:
        method = "GET" if body is None else "POST"
        connection.request(method, path, body, {"Accept": "application/json", **(headers or {})})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise HttpsError(f"{_shown(url)} answers with status {answer.status}, not 200")
        data = answer.read(ANSWER_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        raise HttpsError(f"{_shown(url)} cannot be read: {error!r}") from error
    finally:
        connection.close()
    if len(data) > ANSWER_BYTES_MAX:
        raise HttpsError(f"{_shown(url)} answers with more than {ANSWER_BYTES_MAX} bytes")
    return data


def _shown(url: str) -> str:
    return url.partition("?")[0]
