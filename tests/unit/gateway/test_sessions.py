"""Sessions: bounded in number, and one user cannot end those of another."""

from __future__ import annotations

from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_gateway.app.login import Login, LoginKind
from headwater_gateway.app.sessions import SESSIONS_MAX, SESSIONS_OF_ONE_MAX, Sessions


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
