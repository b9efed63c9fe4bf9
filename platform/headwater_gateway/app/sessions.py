"""Sessions of the console: a cookie stands for a login, for 30 minutes past the last request, and
for a lifetime in all: then the user logs in again, however busy the page is.

The cookie is HttpOnly and SameSite=Strict. Over TLS its name begins with `__Host-`, so that no
other host or path can set it; browsers refuse that name over plain HTTP, which only loopback has.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from dataclasses import dataclass, field

from starlette.responses import Response

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater_gateway.app.login import Login, LoginKind

SESSION_S = 30 * 60
LIFETIME_S = 12 * 3600.0
SESSIONS_MAX = 1_000
SESSIONS_OF_ONE_MAX = 50
"""Of one user: one that logs in again and again ends its own sessions, not those of others."""
COOKIE = "headwater-session"
SECURE_COOKIE = f"__Host-{COOKIE}"


@dataclass(slots=True)
class Session:
    """A browser that has logged in."""

    login: Login
    csrf: str
    """Writes send it as `X-CSRF-Token`; pages have it, other sites do not."""
    cookie: str = field(repr=False)
    until_s: float
    end_s: float
    """It ends then, used or not."""

    def accepts(self, token: str) -> bool:
        """Compares in constant time."""
        return hmac.compare_digest(self.csrf.encode(), token.encode(errors="replace"))


class Sessions:
    """The sessions of this process; a restart ends them."""

    def __init__(
        self, clock: Clock, entropy: Entropy, *, is_secure: bool, lifetime_s: float = LIFETIME_S
    ) -> None:
        """`is_secure`: browsers reach the gateway over TLS. `lifetime_s`: of a session, used or
        not."""
        self._clock = clock
        self._lifetime_s = lifetime_s
        self._entropy = entropy
        self._is_secure = is_secure
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    @property
    def cookie_name(self) -> str:
        """The name of the cookie."""
        return SECURE_COOKIE if self._is_secure else COOKIE

    def begin(self, login: Login) -> Session:
        """A new session; the oldest ends when there are too many, or too many of this user. The
        caller has checked the login, as by `ClientPools.lease`."""
        cookie, csrf = self._entropy.randbytes(32).hex(), self._entropy.randbytes(32).hex()
        now = self._clock.monotonic()
        end_s = now + self._lifetime_s
        session = Session(login, csrf, cookie, min(now + SESSION_S, end_s), end_s)
        self._sessions[_key(cookie)] = session
        own = [key for key, known in self._sessions.items() if known.login.name == login.name]
        if len(own) > SESSIONS_OF_ONE_MAX and login.kind is not LoginKind.ANONYMOUS:
            del self._sessions[own[0]]
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return session

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie, if it is not over; it lives on for `SESSION_S`, and not past its
        lifetime."""
        key, now = _key(cookie), self._clock.monotonic()
        session = self._sessions.get(key)
        if session is None:
            return None
        if now >= session.until_s:
            del self._sessions[key]
            return None
        session.until_s = min(now + SESSION_S, session.end_s)
        self._sessions.move_to_end(key)
        return session

    def end(self, session: Session) -> None:
        """Log out."""
        self._sessions.pop(_key(session.cookie), None)

    def set_cookie(self, response: Response, session: Session) -> None:
        """Give the session's cookie to the browser."""
        response.set_cookie(
            self.cookie_name,
            session.cookie,
            path="/",
            secure=self._is_secure,
            httponly=True,
            samesite="strict",
        )

    def clear_cookie(self, response: Response) -> None:
        """Take it back."""
        response.delete_cookie(
            self.cookie_name,
            path="/",
            secure=self._is_secure,
            httponly=True,
            samesite="strict",
        )


def _key(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode(errors="replace")).digest()
