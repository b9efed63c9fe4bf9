"""Derived tables are followed after commits, in turns, and their errors stop nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pyarrow as pa

from headwater.client.blocking.broker_metadata import Topic
from headwater.errors import HeadwaterError
from headwater.testing.clocks import ManualClock
from headwater_tier.delta import Snapshot
from headwater_tier.live_files import LiveFiles
from headwater_tier.retention import Limits
from headwater_tier.service.derived_tables import LAGGING_EVERY_S, DerivedTables
from headwater_tier.service.schedule import BACK_OFF_S
from headwater_tier.service.table_facts import TableFacts
from headwater_tier.service.table_thread import Opened
from headwater_tier.service.topic_finder import TieredTopic
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.follow_log import FollowResult
from headwater_tier.typed.latest_table import MergeResult
from headwater_tier.typed.without_registry import WithoutRegistry

JSON = {"headwater.value.format": "json"}


class Follower:
    """`follow_topic` with prepared results; counts turns."""

    def __init__(self) -> None:
        self.turns: list[str] = []
        self.behind: dict[str, int] = {}
        self.error: dict[str, BaseException] = {}

    def __call__(self, at: TableLocation, declared: Mapping[str, str], *_: object) -> FollowResult:
        self.turns.append(at.topic)
        if at.topic in self.error:
            raise self.error[at.topic]
        left = self.behind[at.topic] = max(0, self.behind.get(at.topic, 0) - 1)
        return FollowResult(at.topic, generation=1, rows=10, behind=left)


def topic(name: str, declared: Mapping[str, str]) -> TieredTopic:
    at = TableLocation(f"file:///{name}", name, UUID(int=1))
    return TieredTopic(Topic(name, "AA", UUID(int=1), 1, False, (0,)), at, 3.0, Limits(), declared)


def note(tables: DerivedTables, one: TieredTopic) -> None:
    assert one.location is not None
    snapshot = Snapshot(1, 1, {}, {}, 0, LiveFiles(pa.table({})))
    facts = TableFacts(1, 0, 0, 0, {})
    tables.opened(one, Opened(one.topic.name, one.location, {}, facts, snapshot))


def test_a_topic_without_a_format_has_no_turns() -> None:
    follower = Follower()
    tables = DerivedTables(WithoutRegistry(), ManualClock(), follower, lambda _at: None)
    note(tables, topic("plain", {}))
    assert not tables.round()
    assert follower.turns == [] and tables.status("plain", {}) == {}


def test_a_commit_is_followed_once_and_a_long_history_in_turns_with_others() -> None:
    follower, clock = Follower(), ManualClock()
    tables = DerivedTables(WithoutRegistry(), clock, follower, lambda _at: None)
    follower.behind["long"] = 4
    for name in ("long", "short"):
        note(tables, topic(name, JSON))
    while tables.round():
        clock.advance(1)
    assert sorted(follower.turns[:2]) == ["long", "short"]
    assert follower.turns.count("long") == 4 and follower.turns.count("short") == 1
    assert tables.status("long", {})["typed"].rows == 40
    assert tables.is_idle


def test_an_error_is_reported_and_tried_again_later() -> None:
    follower, clock = Follower(), ManualClock()
    tables = DerivedTables(WithoutRegistry(), clock, follower, lambda _at: None)
    follower.error["bad"] = ValueError("a decoder's fault")
    for name in ("bad", "good"):
        note(tables, topic(name, JSON))
    assert tables.round() and not tables.round()
    assert tables.status("bad", {})["typed"].error == "a decoder's fault"
    assert tables.problems() == {"bad": "a decoder's fault"}
    assert tables.status("good", {})["typed"].error == ""
    follower.error["bad"] = HeadwaterError("no registry")
    clock.advance(int(BACK_OFF_S[0] * 1000))
    assert tables.round()
    assert tables.status("bad", {})["typed"].error == "no registry"
    del follower.error["bad"]
    clock.advance(int(BACK_OFF_S[1] * 1000))
    assert tables.round()
    assert tables.problems() == {} and follower.turns.count("good") == 1


def test_a_quarantine_that_lags_is_followed_without_a_commit() -> None:
    clock, turns = ManualClock(), []

    def follow(at: TableLocation, *_: object) -> FollowResult:
        turns.append(at.topic)
        return FollowResult(at.topic, 1, quarantine_behind=3, quarantine_problem="disk full")

    tables = DerivedTables(WithoutRegistry(), clock, follow, lambda _at: None)
    note(tables, topic("t", JSON))
    tables.round()
    tables.round()
    assert turns == ["t"]
    clock.advance(int(LAGGING_EVERY_S * 1000))
    tables.round()
    assert turns == ["t", "t"]
    assert tables.status("t", {})["quarantine"].error == "disk full"
    tables.dropped(TableLocation("file:///t", "t", UUID(int=1)))
    assert tables.status("t", {}) == {}


class PanicError(BaseException):
    """As pyo3's PanicException, which deltalake raises: no Exception."""


def test_a_panic_in_a_library_stops_one_topic_only() -> None:
    follower = Follower()
    tables = DerivedTables(WithoutRegistry(), ManualClock(), follower, lambda _at: None)
    follower.error["bad"] = PanicError("called `Result::unwrap()` on an `Err` value")
    for name in ("bad", "good"):
        note(tables, topic(name, JSON))
    assert tables.round()
    assert sorted(follower.turns) == ["bad", "good"]
    assert "unwrap" in tables.problems()["bad"]


def test_the_status_tells_the_rows_that_the_tables_hold_after_a_restart() -> None:
    held = {"typed": 201, "quarantine": 3, "latest": 40}

    def follow(at: TableLocation, *_: object) -> FollowResult:
        return FollowResult(at.topic, 1, rows=1, held=held, latest=MergeResult(1, 1))

    tables = DerivedTables(WithoutRegistry(), ManualClock(), follow, lambda _at: None)
    note(tables, topic("t", JSON))
    tables.round()
    assert {kind: told.rows for kind, told in tables.status("t", {}).items()} == held


def test_records_above_the_last_turn_are_behind_in_every_derived_table() -> None:
    def follow(at: TableLocation, *_: object) -> FollowResult:
        return FollowResult(
            at.topic,
            1,
            log_ends={0: 100},
            behind=10,
            quarantined=1,
            quarantine_behind=5,
            latest=MergeResult(1, 1, behind=20),
        )

    tables = DerivedTables(WithoutRegistry(), ManualClock(), follow, lambda _at: None)
    note(tables, topic("t", JSON))
    [before] = tables.status("t", {0: 100}).values()
    assert (before.rows, before.behind) == (None, None)
    tables.round()
    found = {kind: one.behind for kind, one in tables.status("t", {0: 150, 1: 7}).items()}
    assert found == {"typed": 67, "quarantine": 72, "latest": 87}
