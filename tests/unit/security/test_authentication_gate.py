"""The authentication gate: which requests pass it, when it opens and when it shuts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import AllowAll, Principal
from headwater_broker.security.authentication_gate import AuthenticationGate, GateActions
from headwater_broker.security.session import Session

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")


class Timers:
    """Calls that are due later: made by `fire`."""

    def __init__(self) -> None:
        self.due: list[DueCall] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> DueCall:
        call = DueCall(self, delay_s, callback)
        self.due.append(call)
        return call

    def fire(self) -> None:
        (call,) = self.due
        self.due.clear()
        call.callback()


class DueCall:
    def __init__(self, timers: Timers, delay_s: float, callback: Callable[[], None]) -> None:
        self.delay_s = delay_s
        self.callback = callback
        self._timers = timers

    def cancel(self) -> None:
        if self in self._timers.due:
            self._timers.due.remove(self)


class Gated:
    """A session behind a gate, and what its connection serves."""

    def __init__(self) -> None:
        self.serves = "everything"
        self.timers = Timers()
        self.gate = AuthenticationGate(
            GateActions(
                serve_all=lambda: self.now_serves("everything"),
                serve_authentication=lambda: self.now_serves("authentication"),
                serve_tokens=lambda exchange: self.now_serves("tokens"),
                close_after_reply=self.now_serves,
                call_later=self.timers.call_later,
            )
        )
        self.session = Session(AllowAll(), listener="SASL_SSL", host="10.0.0.1", gate=self.gate)

    def now_serves(self, what: str) -> None:
        self.serves = what


def test_a_gate_is_shut_until_the_session_is_authenticated() -> None:
    gated = Gated()
    assert gated.serves == "authentication" and not gated.gate.is_open
    gated.session.authenticate(ALICE)
    assert gated.serves == "everything" and gated.gate.is_open
    assert gated.session.principal == ALICE
    assert not gated.timers.due, "for good"


def test_a_gate_shuts_when_the_lifetime_of_the_session_is_over() -> None:
    gated = Gated()
    gated.session.authenticate(ALICE, lifetime_ms=1500)
    (timer,) = gated.timers.due
    assert timer.delay_s == 1.5
    gated.timers.fire()
    assert gated.serves == "authentication" and not gated.gate.is_open


def test_a_re_authentication_shuts_the_gate_and_begins_a_new_lifetime() -> None:
    gated = Gated()
    gated.session.authenticate(ALICE, lifetime_ms=1000)
    gated.gate.shut()
    assert gated.serves == "authentication"
    assert not gated.timers.due, "the old lifetime does not end the new one"
    gated.session.authenticate(ALICE, lifetime_ms=2000)
    assert [timer.delay_s for timer in gated.timers.due] == [2.0]
    gated.session.authenticate(ALICE)
    assert not gated.timers.due


def test_a_re_authentication_cannot_change_the_principal() -> None:
    """As in Kafka: what is parked was allowed to the first one."""
    gated = Gated()
    gated.session.authenticate(ALICE, lifetime_ms=1000)
    gated.gate.shut()
    with pytest.raises(KafkaError, match="User:alice cannot become User:bob") as caught:
        gated.session.authenticate(BOB)
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert gated.serves == "authentication" and gated.session.principal == ALICE


def test_bare_tokens_are_read_until_the_gate_opens() -> None:
    async def exchange(token: bytes) -> bytes:
        return token

    gated = Gated()
    gated.gate.read_tokens(exchange)
    assert gated.serves == "tokens"
    gated.session.authenticate(ALICE)
    assert gated.serves == "everything"


def test_a_failed_authentication_closes_the_connection() -> None:
    gated = Gated()
    gated.session.authenticate(ALICE, lifetime_ms=1000)
    gated.gate.refuse("wrong password")
    assert gated.serves == "wrong password" and not gated.gate.is_open
    assert not gated.timers.due, "a connection that closes serves nothing again"


def test_a_connection_that_is_gone_leaves_no_timer() -> None:
    gated = Gated()
    gated.session.authenticate(ALICE, lifetime_ms=1000)
    gated.gate.discard()
    assert not gated.timers.due


def test_a_session_without_a_gate_is_authenticated_by_its_transport() -> None:
    """A TLS client certificate names the principal; nothing has to open."""
    session = Session(AllowAll(), listener="SSL")
    session.authenticate(ALICE)
    assert session.principal == ALICE and session.gate is None
