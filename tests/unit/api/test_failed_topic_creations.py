"""Failed topic creations are remembered for a while, and not without bound."""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater.testing.clocks import ManualClock
from headwater_broker.api.failed_topic_creations import KEPT_S, NAMES_MAX, FailedTopicCreations

WIDE = ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_failure_is_forgotten_after_a_while() -> None:
    failures, clock = FailedTopicCreations(), ManualClock()
    failures.put("t", WIDE, clock)
    clock.advance(int(KEPT_S * 1000) - 1)
    assert (failures.find("t", clock), failures.find("u", clock)) == (WIDE, None)
    clock.advance(1)
    assert failures.find("t", clock) is None


def test_what_may_pass_by_itself_is_not_kept_and_voids_what_was() -> None:
    failures, clock = FailedTopicCreations(), ManualClock()
    for code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.TOPIC_ALREADY_EXISTS):
        failures.put("t", WIDE, clock)
        failures.put("t", code, clock)
        assert failures.find("t", clock) is None


def test_of_too_many_the_oldest_go_first() -> None:
    failures, clock = FailedTopicCreations(), ManualClock()
    for number in range(NAMES_MAX + 1):
        failures.put(f"t{number}", WIDE, clock)
    assert failures.find("t0", clock) is None
    assert failures.find("t1", clock) is WIDE and failures.find(f"t{NAMES_MAX}", clock) is WIDE
