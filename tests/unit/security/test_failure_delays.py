"""The delay of failed authentications: it doubles per address, is bounded, and is forgiven."""

from __future__ import annotations

from headwater.testing.clocks import ManualClock
from headwater_broker.security.failure_delays import (
    DELAY_MAX_S,
    FORGIVEN_AFTER_S,
    HOSTS_MAX,
    FailureDelays,
)


def test_it_doubles_for_each_address_up_to_three_seconds() -> None:
    delays = FailureDelays(ManualClock(), 100)
    assert [delays.failed("a") for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0]
    assert delays.failed("b") == 0.1
    assert DELAY_MAX_S == 3.0


def test_a_minute_without_a_failure_forgives() -> None:
    clock = ManualClock()
    delays = FailureDelays(clock, 100)
    delays.failed("a")
    clock.advance(int(FORGIVEN_AFTER_S * 1000) + 1)
    assert delays.failed("a") == 0.1


def test_a_longer_configured_delay_stays() -> None:
    delays = FailureDelays(ManualClock(), 8_000)
    assert delays.failed("a") == delays.failed("a") == 8.0


def test_memory_is_bounded() -> None:
    delays = FailureDelays(ManualClock(), 100)
    for number in range(HOSTS_MAX + 5):
        delays.failed(str(number))
    assert delays.failed("0") == 0.1
    assert delays.failed(str(HOSTS_MAX)) == 0.2
