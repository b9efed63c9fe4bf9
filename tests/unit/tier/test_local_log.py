"""The log's files that Headwater writes itself: never over another's, as deltalake reads them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headwater_tier.commit_fence import FileFacts
from headwater_tier.delta import (
    CHECKPOINT_EVERY,
    Change,
    CommitUnknownError,
    LogTable,
    TableAccessError,
    TableStateError,
    table_exists,
)
from headwater_tier.fence_repair import repair
from headwater_tier.local_log import ENGINE, LocalLog
from headwater_tier.schema import EXPIRED_LOG_CLEANUP
from headwater_tier.table_names import TableLocation
from tier_log import FixedClock, location_at

FIRST_CHECKPOINT = CHECKPOINT_EVERY - 1
"""The first version with a checkpoint."""


def log_of(location: TableLocation) -> Path:
    return Path(location.uri) / "_delta_log"


def actions(location: TableLocation, version: int) -> list[dict[str, Any]]:
    text = (log_of(location) / f"{version:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def engine(location: TableLocation, version: int) -> str:
    return str(actions(location, version)[0]["commitInfo"].get("engineInfo"))


def moved(end: int, path: str = "") -> Change:
    """Ends that move, with a file of one row if it has a path; nothing reads the file."""
    adds = (FileFacts(path, 10, 1, 1, ((0, end - 1, end - 1, 1),), ()),) if path else ()
    return Change("tier", 1, adds=adds, ends={0: end}, starts={0: 0})


def committed(table: LogTable, first: int, last: int) -> None:
    for version in range(first, last + 1):
        table.commit(moved(version, f"l0-{version}.parquet"))
        table.refresh()


@pytest.fixture
def location(tmp_path: Path) -> TableLocation:
    return location_at(tmp_path)


def enable_commit_timestamps(location: TableLocation, version: int) -> None:
    """What Spark commits for delta.enableInCommitTimestamps."""
    metadata = next(a["metaData"] for a in actions(location, 0) if "metaData" in a)
    metadata["configuration"]["delta.enableInCommitTimestamps"] = "true"
    features = ["appendOnly", "inCommitTimestamp", "invariants"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    info = {"inCommitTimestamp": 5, "timestamp": 5, "operation": "SET TBLPROPERTIES"}
    lines = [{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}]
    text = "\n".join(json.dumps(line) for line in lines)
    (log_of(location) / f"{version:020d}.json").write_text(text + "\n")


def test_a_table_with_a_feature_of_others_gets_no_commit(location: TableLocation) -> None:
    table = LogTable.create(location, 1)
    committed(table, 1, 2)
    enable_commit_timestamps(location, 3)
    with pytest.raises(TableStateError, match=r"inCommitTimestamp.*drop the feature") as refused:
        table.refresh()
    assert "tier repair" not in str(refused.value), "which could not mend it"
    with pytest.raises(TableStateError, match="inCommitTimestamp"):
        repair(location, clock=FixedClock())
    unchecked = LogTable(location, checked=False)
    with pytest.raises(CommitUnknownError):
        unchecked.commit(moved(9))
    assert not (log_of(location) / f"{4:020d}.json").exists()


def test_a_version_that_another_writer_made_meanwhile_stays(
    location: TableLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = LogTable.create(location, 1), LogTable.create(location, 1)
    real = os.link

    def overtaken(staged: str, name: str) -> None:
        monkeypatch.setattr(os, "link", real)
        other.commit(moved(1))
        real(staged, name)

    monkeypatch.setattr(os, "link", overtaken)
    with pytest.raises(CommitUnknownError, match="version 1 "):
        table.commit(moved(7))
    assert table.reopen().ends == {0: 1}
    assert not list(log_of(location).glob("*.tmp"))


@pytest.mark.parametrize("answer", [errno.EPERM, errno.ENOTSUP, errno.EXDEV])
def test_without_hard_links_deltalake_commits(
    location: TableLocation, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    def refuses(_staged: str, _name: str) -> None:
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(os, "link", refuses)
    table = LogTable.create(location, 1)
    table.commit(moved(3))
    assert table.refresh().ends == LogTable(location).snapshot.ends == {0: 3}
    assert ENGINE not in (engine(location, 0), engine(location, 1))
    assert not list(log_of(location).glob("_commit_*"))


def test_a_path_that_the_log_encodes_is_left_to_deltalake(location: TableLocation) -> None:
    table = LogTable.create(location, 1)
    table.commit(moved(1, "l0-with space.parquet"))
    assert [f.path for f in table.refresh().files] == ["l0-with space.parquet"]
    table.commit(moved(2, "l0-plain.parquet"))
    table.refresh()
    assert engine(location, 1) != ENGINE == engine(location, 2)


def test_a_file_that_a_killed_process_left_is_no_version(location: TableLocation) -> None:
    log_of(location).mkdir(parents=True)
    (log_of(location) / "_commit_0d3f.json.tmp").write_text("half a com")
    assert not table_exists(location)
    table = LogTable.create(location, 1)
    assert engine(location, 0) == ENGINE
    committed(table, 1, 2)
    assert LogTable(location).snapshot.ends == {0: 2}


def test_the_checkpoint_has_what_the_log_has(location: TableLocation) -> None:
    table = LogTable.create(location, 1)
    committed(table, 1, FIRST_CHECKPOINT)
    (checkpoint,) = log_of(location).glob("*.checkpoint*.parquet")
    assert int(checkpoint.name[:20]) == FIRST_CHECKPOINT
    for version in range(FIRST_CHECKPOINT):  # as a clean-up leaves it, some days later
        (log_of(location) / f"{version:020d}.json").unlink()
    (log_of(location) / f"{FIRST_CHECKPOINT:020d}.json").unlink()
    found = LogTable(location).snapshot
    wanted = table.snapshot
    assert (found.version, found.ends, found.starts) == (
        FIRST_CHECKPOINT,
        wanted.ends,
        wanted.starts,
    )
    assert (found.rows, found.size_bytes) == (FIRST_CHECKPOINT, wanted.size_bytes)
    assert sorted(f.path for f in found.files) == sorted(f.path for f in wanted.files)


@pytest.mark.parametrize("method", ["update_incremental", "create_checkpoint"])
def test_a_commit_whose_checkpoint_fails_is_made(
    location: TableLocation,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: str,
) -> None:
    table = LogTable.create(location, 1)
    committed(table, 1, FIRST_CHECKPOINT - 1)

    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(DeltaTable, method, fails)
    table.commit(moved(FIRST_CHECKPOINT, "l0-last.parquet"))
    assert (
        f"no whole checkpoint of version {FIRST_CHECKPOINT}: [Errno 28] no space left"
        in caplog.text
    )
    assert table.refresh().ends == {0: FIRST_CHECKPOINT}


def test_a_commit_is_made_though_the_table_cannot_be_opened_for_its_checkpoint(
    location: TableLocation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = LogTable.create(location, 1)  # deltalake has not opened it
    committed(table, 1, FIRST_CHECKPOINT - 1)

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "the disk")

    monkeypatch.setattr(DeltaTable, "__init__", fails)
    table.commit(moved(FIRST_CHECKPOINT, "l0-last.parquet"))
    assert "no whole checkpoint" in caplog.text
    assert table.refresh().ends == {0: FIRST_CHECKPOINT}


@pytest.mark.parametrize(("chosen", "cleanups"), [("true", 1), ("false", 0), (None, 1)])
def test_the_log_is_cleaned_up_unless_the_table_says_no(
    location: TableLocation, monkeypatch: pytest.MonkeyPatch, chosen: str | None, cleanups: int
) -> None:
    table = LogTable.create(location, 1)
    first = 1
    if chosen is not None:
        own = {EXPIRED_LOG_CLEANUP: chosen}
        DeltaTable(location.uri).alter.set_table_properties(own, raise_if_not_exists=False)
        table.refresh()
        first = 2
    calls: list[object] = []
    monkeypatch.setattr(DeltaTable, "cleanup_metadata", lambda self: calls.append(self))
    committed(table, first, FIRST_CHECKPOINT)
    assert len(calls) == cleanups


def test_a_log_without_its_first_file_gets_no_second_table(
    location: TableLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(LogTable.create(location, 1), 1, FIRST_CHECKPOINT)
    first = log_of(location) / f"{0:020d}.json"
    first.unlink()
    with pytest.raises(FileExistsError):
        LocalLog(location.uri).create({}, "flights", "", {})
    monkeypatch.setattr(DeltaTable, "is_deltatable", lambda *_: False)  # as it seemed
    assert LogTable.create(location, 1).snapshot.ends == {0: FIRST_CHECKPOINT}
    assert not first.exists()


def test_a_disk_that_fails_is_no_missing_table(
    location: TableLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    LogTable.create(location, 1)
    real = os.stat

    def stale(path: Any, *args: Any, **more: Any) -> os.stat_result:
        if str(path) == str(log_of(location)):
            raise OSError(errno.ESTALE, "stale file handle")
        return real(path, *args, **more)

    monkeypatch.setattr(os, "stat", stale)
    with pytest.raises(TableAccessError, match=r"looking for .* stale file handle"):
        table_exists(location)
    with pytest.raises(TableAccessError, match="stale file handle"):
        LogTable.create(location, 1)


def test_every_folder_that_was_made_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = location_at(tmp_path / "new" / "base")
    synced: set[int] = set()
    real = os.fsync

    def noted(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        real(handle)

    monkeypatch.setattr(os, "fsync", noted)
    LogTable.create(location, 1)
    at = log_of(location)
    while at != tmp_path:
        assert at.stat().st_ino in synced, at
        at = at.parent
    assert tmp_path.stat().st_ino in synced
