"""Planning while brokers change: gone and replaced topics, batches of an earlier run, limits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

from headwater.client.blocking.cluster import MissingTopicError
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.testing.clocks import ManualClock
from headwater_spark.options import EARLIEST, LATEST
from headwater_spark.source import batch_planner, positions
from headwater_spark.source.batch_planner import Planner
from headwater_spark.source.broker_metadata import Brokers, Topic
from headwater_spark.source.cold_files import ColdFiles
from headwater_spark.source.data_loss import DataLossError
from headwater_spark.source.data_source import HELD_S, StreamReader
from headwater_spark.source.history import History
from headwater_spark.source.positions import Position
from headwater_spark.source.pushdown import Comparison, read_window
from headwater_spark.source.source_options import source_options
from headwater_tier.live_files import LiveFile
from headwater_tier.table_names import TableLocation

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
SERVERS = {"bootstrap.servers": "h:1"}


class Log:
    """A topic's partitions as (log start, log end)."""

    def __init__(self, topic_id: str, *partitions: tuple[int, int]) -> None:
        self.topic_id = topic_id
        self.partitions = list(partitions)


class FakeBrokers:
    """The part of `Brokers` that planning calls; counts requests, and notes times asked for."""

    def __init__(self, **topics: Log) -> None:
        self.logs = topics
        self.requests: list[str] = []
        self.late_ms: dict[tuple[str, int], int] = {}
        """Partition -> the offset of the first record of any time; others have none so late."""
        self.listed: dict[str, Log] = {}
        """Topics that metadata still lists and that have no partitions any more."""
        self.config_error: ErrorCode | None = None

    def topics(self, names: Iterable[str] | None) -> dict[str, Topic]:
        self.requests.append("metadata")
        known = {**self.logs, **self.listed}
        wanted = sorted(known) if names is None else sorted(names)
        missing = [name for name in wanted if name not in known]
        if missing:
            raise UsageError(f"{missing[0]} does not exist")
        return {name: self._topic(name) for name in wanted}

    def topics_that_exist(self, names: Iterable[str]) -> dict[str, Topic]:
        return self.topics([n for n in names if n in self.logs or n in self.listed])

    def _topic(self, name: str) -> Topic:
        log = {**self.logs, **self.listed}[name]
        leaders = (0,) * len(log.partitions)
        return Topic(name, log.topic_id, UUID(int=1), len(leaders), False, leaders)

    def list_offsets(
        self, wanted: Mapping[tuple[str, int], int], _isolation: str = ""
    ) -> dict[tuple[str, int], int]:
        self.requests.append("offsets")
        found = {}
        for (topic, partition), at in wanted.items():
            if topic not in self.logs:
                raise MissingTopicError(topic)
            start, end = self.logs[topic].partitions[partition]
            words = {EARLIEST: start, LATEST: end}
            found[topic, partition] = words.get(at, self.late_ms.get((topic, partition), -1))
        return found

    def topic_configs(self, topic: str, _keys: Iterable[str]) -> dict[str, str]:
        if self.config_error is not None:
            raise KafkaError(self.config_error, topic)
        return {}


class Tables:
    """The log tables of topics: topic and version -> tiered ends."""

    def __init__(self, **versions: dict[int, int]) -> None:
        self.versions = versions

    def ends_at(self, topic: str, at: Any) -> dict[int, int]:
        return self.versions[f"{topic}{at}"]


class World:
    """A planner, its brokers and its clock; `then` changes the brokers while it waits."""

    def __init__(
        self,
        given: Mapping[str, str],
        brokers: FakeBrokers,
        *,
        streaming: bool,
        tables: Tables | None = None,
    ) -> None:
        self.brokers = brokers
        self.clock = ManualClock()
        self.waited_s = 0.0
        self.then: Callable[[], Any] = lambda: None
        options = source_options({**SERVERS, **given}, streaming=streaming)
        self.planner = Planner(
            options,
            self.clock,
            brokers=cast(Brokers, brokers),
            history=cast(History, tables) if tables else None,
            sleep=self._sleep,
        )
        schema = pa.schema([("value", pa.binary())])
        self.reader = StreamReader(options, schema, clock=self.clock, planner=self.planner)

    def _sleep(self, seconds: float) -> None:
        self.waited_s += seconds
        self.clock.advance(int(seconds * 1000))
        self.then()

    def latest(self, start: dict[str, Any], limit: Any = None) -> dict[str, Any]:
        """`latestOffset` at a moment when nothing is remembered of the last one."""
        self.clock.advance(int(max(HELD_S, batch_planner.METADATA_AGE_S) * 1000) + 1)
        return self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())


def stream(brokers: FakeBrokers, **given: str) -> World:
    start = {} if {"startingTimestamp", "startingOffsetsByTimestamp"} & given.keys() else {
        "startingOffsets": "earliest"
    }  # fmt: skip
    return World({**start, **given}, brokers, streaming=True)


def test_an_idle_poll_is_two_requests_or_one_and_returns_the_start_itself() -> None:
    world = stream(FakeBrokers(a=Log("id-a", (0, 5))), subscribe="a")
    first = world.latest(dict(positions.INITIAL))
    world.brokers.requests.clear()
    assert world.latest(first) is first
    assert world.brokers.requests == ["metadata", "offsets"]
    assert world.reader.latestOffset(first, ReadAllAvailable()) is first
    assert world.brokers.requests[2:] == ["offsets"]  # metadata at most ten times a second


def test_a_record_is_seen_by_the_next_poll() -> None:
    """Otherwise `processAllAvailable` returns before the record is processed."""
    world = stream(FakeBrokers(a=Log("id-a", (0, 5))), subscribe="a")
    first = world.latest(dict(positions.INITIAL))
    assert world.reader.latestOffset(first, ReadAllAvailable()) is first
    world.brokers.logs["a"].partitions[0] = (0, 6)
    later = world.reader.latestOffset(first, ReadAllAvailable())
    assert positions.from_json(later).end == {A0: 6}


def test_very_many_partitions_are_polled_ten_times_a_second() -> None:
    many = [(0, 5)] * (batch_planner.POLLED_PARTITIONS_MAX + 1)
    world = stream(FakeBrokers(a=Log("id-a", *many)), subscribe="a")
    first = world.latest(dict(positions.INITIAL))
    assert world.latest(first) is first
    world.brokers.requests.clear()
    assert world.reader.latestOffset(first, ReadAllAvailable()) is first
    assert world.brokers.requests == []
    world.brokers.logs["a"].partitions[0] = (0, 6)
    assert positions.from_json(world.latest(first)).end["a", 0] == 6


def test_new_partitions_and_topics_of_a_pattern_start_at_their_log_start() -> None:
    world = stream(FakeBrokers(ab=Log("1", (0, 5))), subscribePattern="a.*")
    first = positions.from_json(world.latest(dict(positions.INITIAL)))
    world.brokers.logs["ab"].partitions.append((3, 4))
    world.brokers.logs["ac"] = Log("2", (0, 0))
    world.brokers.logs["other"] = Log("3", (0, 9))
    later = positions.from_json(world.latest(first.to_json()))
    assert later == Position(
        {("ab", 0): 5, ("ab", 1): 3, ("ac", 0): 0},
        {("ab", 0): 5, ("ab", 1): 4, ("ac", 0): 0},
        {"ab": "1", "ac": "2"},
    )


def test_a_topic_missing_from_metadata_for_a_moment_is_no_loss() -> None:
    world = stream(FakeBrokers(a=Log("1", (0, 5)), b=Log("2", (0, 5))), subscribePattern=".*")
    first = world.latest(dict(positions.INITIAL))
    gone = world.brokers.logs.pop("b")
    world.then = lambda: world.brokers.logs.setdefault("b", gone)
    assert world.latest(first) == first
    assert 0 < world.waited_s < 1


def test_a_topic_deleted_between_metadata_and_offsets_is_looked_for_again() -> None:
    world = stream(FakeBrokers(a=Log("1", (0, 5)), b=Log("2", (0, 5))), subscribe="a,b",
                   failOnDataLoss="false")  # fmt: skip
    first = world.latest(dict(positions.INITIAL))
    gone = world.brokers.logs.pop("b")
    world.brokers.logs["a"].partitions[0] = (0, 6)
    world.brokers.listed = {"b": gone}  # by metadata that is older
    world.then = world.brokers.listed.clear
    for later in (world.reader.latestOffset(first, ReadAllAvailable()), world.latest(first)):
        assert positions.from_json(later).end == {A0: 6, B0: 5}


@pytest.mark.parametrize("name", ["subscribePattern", "subscribe"])
def test_a_deleted_topic_is_a_loss_after_a_wait(name: str) -> None:
    value = ".*" if name == "subscribePattern" else "a,b"
    world = stream(FakeBrokers(a=Log("1", (0, 5)), b=Log("2", (0, 5))), **{name: value})
    first = world.latest(dict(positions.INITIAL))
    del world.brokers.logs["b"]
    with pytest.raises(DataLossError, match=r"topic b is gone\. Set failOnDataLoss=false"):
        world.latest(first)
    assert world.waited_s == pytest.approx(batch_planner.VANISHED_TOPIC_S, abs=0.5)


def test_without_fail_on_data_loss_the_others_go_on_and_a_new_topic_is_read_from_its_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = stream(
        FakeBrokers(a=Log("1", (0, 5)), b=Log("2", (0, 5))), subscribe="a,b", failOnDataLoss="false"
    )
    offset = world.latest(dict(positions.INITIAL))
    del world.brokers.logs["b"]
    with caplog.at_level(logging.WARNING):
        assert world.latest(offset) is offset
        waited = world.waited_s
        world.brokers.logs["a"].partitions[0] = (0, 6)
        offset = world.latest(offset)
    assert world.waited_s == waited  # it was waited for once
    assert [r.getMessage().count("topic b is gone") for r in caplog.records] == [1]
    assert positions.from_json(offset).end == {A0: 6, B0: 5}
    world.brokers.logs["b"] = Log("new", (0, 3))
    with caplog.at_level(logging.WARNING):
        offset = world.latest(offset)
    assert "b was deleted and created again (id 2, now new)" in caplog.text
    last = positions.from_json(offset)
    assert (last.start[B0], last.end[B0], last.topic_ids["b"]) == (0, 3, "new")


def test_a_recreated_topic_is_an_error_with_both_ids() -> None:
    world = stream(FakeBrokers(a=Log("old", (0, 5))), subscribe="a")
    first = world.latest(dict(positions.INITIAL))
    world.brokers.logs["a"] = Log("new", (0, 9))
    with pytest.raises(DataLossError, match=r"deleted and created again \(id old, now new\)"):
        world.latest(first)


LOGGED = Position({A0: 0}, {A0: 5}, {"a": "old"})


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (Log("new", (0, 9)), "offsets 0 to 4 of topic id old, but the topic now has id new"),
        (Log("old", (0, 3)), "offsets 0 to 4, but the log has 0 to 2"),
        (Log("old", (2, 9)), "offsets 0 to 4, but the log has 2 to 8"),
    ],
)
def test_an_unfinished_batch_is_held_against_the_log_before_it_is_read(
    log: Log, words: str
) -> None:
    world = stream(FakeBrokers(a=log), subscribe="a")
    with pytest.raises(DataLossError, match=words):
        world.reader.partitions(dict(positions.INITIAL), LOGGED.to_json())
    lenient = stream(FakeBrokers(a=log), subscribe="a", failOnDataLoss="false")
    splits = lenient.reader.partitions(dict(positions.INITIAL), LOGGED.to_json())
    left = [(s.planned.split.start_offset, s.planned.split.end_offset) for s in splits]
    assert (
        left
        == {"new": [], "old": [(log.partitions[0][0], min(5, log.partitions[0][1]))]}[log.topic_id]
    )


def test_an_unfinished_batch_waits_for_a_leader_that_lags() -> None:
    log = Log("old", (0, 3))
    world = stream(FakeBrokers(a=log), subscribe="a")
    world.then = lambda: log.partitions.__setitem__(0, (0, 5))
    assert len(world.reader.partitions(dict(positions.INITIAL), LOGGED.to_json())) == 1
    assert world.waited_s > 0


def test_a_batch_of_this_run_costs_no_request_to_plan() -> None:
    world = stream(FakeBrokers(a=Log("1", (0, 5))), subscribe="a")
    first = world.latest(dict(positions.INITIAL))
    world.brokers.requests.clear()
    assert len(world.reader.partitions(dict(positions.INITIAL), first)) == 1
    assert world.brokers.requests == []


def test_without_the_right_to_read_configs_all_is_read_from_the_brokers() -> None:
    """READ alone, as Kafka's consumers have it: brokers serve what is in the table too."""
    world = stream(FakeBrokers(a=Log("old", (0, 5))), subscribe="a")
    world.brokers.config_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    (split,) = world.reader.partitions(dict(positions.INITIAL), LOGGED.to_json())
    assert split.planned.files is None
    other = stream(FakeBrokers(a=Log("old", (0, 5))), subscribe="a")
    other.brokers.config_error = ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(KafkaError):
        other.reader.partitions(dict(positions.INITIAL), LOGGED.to_json())


def test_a_run_of_available_now_reports_a_truncated_log_instead_of_ending() -> None:
    log = Log("1", (0, 5))
    world = stream(FakeBrokers(a=log), subscribe="a")
    first = world.latest(dict(positions.INITIAL))
    log.partitions[0] = (0, 3)
    assert world.latest(first) is first  # an endless run asks again
    world.reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="the log ends at 3, but the query has read up to 5"):
        world.latest(first)
    assert world.waited_s >= batch_planner.LEADER_CATCH_UP_S


def test_a_small_batch_waits_for_more_offsets_or_the_longest_delay() -> None:
    log = Log("1", (0, 2))
    world = stream(FakeBrokers(a=log), subscribe="a", minOffsetsPerTrigger="10",
                   maxTriggerDelay="60s")  # fmt: skip
    assert world.reader.getDefaultReadLimit() == ReadMinRows(10)
    first = world.latest(dict(positions.INITIAL))  # the first batch pins the start at once
    log.partitions[0] = (0, 11)
    assert world.latest(first) is first
    assert positions.from_json(world.reader.reportLatestOffset() or {}).end == {A0: 11}
    log.partitions[0] = (0, 12)
    second = world.latest(first)
    assert positions.from_json(second).end == {A0: 12}
    log.partitions[0] = (0, 13)
    assert world.latest(second) is second
    world.clock.advance(60_000)
    third = world.latest(second)
    assert positions.from_json(third).end == {A0: 13}
    log.partitions[0] = (0, 14)
    assert world.latest(third) is third
    assert world.latest(third, ReadAllAvailable()) != third  # Trigger.Once takes all there is


def test_available_now_leaves_nothing_behind_for_want_of_offsets() -> None:
    log = Log("1", (0, 5))
    world = stream(FakeBrokers(a=log), subscribe="a", minOffsetsPerTrigger="10")
    first = world.latest(dict(positions.INITIAL))
    log.partitions[0] = (0, 6)
    world.reader.prepareForTriggerAvailableNow()
    assert positions.from_json(world.latest(first)).end == {A0: 6}


@pytest.mark.parametrize(
    "given",
    [{"startingTimestamp": "7"}, {"startingOffsetsByTimestamp": '{"a":{"0":7,"1":8}}'}],
)
def test_a_start_by_time_without_such_a_record_is_an_error_or_the_end(given: dict) -> None:
    brokers = FakeBrokers(a=Log("1", (0, 5), (0, 9)))
    brokers.late_ms = {A0: 2}
    with pytest.raises(UsageError, match=r"in a-1 \([78]\); set startingOffsetsByTimestampStrateg"):
        stream(brokers, subscribe="a", **given).planner.first()
    latest = stream(brokers, subscribe="a", startingOffsetsByTimestampStrategy="latest", **given)
    assert latest.planner.first().start == {A0: 2, A1: 9}


def test_an_end_by_time_without_such_a_record_is_the_logs_end() -> None:
    brokers = FakeBrokers(a=Log("1", (0, 5), (0, 9)))
    brokers.late_ms = {A0: 2}
    given = {"subscribe": "a", "endingOffsetsByTimestamp": '{"a":{"0":7,"1":8}}'}
    assert World(given, brokers, streaming=False).planner.batch().end == {A0: 2, A1: 9}


@pytest.mark.parametrize("name", ["startingOffsetsByTimestamp", "startingOffsets", "endingOffsets"])
def test_bounds_by_partition_name_every_partition(name: str) -> None:
    brokers = FakeBrokers(a=Log("1", (0, 5), (0, 9)))
    given = {"subscribe": "a", name: '{"a":{"0":3,"4":3}}'}
    with pytest.raises(UsageError, match=f"{name}' must name every.*missing a-1; unknown a-4"):
        World(given, brokers, streaming=False).planner.batch()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": '{"a":{"0":6}}'}, "starting offset 6 is outside the log"),
        ({"endingOffsets": '{"a":{"0":6}}'}, "ending offset 6 is beyond the log's end 5"),
    ],
)
def test_offsets_beyond_the_log_are_an_error_before_anything_is_read(
    given: dict[str, str], words: str
) -> None:
    brokers = FakeBrokers(a=Log("1", (0, 5)))
    with pytest.raises(DataLossError, match=words):
        World({"subscribe": "a", **given}, brokers, streaming=False).planner.batch()
    lenient = {"subscribe": "a", "failOnDataLoss": "false", **given}
    assert World(lenient, brokers, streaming=False).planner.batch().end == {A0: 5}


def test_filters_leave_out_partitions_and_early_offsets() -> None:
    brokers = FakeBrokers(a=Log("1", (0, 5), (0, 9)))
    brokers.late_ms = {A0: 2, A1: 4}
    world = World({"subscribe": "a"}, brokers, streaming=False)
    position = world.planner.batch(read_window([Comparison("partition", "=", 1)]))
    assert [s.split.partition for s in world.planner.splits(position)] == [1]
    late = datetime(2026, 11, 24, tzinfo=UTC)
    window = read_window([Comparison("timestamp", ">=", late), Comparison("partition", "=", 1)])
    (planned,) = world.planner.splits(world.planner.batch(window))
    assert (planned.split.start_offset, planned.split.end_offset) == (4, 9)


@pytest.mark.parametrize(
    ("option", "start"),
    [("3", {A0: 4, A1: 2}), ('{"a":4}', {A0: 5, A1: 9})],
)
def test_a_start_after_a_tables_version_is_its_tiered_end_or_the_log_start(
    option: str, start: dict
) -> None:
    tables = Tables(a3={0: 4, 7: 1}, a4={0: 5, 1: 9})
    brokers = FakeBrokers(a=Log("1", (0, 5), (2, 9)))
    given = {"subscribe": "a", "fromDeltaVersion": option}
    world = World(given, brokers, streaming=True, tables=tables)
    assert world.planner.first().start == start


def test_a_start_after_a_version_that_the_log_no_longer_reaches_is_a_loss() -> None:
    brokers, tables = FakeBrokers(a=Log("1", (6, 9))), Tables(a3={0: 4})
    given = {"subscribe": "a", "fromDeltaVersion": "3"}
    world = World(given, brokers, streaming=True, tables=tables)
    with pytest.raises(DataLossError, match="starting offset 4 is outside the log"):
        world.planner.first()


@pytest.mark.parametrize(
    ("option", "words"),
    [("3", "reads 2 topics, each with a table"), ('{"a":3,"c":1}', "missing b; unknown c")],
)
def test_versions_must_be_of_the_topics_that_are_read(option: str, words: str) -> None:
    brokers = FakeBrokers(a=Log("1", (0, 5)), b=Log("2", (0, 5)))
    world = World({"subscribe": "a,b", "fromDeltaVersion": option}, brokers, streaming=True)
    with pytest.raises(UsageError, match=words):
        world.planner.first()


class GapTable:
    """The history of a restored topic: rows below OLD, and from OLD + a gap of 2**33 on."""

    old, first = 5_000, 5_000 + (1 << 33)

    def is_tiered(self, _topic: str) -> bool:
        return True

    def next_row(self, _topic: str, _topic_id: str, _partition: int, offset: int) -> int:
        return self.first if self.old <= offset < self.first else offset

    def look(self, _topic: str, _topic_id: str) -> ColdFiles:
        old = LiveFile("old", 1, self.old, 0, 0, 0, 0, self.old - 1)
        new = LiveFile("new", 1, 30, 0, 0, 0, self.first, self.first + 29)
        where = TableLocation("/t/a", "a", UUID(int=1))
        return ColdFiles(where, 1, {0: (0, self.first + 30)}, (old, new))

    def runs(self, *_asked: object) -> tuple[tuple[int, int], ...]:
        return (0, self.old), (self.first, self.first + 30)


class TieredBrokers(FakeBrokers):
    """Brokers that have nothing locally."""

    def local_starts(self, wanted: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(wanted, GapTable.first + 30)


def test_splits_by_offsets_leave_a_wide_gap_out() -> None:
    table = GapTable()
    brokers = TieredBrokers(a=Log("id-a", (0, table.first + 30)))
    given = {"subscribe": "a", "maxRecordsPerPartition": "2500"}
    world = World(given, brokers, streaming=False, tables=cast(Tables, table))
    parts = [planned.split for planned in world.planner.splits(world.planner.batch())]
    spans = [(0, 2_500), (2_500, 5_000), (table.first, table.first + 30)]
    assert [(s.start_offset, s.end_offset) for s in parts] == spans
    assert all(split.cold for split in parts)


def test_a_limited_stream_passes_a_gap_in_one_batch() -> None:
    """`maxOffsetsPerTrigger` counts offsets: millions of batches would have no record."""
    table = GapTable()
    brokers = FakeBrokers(a=Log("id-a", (0, table.first + 30)))
    given = {"subscribe": "a", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2000"}
    world = World(given, brokers, streaming=True, tables=cast(Tables, table))
    ends, at = [], world.latest(dict(positions.INITIAL))
    while (end := positions.from_json(at).end[A0]) not in ends:
        ends.append(end)
        at = world.latest(at)
    assert ends == [2_000, 4_000, table.first, table.first + 30]
