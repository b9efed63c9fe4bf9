"""Kills at each step, racing writers, and changes by others: no row twice, none lost unasked."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from deltalake import DeltaTable, Field, write_deltalake

from headwater.entropy import Entropy
from headwater_tier.delta import TableAccessError, TableStateError
from headwater_tier.typed.declarations import declared_tables
from headwater_tier.typed.derived_table import DerivedChange, DerivedTable
from headwater_tier.typed.follow_log import TopicFollower
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.vacuum import vacuum_derived
from tier_log import CountingEntropy
from typed_topic import CLOCK, JsonDecoder, NoSchemas, TypedTopic

STEPS = 10
"""Calls of a first turn that a kill can fall before or after."""


class Killed(BaseException):
    """Not an Exception, so that nothing handles it: as kill -9."""


@pytest.fixture
def topic(tmp_path: Path) -> TypedTopic:
    made = TypedTopic(tmp_path)
    made.produce(0, {"a": 1}, b"{bad", {"a": 2})
    made.produce(1, {"b": "x"}, b"{bad")
    made.tier()
    return made


def offsets(topic: TypedTopic, kind: Kind = Kind.TYPED) -> list[tuple[int, int]]:
    found = DeltaTable(derived(topic.location, kind).place.uri).to_pyarrow_table()
    columns = (found.column(name).to_pylist() for name in ("partition", "offset"))
    return sorted(zip(*columns, strict=True))


def killed_at(patch: pytest.MonkeyPatch, step: int, *, after: bool) -> None:
    """Kill at the step-th call that touches storage, before or after it."""
    calls = iter(range(1_000))

    def wrap(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            is_it = next(calls) == step
            if is_it and not after:
                raise Killed
            result = original(*args, **kwargs)
            if is_it:
                raise Killed
            return result

        patch.setattr(owner, name, call)

    for name in ("commit", "create", "grow", "refresh", "set_properties"):
        wrap(DerivedTable, name)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(STEPS))
def test_a_kill_at_any_step_doubles_and_loses_nothing(
    topic: TypedTopic, monkeypatch: pytest.MonkeyPatch, step: int, after: bool
) -> None:
    with monkeypatch.context() as patch:
        killed_at(patch, step, after=after)
        with pytest.raises(Killed):
            topic.follow()
    topic.follow_all()
    assert offsets(topic) == [(0, 0), (0, 2), (1, 0)]
    assert offsets(topic, Kind.QUARANTINE) == [(0, 1), (1, 1)]


def follower(topic: TypedTopic, entropy: Entropy | None = None) -> TopicFollower:
    chosen = entropy or topic.entropy
    return TopicFollower(
        topic.location, NoSchemas(), CLOCK, entropy=chosen, decoder_for=JsonDecoder.of
    )


class Meanwhile(CountingEntropy):
    """Runs something when the name of the first file is drawn: after the reads of a turn."""

    def __init__(self, run: Callable[[], Any]) -> None:
        super().__init__(1_000_000)
        self.run: Callable[[], Any] | None = run

    def uuid(self) -> UUID:
        run, self.run = self.run, None
        if run is not None:
            run()
        return super().uuid()


def test_the_slower_of_two_followers_commits_nothing(topic: TypedTopic) -> None:
    wanted = declared_tables("orders", topic.configs)
    assert wanted is not None
    topic.follow()
    topic.produce(0, {"a": 3}, b"{bad")
    topic.tier()
    fast = follower(topic)
    slow = follower(topic, Meanwhile(lambda: fast.turn(wanted)))
    result = slow.turn(wanted)
    assert (result.discarded, result.rows, result.behind) == (True, 0, 0)
    assert offsets(topic) == [(0, 0), (0, 2), (0, 3), (1, 0)]
    assert offsets(topic, Kind.QUARANTINE) == [(0, 1), (0, 4), (1, 1)]


def test_a_failing_quarantine_does_not_stop_typing_and_catches_up(
    topic: TypedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = DerivedTable.commit

    def full(self: DerivedTable, change: DerivedChange) -> None:
        if change.kind == "quarantine":
            raise TableAccessError("no space left on device")
        original(self, change)

    with monkeypatch.context() as patch:
        patch.setattr(DerivedTable, "commit", full)
        result = topic.follow()
        assert (result.rows, result.quarantine_problem) == (3, "no space left on device")
        topic.produce(0, {"a": 3}, b"{bad")
        topic.tier()
        assert topic.follow().rows == 1
    result = topic.follow()
    assert (result.quarantined, result.quarantine_behind, result.quarantine_problem) == (3, 0, "")
    assert offsets(topic, Kind.QUARANTINE) == [(0, 1), (0, 4), (1, 1)]


def uri(topic: TypedTopic) -> str:
    return derived(topic.location, Kind.TYPED).place.uri


def test_users_may_erase_and_compact_rows(topic: TypedTopic) -> None:
    topic.follow()
    DeltaTable(uri(topic)).delete("a = 2")
    DeltaTable(uri(topic)).optimize.compact()
    topic.produce(0, {"a": 3})
    topic.tier()
    assert topic.follow().rows == 1
    assert offsets(topic) == [(0, 0), (0, 3), (1, 0)]


def test_appended_and_restored_rows_are_refused_and_named(topic: TypedTopic) -> None:
    topic.follow()
    table = DeltaTable(uri(topic))
    write_deltalake(table, table.to_pyarrow_table(), mode="append")
    with pytest.raises(TableStateError, match=r"WRITE .*headwater tier retype orders"):
        topic.follow()
    current = DerivedTable(derived(topic.location, Kind.TYPED), checked=False)
    current.accept()
    topic.produce(0, {"a": 3})
    topic.tier()
    assert topic.follow().rows == 1
    DeltaTable(uri(topic)).restore(2)
    with pytest.raises(TableStateError, match="RESTORE"):
        topic.follow()


def committed_by_hand(topic: TypedTopic, *actions: dict[str, Any]) -> None:
    """A commit of another engine, as its JSON is."""
    log = Path(uri(topic)) / "_delta_log"
    info = {"commitInfo": {"operation": "SET TBLPROPERTIES"}}
    number = len(list(log.glob("*.json")))
    (log / f"{number:020}.json").write_text("\n".join(map(json.dumps, [info, *actions])))


def metadata(topic: TypedTopic, name: str, value: str) -> dict[str, Any]:
    """The table's metaData action, with one more property."""
    commits = sorted((Path(uri(topic)) / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for path in commits for line in path.read_text().splitlines()]
    (found, *_) = [a["metaData"] for a in reversed(actions) if "metaData" in a]
    found["configuration"][name] = value
    return {"metaData": found}


def test_column_mapping_is_refused_and_named(topic: TypedTopic) -> None:
    topic.follow()
    committed_by_hand(topic, metadata(topic, "delta.columnMapping.mode", "name"))
    with pytest.raises(TableStateError, match=r"delta\.columnMapping\.mode"):
        topic.follow()


def test_a_property_that_erases_the_fence_is_refused_and_named(topic: TypedTopic) -> None:
    topic.follow()
    name = "delta.setTransactionRetentionDuration"
    committed_by_hand(topic, metadata(topic, name, "interval 1 second"))
    with pytest.raises(TableStateError, match=name):
        topic.follow()


def test_rows_without_a_fence_are_refused_and_named(topic: TypedTopic) -> None:
    topic.follow()
    rows = DeltaTable(uri(topic)).to_pyarrow_table()
    shutil.rmtree(uri(topic))
    write_deltalake(uri(topic), rows)
    topic.follow({"retention.ms": "-1"})  # no format: the open table is forgotten
    with pytest.raises(TableStateError, match="has lost the offsets"):
        topic.follow()


def test_deletion_vectors_stop_what_reads_the_table_and_not_the_typing(topic: TypedTopic) -> None:
    topic.configs["headwater.latest.enable"] = "true"
    topic.follow()
    features = ["deletionVectors", "appendOnly", "invariants"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features[:1],
        "writerFeatures": features,
    }
    change = metadata(topic, "delta.enableDeletionVectors", "true")
    committed_by_hand(topic, {"protocol": protocol}, change)
    topic.produce(0, {"a": 3})
    topic.tier()
    result = topic.follow()
    assert result.rows == 1
    assert "DROP FEATURE deletionVectors" in result.latest_problem
    assert "DROP FEATURE deletionVectors" in result.problem


def test_a_lost_file_is_named(topic: TypedTopic) -> None:
    topic.follow()
    (path,) = (Path(file) for file in DeltaTable(uri(topic)).file_uris())
    path.unlink()
    topic.follow({"retention.ms": "-1"})  # no format: the open table is forgotten
    result = topic.follow()
    assert path.name in result.problem
    assert "headwater tier retype orders" in result.problem


def test_a_users_column_is_left_alone(topic: TypedTopic) -> None:
    topic.follow()
    DeltaTable(uri(topic)).alter.add_columns([Field("mine", "string")])
    topic.produce(0, {"a": 3, "mine": 5})
    topic.tier()
    topic.follow()
    found = DeltaTable(uri(topic)).to_pyarrow_table().sort_by("offset").to_pylist()[-1]
    assert (found["a"], found["mine"], found["value_mine"]) == (3, None, 5)


def test_vacuum_deletes_what_a_killed_turn_left(
    topic: TypedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise Killed

    topic.follow()
    topic.produce(0, {"a": 3})
    topic.tier()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(DerivedTable, "commit", killed)
        topic.follow()
    folder = Path(uri(topic))
    left = {path.name for path in folder.glob("*.parquet")}
    needed = {Path(path).name for path in DeltaTable(uri(topic)).file_uris()}
    for path in folder.glob("*.parquet"):
        os.utime(path, (0, 0))
    gone = vacuum_derived(topic.location, age_hours=24)
    assert {Path(path).name for path in gone} == left - needed
    assert len(left - needed) == 1
    assert topic.follow().rows == 1
