"""The bearer token of an HTTP port (RFC 6750), in a file that may change while the port is open."""

from __future__ import annotations

import hmac
import logging
from pathlib import Path

from headwater.errors import UsageError

CHARS_MIN = 16
BEARER = "bearer "

logger = logging.getLogger(__name__)


class TokenFile:
    """The token in a file, read again when the file changes."""

    def __init__(self, key: str, path: str) -> None:
        """`key`: the config that names the file, for errors. Raises UsageError."""
        self._key = key
        self._path = Path(path)
        self._token = read_token(key, self._path)
        self._read_at = -1

    def __call__(self) -> str:
        """The token now; the last one while the file cannot be read."""
        try:
            changed_at = self._path.stat().st_mtime_ns
            if changed_at != self._read_at:
                self._token, self._read_at = read_token(self._key, self._path), changed_at
        except (OSError, UsageError) as error:
            logger.warning("config %s: the former token stays: %s", self._key, error)
        return self._token


def read_token(key: str, path: Path) -> str:
    """The token in the file that `key` names. Raises UsageError."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"config {key}: cannot read {path}: {reason}") from None
    if len(token) < CHARS_MIN:
        raise UsageError(f"config {key}: the token in {path} has fewer than {CHARS_MIN} characters")
    return token


def shows(authorization: str, token: str) -> bool:
    """True if an Authorization header shows this token, which is not empty."""
    shown = authorization[len(BEARER) :].strip().encode()
    is_bearer = authorization[: len(BEARER)].lower() == BEARER
    return bool(token) and is_bearer and hmac.compare_digest(shown, token.encode())
