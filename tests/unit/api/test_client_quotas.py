"""Client quotas: measured rates and throttle times, on a manual clock."""

from __future__ import annotations

from headwater.testing.clocks import ManualClock
from headwater_broker.network.connection_quotas import ConnectionRates
from headwater_broker.quota.client_quotas import ClientQuotas, QuotaLimit
from headwater_broker.quota.rate import Windows

PRODUCE, REQUEST = "producer_byte_rate", "request_percentage"


def quotas(**stored: dict[str, str]) -> tuple[ClientQuotas, ManualClock]:
    clock = ManualClock()
    made = ClientQuotas(clock, Windows(11, 1.0))
    made.update({path.replace("_", "/", 1): row for path, row in stored.items()})
    return made, clock


def produce_limit(made: ClientQuotas, client: str, user: str = "ANONYMOUS") -> QuotaLimit:
    limit = made.of(user, client).produce
    assert limit is not None
    return limit


def test_who_exceeds_the_rate_waits_until_it_is_down_again() -> None:
    made, clock = quotas(clients_app={PRODUCE: "100"})
    limit = produce_limit(made, "app")
    assert limit.record(1000) == 0  # ten windows' worth, after a silence
    assert limit.record(500) == 5000
    clock.advance(5_000)
    assert limit.record(0) == 5000  # the windows are those of a full span from the start
    clock.advance(5_000)
    assert limit.record(0) == 5000
    clock.advance(1_000)
    assert limit.record(1) == 0  # the first window is forgotten


def test_the_rate_holds_in_the_long_run() -> None:
    """Whoever waits as told passes what the quota says, whatever he sends at once."""
    made, clock = quotas(clients_app={PRODUCE: "100"})
    limit = produce_limit(made, "app")
    passed = 0.0
    began = clock.monotonic()
    while clock.monotonic() - began < 600:
        passed += 170
        clock.advance(limit.record(170) + 10)
    assert 95 < passed / (clock.monotonic() - began) < 105


def test_clients_of_a_default_are_measured_apart_and_those_of_a_user_together() -> None:
    made, _ = quotas(**{"clients_<default>": {PRODUCE: "100"}})
    assert produce_limit(made, "a").record(5000) > 0
    assert produce_limit(made, "b").record(10) == 0
    made, _ = quotas(users_ANONYMOUS={PRODUCE: "100"})
    assert produce_limit(made, "a").record(5000) > 0
    assert produce_limit(made, "b").record(10) > 0
    assert made.of("somebody", "a").produce is None


def test_a_new_quota_counts_what_was_measured_already() -> None:
    made, _ = quotas(clients_app={PRODUCE: "1000000"})
    assert produce_limit(made, "app").record(50_000) == 0
    made.update({"clients/app": {PRODUCE: "100"}})
    assert produce_limit(made, "app").record(0) > 0
    assert made.is_active
    made.update({"ips/10.0.0.1": {"connection_creation_rate": "1"}})
    assert not made.is_active and made.of("", "app").produce is None


def test_what_does_not_pass_does_not_count_and_something_passes_after_a_silence() -> None:
    made, clock = quotas(clients_app={"consumer_byte_rate": "100"})
    limit = made.of("", "app").fetch
    assert limit is not None
    assert limit.record_within(900) == 0
    assert limit.record_within(300) == 2000
    assert limit.record_within(100) == 0  # the 300 were not sent
    assert limit.record_within(1) > 0
    clock.advance(11_000)
    assert limit.record_within(5_000_000) == 0  # larger than all windows allow: it would never pass
    assert limit.record_within(1) > 0


def test_time_is_a_share_of_the_loop_and_nobody_waits_longer_than_a_window() -> None:
    made, clock = quotas(clients_app={REQUEST: "1"})
    limit = made.of("", "app").request
    assert limit is not None
    assert limit.record(100 * 0.09) == 0  # 90 ms within ten seconds are 0.9 %
    assert 0 < limit.record(100 * 0.0101) <= 100
    assert limit.record(100 * 5.0) == 1000
    clock.advance(12_000)
    assert limit.record(0.1) == 0
    assert made.throttled == {REQUEST: 2} and made.throttled_ms[REQUEST] > 1000


def test_clients_that_come_without_end_are_forgotten_silent_ones_first() -> None:
    clock = ManualClock()
    made = ClientQuotas(clock, Windows(11, 1.0), remembered_max=10)
    made.update({"clients/<default>": {PRODUCE: "1"}})
    for number in range(5):
        produce_limit(made, f"silent-{number}").record(100)
    clock.advance(60_000)
    for number in range(5):
        produce_limit(made, f"busy-{number}").record(100)
    assert made.measured == 10
    produce_limit(made, "one-more").record(100)
    assert made.measured == 6
    assert produce_limit(made, "busy-0").record(0) > 0, "its rate is still known"
    for number in range(100):
        produce_limit(made, f"new-{number}").record(100)
        assert made.measured <= 10


def test_connections_of_an_address_and_of_the_broker() -> None:
    clock = ManualClock()
    limits = {"10.0.0.1": 2.0}
    rates = ConnectionRates(clock, Windows(11, 1.0), 3, limits.get)
    assert [rates.host_delay_ms("10.0.0.1") for _ in range(20)] == [0] * 20
    assert rates.host_delay_ms("10.0.0.1") == 500
    assert rates.host_delay_ms("10.0.0.1") == 500  # the refused one did not count
    assert rates.host_delay_ms("10.0.0.2") == 0
    assert [rates.delay_ms() for _ in range(30)] == [0] * 30
    delays = [rates.delay_ms() for _ in range(5)]
    assert delays[0] == 333 and delays[-1] == 1000  # not longer than a window
    clock.advance(11_000)
    assert rates.delay_ms() == rates.host_delay_ms("10.0.0.1") == 0
