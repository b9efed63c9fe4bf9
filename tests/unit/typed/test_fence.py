"""Kills at each step, racing writers, and changes by others: no row twice, none lost unasked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field, write_deltalake

from headwater_tier.delta import TableAccessError, TableStateError
from headwater_tier.typed import follow, quarantine
from headwater_tier.typed.declarations import declared_tables
from headwater_tier.typed.derived_table import DerivedTable
from headwater_tier.typed.follow import TopicFollower
from headwater_tier.typed.names import Kind, derived
from typed_topic import CLOCK, JsonDecoder, NoSchemas, TypedTopic

STEPS = 7
"""Calls of a first turn that a kill can fall before or after: create, grow, commit and so on."""


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

    for name in ("commit", "grow", "set_properties"):
        wrap(DerivedTable, name)
    wrap(follow, "write_derived")
    wrap(quarantine, "write_derived")
    wrap(follow, "create_typed")


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


def follower(topic: TypedTopic) -> TopicFollower:
    return TopicFollower(
        topic.location, NoSchemas(), CLOCK, entropy=topic.entropy, decoder_for=JsonDecoder.of
    )


def test_the_slower_of_two_followers_commits_nothing(
    topic: TypedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = declared_tables("orders", topic.configs)
    assert wanted is not None
    topic.follow()
    topic.produce(0, {"a": 3}, b"{bad")
    topic.tier()
    slow, fast = follower(topic), follower(topic)
    original: Callable[..., Any] = follow.write_derived

    def overtaken(*args: Any) -> Any:
        monkeypatch.setattr(follow, "write_derived", original)
        fast.turn(wanted)
        return original(*args)

    monkeypatch.setattr(follow, "write_derived", overtaken)
    result = slow.turn(wanted)
    assert (result.discarded, result.rows, result.behind) == (True, 0, 0)
    assert offsets(topic) == [(0, 0), (0, 2), (0, 3), (1, 0)]
    assert offsets(topic, Kind.QUARANTINE) == [(0, 1), (0, 4), (1, 1)]


def test_a_failing_quarantine_does_not_stop_typing_and_catches_up(
    topic: TypedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise TableAccessError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(quarantine, "write_derived", full)
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


def test_column_mapping_is_refused_and_named(topic: TypedTopic) -> None:
    topic.follow()
    log = Path(uri(topic)) / "_delta_log"
    commits = sorted(log.glob("*.json"))
    actions = [json.loads(line) for path in commits for line in path.read_text().splitlines()]
    (metadata, *_) = [a["metaData"] for a in reversed(actions) if "metaData" in a]
    metadata["configuration"]["delta.columnMapping.mode"] = "name"
    info = {"commitInfo": {"operation": "SET TBLPROPERTIES"}}
    lines = [json.dumps(info), json.dumps({"metaData": metadata})]
    (log / f"{len(commits):020}.json").write_text("\n".join(lines))
    with pytest.raises(TableStateError, match=r"delta\.columnMapping\.mode"):
        topic.follow()


def test_a_users_column_is_left_alone(topic: TypedTopic) -> None:
    topic.follow()
    DeltaTable(uri(topic)).alter.add_columns([Field("mine", "string")])
    topic.produce(0, {"a": 3, "mine": 5})
    topic.tier()
    topic.follow()
    found = DeltaTable(uri(topic)).to_pyarrow_table().sort_by("offset").to_pylist()[-1]
    assert (found["a"], found["mine"], found["value_mine"]) == (3, None, 5)
