"""The verdict on a lagging group: each rule, its edges, and the order of the rules."""

from __future__ import annotations

import pytest

from headwater_gateway.console.lag.verdict import (
    Finding,
    Sample,
    Verdict,
    judge,
    rates,
    worst,
)

NOW = Sample(
    at_s=300.0,
    committed=500,
    log_start=0,
    last_stable=1000,
    high_watermark=1000,
    owner="m1",
    generation=4,
)


def steady(**changes: object) -> list[Sample]:
    """A reader that keeps up with 10 records a second, sampled for 5 minutes."""
    rows = [
        NOW._replace(
            at_s=5.0 * i,
            committed=100 + 50 * i,
            last_stable=600 + 50 * i,
            high_watermark=600 + 50 * i,
        )
        for i in range(61)
    ]
    return [row._replace(**changes) for row in rows]  # type: ignore[arg-type]


def with_last(rows: list[Sample], **changes: object) -> list[Sample]:
    return [*rows[:-1], rows[-1]._replace(**changes)]  # type: ignore[arg-type]


def test_a_reader_that_keeps_up_is_fine() -> None:
    assert judge(steady()) == Finding(Verdict.FINE, "keeps up")


def test_a_reader_without_lag_is_fine_even_without_members() -> None:
    done = NOW._replace(committed=1000, owner=None)
    assert judge([done]) == Finding(Verdict.FINE, "has read everything")


def test_a_reader_that_gains_says_when_it_is_done() -> None:
    rows = [s._replace(committed=20 * i) for i, s in enumerate(steady(high_watermark=2000))]
    assert judge([r._replace(last_stable=2000) for r in rows]).reason == (
        "catches up: done in about 200 s"
    )


def test_gone_when_nobody_owns_the_partition() -> None:
    found = judge(with_last(steady(), owner=None))
    assert found.verdict is Verdict.GONE
    assert found.reason == "no member owns the partition, 500 records wait"


@pytest.mark.parametrize(("log_start", "verdict"), [(500, Verdict.FINE), (501, Verdict.LOST)])
def test_lost_when_the_log_begins_behind_the_commit(log_start: int, verdict: Verdict) -> None:
    assert judge([NOW._replace(log_start=log_start)]).verdict is verdict


def test_lost_even_if_nothing_is_left_to_read() -> None:
    found = judge([NOW._replace(log_start=1000)])
    assert found.verdict is Verdict.LOST
    assert found.reason == "500 records were deleted unread: committed 500, log start 1000"


def test_nothing_is_lost_without_a_commit() -> None:
    assert judge([NOW._replace(committed=None, log_start=700)]).verdict is Verdict.FINE


def test_blocked_at_the_last_stable_offset() -> None:
    rows = [NOW._replace(at_s=at, last_stable=500) for at in (290.0, 295.0, 300.0)]
    found = judge(rows)
    assert found.verdict is Verdict.BLOCKED
    assert found.offset == 500
    assert found.reason == "an open transaction holds 500 records from offset 500 on"


def test_a_transaction_of_a_moment_blocks_nobody() -> None:
    rows = [NOW._replace(at_s=295.0), NOW._replace(last_stable=500)]
    assert judge(rows).verdict is Verdict.FINE


@pytest.mark.parametrize("committed", [499, 501])
def test_not_blocked_before_or_behind_the_last_stable_offset(committed: int) -> None:
    rows = [
        NOW._replace(at_s=at, last_stable=500, committed=committed) for at in (290.0, 295.0, 300.0)
    ]
    assert judge(rows).verdict is Verdict.FINE


def test_without_a_commit_blocked_at_the_log_start() -> None:
    rows = [NOW._replace(at_s=at, committed=None, last_stable=0) for at in (290.0, 295.0, 300.0)]
    assert judge(rows).verdict is Verdict.BLOCKED


@pytest.mark.parametrize(("generation", "verdict"), [(6, Verdict.FINE), (7, Verdict.REBALANCING)])
def test_rebalancing_from_the_third_generation_on(generation: int, verdict: Verdict) -> None:
    found = judge(with_last(steady(), generation=generation))
    assert found.verdict is verdict
    if verdict is Verdict.REBALANCING:
        assert found.reason == "3 rebalances in 5 min"


def test_starved_without_a_leader_or_by_a_quota() -> None:
    assert judge(with_last(steady(), has_leader=False)).reason == "the partition has no leader"
    assert judge(with_last(steady(), is_throttled=True)).reason == "a quota throttles its reader"


def still(seconds: float, interval_s: float = 5.0) -> list[Sample]:
    """Commits every `interval_s` until `seconds` before the end, then none."""
    end = 300.0
    rows = []
    for i in range(61):
        at = 5.0 * i
        moved = min(at, end - seconds) // interval_s
        rows.append(NOW._replace(at_s=at, committed=100 + int(moved), high_watermark=10_000))
    return [row._replace(last_stable=10_000) for row in rows]


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        (still(25), Verdict.FINE),
        (still(30), Verdict.STUCK),
        (still(40, interval_s=20), Verdict.FINE),
        (still(60, interval_s=20), Verdict.STUCK),
    ],
    ids=["25 s", "30 s", "2 intervals", "3 intervals"],
)
def test_stuck_without_a_commit_for_30_s_or_three_intervals(
    rows: list[Sample], verdict: Verdict
) -> None:
    assert judge(rows).verdict is verdict


def test_stuck_names_the_record() -> None:
    found = judge(still(60))
    assert found.offset == 148
    assert found.reason == "its owner is alive but has committed nothing for 60 s"


def test_an_idle_reader_is_not_stuck_when_a_record_arrives() -> None:
    idle = steady(committed=1000, high_watermark=1000, last_stable=1000)
    rows = with_last(idle, high_watermark=1001, last_stable=1001)
    rows = with_last(rows, committed=1000)
    assert judge(rows).verdict is not Verdict.STUCK


def slow(share: float, deleted: int = 0) -> list[Sample]:
    """Reads `share` of 1,000 records a sample; retention deletes `deleted` a sample."""
    return [
        NOW._replace(
            at_s=5.0 * i,
            committed=10_000 + int(1000 * share) * i,
            log_start=deleted * i,
            last_stable=50_000 + 1000 * i,
            high_watermark=50_000 + 1000 * i,
        )
        for i in range(61)
    ]


@pytest.mark.parametrize(("share", "verdict"), [(0.95, Verdict.FINE), (0.94, Verdict.SLOW)])
def test_slow_below_095_of_what_is_written(share: float, verdict: Verdict) -> None:
    assert judge(slow(share)).verdict is verdict


@pytest.mark.parametrize(("lag", "verdict"), [(1_000, Verdict.FINE), (1_001, Verdict.SLOW)])
def test_a_reader_at_the_end_of_the_log_is_not_slow_by_the_last_batch(
    lag: int, verdict: Verdict
) -> None:
    rows = with_last(slow(1.0), committed=50_000 + 60_000 - lag)
    rows = [rows[0]._replace(committed=54_000), *rows[1:]]
    assert judge(rows).verdict is verdict


def test_slow_tells_when_records_are_lost() -> None:
    assert judge(slow(0.5)).time_to_loss_s is None
    found = judge(slow(0.5, deleted=600))
    assert found.time_to_loss_s == pytest.approx((10_000 + 30_000 - 36_000) / 20)
    assert found.reason == (
        "reads 100.0 of 200.0 records/s written; loses records in 200 s at these rates"
    )


def test_rates_need_two_samples() -> None:
    assert rates([NOW]) is None
    assert rates(slow(0.5)) == (100.0, 200.0, 0.0)


def test_the_first_rule_that_matches_is_told() -> None:
    bad = {
        "owner": None,
        "log_start": 600,
        "last_stable": 500,
        "generation": 9,
        "has_leader": False,
    }
    order = []
    rows = [*still(60)[:-3], *(NOW._replace(at_s=at, **bad) for at in (290.0, 295.0, 300.0))]  # type: ignore[arg-type]
    cures: list[dict[str, object]] = [
        {"owner": "m1"},
        {"log_start": 0},
        {"last_stable": 1000},
        {"generation": 4},
        {"has_leader": True},
    ]
    for cure in cures:
        order.append(judge(rows).verdict)
        rows = [row._replace(**cure) for row in rows]  # type: ignore[arg-type]
    assert order == [
        Verdict.GONE,
        Verdict.LOST,
        Verdict.BLOCKED,
        Verdict.REBALANCING,
        Verdict.STARVED,
    ]


def test_the_worst_of_several() -> None:
    fine, gone = Finding(Verdict.FINE, ""), Finding(Verdict.GONE, "")
    assert worst([fine, gone]) == gone
    assert worst([]) is None
