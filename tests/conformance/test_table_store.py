"""Conditional commits of log tables: a repeated commit, an older version, a race.

deltalake stores the version of an application transaction and compares nothing. Threads that race,
each with a table handle of its own, show that the conditional commit on top of it works.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from headwater_tier.commit import commit_facts, ensure_table
from headwater_tier.commit_fence import CommitResult, Outcome
from headwater_tier.data_files import tier_range
from headwater_tier.delta import Change, CommitUnknownError, LogTable
from headwater_tier.offset_ranges import TierRange
from headwater_tier.table_names import end_txn
from tier_log import CountingEntropy, FixedClock, MemoryLog, location_at

CLOCK = FixedClock()


def test_deltalake_itself_accepts_equal_and_lower_versions(tmp_path: Path) -> None:
    """The reason for our own comparison. If this fails one day, the check can move to deltalake."""
    location = location_at(tmp_path)
    ensure_table(location, 1)
    app = end_txn(location.topic_id, 0)
    for version in (10, 10, 5):
        table = DeltaTable(location.uri)
        properties = CommitProperties(
            max_commit_retries=0, app_transactions=[Transaction(app, version)]
        )
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)
        table.update_incremental()
        assert table.transaction_version(app) == version


def test_a_handle_that_is_one_commit_behind_is_refused(tmp_path: Path) -> None:
    location = location_at(tmp_path)
    ensure_table(location, 1)
    first, second = LogTable(location), LogTable(location)
    first.commit(Change("tier", CLOCK.now_ms(), ends={0: 5}))
    with pytest.raises(CommitUnknownError):
        second.commit(Change("tier", CLOCK.now_ms(), ends={0: 5}))
    with pytest.raises(CommitUnknownError):  # a handle does not advance by itself either
        first.commit(Change("tier", CLOCK.now_ms(), ends={0: 6}))
    assert second.refresh().version == 1


def test_racing_tierers_commit_each_range_once(tmp_path: Path) -> None:
    """Six threads with their own files for one range: one commits, and all get the outcome."""
    location, log = location_at(tmp_path), MemoryLog()
    ensure_table(location, 1)
    log.fill(0, 120)
    results: list[CommitResult] = []

    def race(number: int, planned: TierRange, gate: threading.Barrier) -> None:
        facts = tier_range(
            log.fetch, [planned], location, clock=CLOCK, entropy=CountingEntropy(number)
        )
        assert facts is not None
        gate.wait()
        results.append(commit_facts(location, [planned], [facts], clock=CLOCK, attempts_max=50))

    expected: int | None = None
    for end in (40, 80, 120):
        planned, gate = TierRange(0, expected, expected or 0, end), threading.Barrier(6)
        threads = [
            threading.Thread(target=race, args=(end * 1000 + i * 10, planned, gate))
            for i in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = end
    assert [r.outcome for r in results] == [Outcome.DONE] * 18
    snapshot = LogTable(location).snapshot
    assert (snapshot.rows, snapshot.ends, len(snapshot.files)) == (120, {0: 120}, 3)


def test_different_ranges_from_one_end_let_one_through(tmp_path: Path) -> None:
    location, log = location_at(tmp_path), MemoryLog()
    ensure_table(location, 1)
    log.fill(0, 60)
    plans = [TierRange(0, None, 0, 30), TierRange(0, None, 0, 60)]
    files = [
        tier_range(log.fetch, [p], location, clock=CLOCK, entropy=CountingEntropy(i * 10 + 1))
        for i, p in enumerate(plans)
    ]
    outcomes = [
        commit_facts(location, [p], [f], clock=CLOCK).outcome
        for p, f in zip(plans, files, strict=True)
        if f
    ]
    assert outcomes == [Outcome.DONE, Outcome.DISCARDED]
    assert LogTable(location).snapshot.rows == 30
