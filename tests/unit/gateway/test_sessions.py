"""Sessions: bounded in number, and one user cannot end those of another."""

from __future__ import annotations

from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_gateway.app.login import Login, LoginKind
from headwater_gateway.app.sessions import (
    LIFETIME_S,
    SESSION_S,
    SESSIONS_MAX,
    SESSIONS_OF_ONE_MAX,
    Sessions,
)


def new_sessions() -> Sessions:
    return Sessions(ManualClock(), SeededEntropy(), is_secure=True)


def test_a_user_that_logs_in_without_end_ends_its_own_sessions() -> None:
    sessions = new_sessions()
    alice = sessions.begin(Login("alice", LoginKind.PASSWORD, "a"))
    first = sessions.begin(Login("mallory", LoginKind.PASSWORD, "m"))
    for _ in range(SESSIONS_MAX):
        last = sessions.begin(first.login)
    assert sessions.find(alice.cookie) is alice
    assert sessions.find(first.cookie) is None and sessions.find(last.cookie) is last


def test_without_logins_all_are_one_user() -> None:
    sessions = new_sessions()
    first = sessions.begin(Login.anonymous())
    for _ in range(SESSIONS_OF_ONE_MAX + 1):
        sessions.begin(Login.anonymous())
    assert sessions.find(first.cookie) is first


def test_a_session_that_is_always_used_ends_with_its_lifetime() -> None:
    clock = ManualClock()
    sessions = Sessions(clock, SeededEntropy(), is_secure=True)
    session = sessions.begin(Login("alice", LoginKind.PASSWORD, "a"))
    for _ in range(round(LIFETIME_S / (SESSION_S / 2)) - 1):
        clock.advance(SESSION_S * 500)
        assert sessions.find(session.cookie) is session
    clock.advance(SESSION_S * 500)
    assert sessions.find(session.cookie) is None


def test_a_session_that_nobody_uses_ends_before_its_lifetime() -> None:
    clock = ManualClock()
    sessions = Sessions(clock, SeededEntropy(), is_secure=True)
    session = sessions.begin(Login.anonymous())
    clock.advance(SESSION_S * 1000)
    assert sessions.find(session.cookie) is None


def test_a_lifetime_below_the_idle_time_is_kept() -> None:
    clock = ManualClock()
    sessions = Sessions(clock, SeededEntropy(), is_secure=True, lifetime_s=60.0)
    session = sessions.begin(Login.anonymous())
    clock.advance(59_000)
    assert sessions.find(session.cookie) is session
    clock.advance(1_000)
    assert sessions.find(session.cookie) is None
