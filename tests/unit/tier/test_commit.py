"""Plan, write, commit: the table has each row once, whatever is repeated or fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headwater.errors import UsageError
from headwater_tier.commit import commit_facts, ensure_table
from headwater_tier.commit_fence import CommitResult, FileFacts, Outcome
from headwater_tier.data_files import FileCheckError, tier_range
from headwater_tier.delta import (
    Change,
    CommitUnknownError,
    LogTable,
    TableAccessError,
    TableStateError,
)
from headwater_tier.offset_ranges import TierRange, plan_ranges
from headwater_tier.schema import FILE_AGE_MAX_MS
from headwater_tier.table_names import TableLocation
from tier_log import CountingEntropy, FixedClock, MemoryLog, location_at

CLOCK = FixedClock()


def plan(log: MemoryLog, location: TableLocation) -> tuple[TierRange, ...]:
    return plan_ranges(ensure_table(location, 2), log.bounds())


def write(
    log: MemoryLog, location: TableLocation, ranges: tuple[TierRange, ...], seed: int
) -> list[FileFacts]:
    facts = tier_range(
        log.fetch, ranges, location, clock=CLOCK, entropy=CountingEntropy(seed * 1000)
    )
    return [facts] if facts else []


def tier(log: MemoryLog, location: TableLocation, seed: int) -> CommitResult | None:
    ranges = plan(log, location)
    if not ranges:
        return None
    return commit_facts(location, ranges, write(log, location, ranges, seed), clock=CLOCK)


def rows_of(location: TableLocation) -> list[tuple[int, int, bytes]]:
    table = DeltaTable(location.uri)
    data = ds.dataset(table.file_uris(), format="parquet").to_table()
    columns = [data.column(c).to_pylist() for c in ("partition", "offset", "value")]
    return sorted(zip(*columns, strict=True))


@pytest.fixture
def log() -> MemoryLog:
    memory = MemoryLog()
    memory.fill(0, 95)
    memory.fill(1, 30)
    return memory


def expected(log: MemoryLog) -> list[tuple[int, int]]:
    return sorted((p, o) for p, end in log.next.items() for o in range(end))


def test_two_rounds_and_a_third_that_adds_nothing(tmp_path: Path, log: MemoryLog) -> None:
    location = location_at(tmp_path)
    result = tier(log, location, 1)
    assert result is not None and result.outcome is Outcome.DONE
    assert dict(result.ends) == {0: 95, 1: 30}
    log.fill(0, 5)
    log.fill(4, 12)  # a partition added after the table was made
    result = tier(log, location, 2)
    assert result is not None and dict(result.ends) == {0: 100, 1: 30, 4: 12}
    assert tier(log, location, 3) is None
    assert [(p, o) for p, o, _ in rows_of(location)] == expected(log)
    assert LogTable(location).snapshot.starts == {0: 0, 1: 0, 4: 0}


def test_repeating_a_commit_is_done_and_adds_nothing(tmp_path: Path, log: MemoryLog) -> None:
    location = location_at(tmp_path)
    ranges = plan(log, location)
    files = write(log, location, ranges, 1)
    assert commit_facts(location, ranges, files, clock=CLOCK).outcome is Outcome.DONE
    again = commit_facts(location, ranges, files, clock=CLOCK)
    assert (again.outcome, again.version) == (Outcome.DONE, 1)
    assert [(p, o) for p, o, _ in rows_of(location)] == expected(log)


def test_an_older_plan_is_discarded(tmp_path: Path, log: MemoryLog) -> None:
    location = location_at(tmp_path)
    old = plan(log, location)
    old_files = write(log, location, old, 1)
    log.fill(0, 7)
    assert tier(log, location, 2) is not None
    result = commit_facts(location, old, old_files, clock=CLOCK)
    assert result.outcome is Outcome.DISCARDED
    assert "partition 0 was planned from end None, the table is at 102" in result.detail
    assert [(p, o) for p, o, _ in rows_of(location)] == expected(log)


def test_a_commit_that_another_one_followed_is_done(tmp_path: Path, log: MemoryLog) -> None:
    location = location_at(tmp_path)
    ranges = plan(log, location)
    files = write(log, location, ranges, 1)
    commit_facts(location, ranges, files, clock=CLOCK)
    log.fill(0, 7)
    log.fill(1, 7)
    tier(log, location, 2)
    assert commit_facts(location, ranges, files, clock=CLOCK).outcome is Outcome.DONE


def test_a_stale_handle_never_commits(tmp_path: Path, log: MemoryLog) -> None:
    location = location_at(tmp_path)
    ensure_table(location, 2)
    stale = LogTable(location)
    tier(log, location, 1)
    change = Change("tier", CLOCK.now_ms(), ends={0: 95})
    with pytest.raises(CommitUnknownError):
        stale.commit(change)
    assert stale.refresh().ends == {0: 95, 1: 30}


def test_a_commit_whose_reply_was_lost_is_done(
    tmp_path: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = location_at(tmp_path)
    ranges = plan(log, location)
    files = write(log, location, ranges, 1)
    real = LogTable.commit

    def commits_but_fails(self: LogTable, change: Change) -> None:
        real(self, change)
        raise CommitUnknownError("the answer was lost")

    monkeypatch.setattr(LogTable, "commit", commits_but_fails)
    assert commit_facts(location, ranges, files, clock=CLOCK).outcome is Outcome.DONE
    assert [(p, o) for p, o, _ in rows_of(location)] == expected(log)


def test_commits_that_keep_failing_end_with_the_last_error(
    tmp_path: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = location_at(tmp_path)
    ranges = plan(log, location)
    files = write(log, location, ranges, 1)

    def fails(self: LogTable, change: Change) -> None:
        raise CommitUnknownError("no space left")

    monkeypatch.setattr(LogTable, "commit", fails)
    with pytest.raises(TableAccessError, match="5 commits failed, the last one: no space left"):
        commit_facts(location, ranges, files, clock=CLOCK)


def test_ends_alone_may_move_and_deleted_records_move_the_start(
    tmp_path: Path, log: MemoryLog
) -> None:
    location = location_at(tmp_path)
    tier(log, location, 1)
    ranges = (TierRange(0, 95, 95, 97),)
    result = commit_facts(location, ranges, [], clock=CLOCK)
    assert dict(result.ends) == {0: 97, 1: 30}
    ranges = (TierRange(1, 30, 40, 41),)  # the log start passed 30..39
    commit_facts(location, ranges, [], clock=CLOCK)
    assert LogTable(location).snapshot.starts == {0: 0, 1: 40}


def test_files_are_checked_before_they_are_committed(tmp_path: Path, log: MemoryLog) -> None:
    location = location_at(tmp_path)
    ranges = plan(log, location)
    (facts,) = write(log, location, ranges, 1)

    def attempt(changed: FileFacts) -> None:
        commit_facts(location, ranges, [changed], clock=CLOCK)

    with pytest.raises(FileCheckError, match=r"has \d+ bytes"):
        attempt(replace(facts, size_bytes=facts.size_bytes + 1))
    shifted = tuple((p, f, last, n - 1) for p, f, last, n in facts.ranges)
    with pytest.raises(FileCheckError, match="holds 125 rows"):
        attempt(replace(facts, rows=123, ranges=shifted))
    with pytest.raises(FileCheckError, match=r"has None bytes|unreadable"):
        attempt(replace(facts, path="l0-none.parquet"))
    with pytest.raises(UsageError, match="older than half"):
        commit_facts(
            location, ranges, [facts], clock=FixedClock(CLOCK.now_ms() + FILE_AGE_MAX_MS + 1)
        )
    with pytest.raises(UsageError, match="not planned"):
        commit_facts(location, ranges[:1], [facts], clock=CLOCK)
    with pytest.raises(UsageError, match="two files hold partition 0"):
        commit_facts(location, ranges, [facts, replace(facts)], clock=CLOCK)
    with pytest.raises(UsageError, match="at least one planned range"):
        commit_facts(location, (), [], clock=CLOCK)
    assert LogTable(location).snapshot.version == 0


def test_a_table_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TableAccessError, match=r"cannot be created|failed"):
        ensure_table(location_at(tmp_path / "file"), 1)
    with pytest.raises(TableAccessError, match=r"no log table at .*: either nothing was tiered"):
        LogTable(location_at(tmp_path / "nowhere"))


def test_a_foreign_append_is_named(tmp_path: Path, log: MemoryLog) -> None:
    location = location_at(tmp_path)
    tier(log, location, 1)
    table = DeltaTable(location.uri)
    from deltalake import write_deltalake

    data = pq.read_table(table.file_uris()[0]).slice(0, 3)
    write_deltalake(table, data, mode="append")
    with pytest.raises(TableStateError, match="Version 2 was committed by someone else: WRITE"):
        LogTable(location)
    assert LogTable(location, checked=False).snapshot.ends == {0: 95, 1: 30}


def test_a_restore_is_noticed(tmp_path: Path, log: MemoryLog) -> None:
    location = location_at(tmp_path)
    tier(log, location, 1)
    log.fill(0, 9)
    tier(log, location, 2)
    DeltaTable(location.uri).restore(1)
    with pytest.raises(TableStateError, match="RESTORE"):
        LogTable(location)


def test_changed_properties_and_other_topics_are_refused(tmp_path: Path, log: MemoryLog) -> None:
    location = location_at(tmp_path)
    tier(log, location, 1)
    other = replace(location, topic_id=location_at(tmp_path).topic_id.__class__(int=5))
    with pytest.raises(TableStateError, match="belongs to topic id"):
        LogTable(other)
    table = DeltaTable(location.uri)
    table.alter.set_table_properties({"headwater.format": "2"}, raise_if_not_exists=False)
    for checked in (True, False):
        with pytest.raises(TableStateError, match="format 2, this Headwater reads up to 1: run"):
            LogTable(location, checked=checked)
    table.alter.set_table_properties({"headwater.format": "1"}, raise_if_not_exists=False)
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    with pytest.raises(TableStateError, match=r"delta\.appendOnly is 'false'"):
        LogTable(location)


def test_the_log_says_what_was_committed(tmp_path: Path, log: MemoryLog) -> None:
    location = location_at(tmp_path)
    tier(log, location, 1)
    text = (Path(location.uri) / "_delta_log" / f"{1:020d}.json").read_text()
    actions = [json.loads(line) for line in text.splitlines()]
    stats = json.loads(next(a["add"]["stats"] for a in actions if "add" in a))
    assert stats["numRecords"] == 125
    assert stats["minValues"] == {
        "partition": 0, "offset": 0, "timestamp": "1970-01-01T00:00:01.000Z", "leader_epoch": 0,
    }  # fmt: skip
    versions = {a["txn"]["appId"]: a["txn"]["version"] for a in actions if "txn" in a}
    assert {name.split("/", 2)[2]: version for name, version in versions.items()} == {
        "rows": 125, "0/end": 95, "1/end": 30, "0/start": 0, "1/start": 0,
    }  # fmt: skip
    assert actions[0]["commitInfo"]["headwater"] == "tier"
