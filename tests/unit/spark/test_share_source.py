"""The queue source: its options, its offsets, and what the driver holds of its share group."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headwater import AcknowledgeType, ShareRecord, TopicPartition
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.system import SystemClock
from headwater_spark.source.data_source import HeadwaterDataSource, RefusedReader
from headwater_spark.source.input_partitions import Split
from headwater_spark.source.share_offsets import ShareBatch, from_json, nothing_yet, ranges_of
from headwater_spark.source.share_options import ShareOptions, share_options
from headwater_spark.source.share_queue import ShareQueue
from headwater_spark.source.share_reader import ShareStreamReader

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "sharegroup": "g"}
LOCKS = {"headwater.delivery": "at-least-once"}
LIMIT_S = 10.0


def options(**more: str) -> ShareOptions:
    return share_options({**GIVEN, **more}, streaming=True)


def test_the_options_of_a_share_source() -> None:
    found = options(maxOffsetsPerTrigger="7")
    assert (found.group, found.topics, found.max_records) == ("g", ("t",), 7)
    assert options().max_records == 10_000


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("startingOffsets", "earliest", "set share.auto.offset.reset of the group"),
        ("assign", '{"t":[0]}', "name the topics with subscribe"),
        ("kafka.isolation.level", "read_committed", "set share.isolation.level of the group"),
        ("minPartitions", "4", "the partitions with acquired records"),
    ],
)
def test_options_that_do_not_fit_are_refused(name: str, value: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=f"{name!r} does not go with 'shareGroup'.*{remedy}"):
        options(**{name: value})


def test_a_batch_read_and_an_empty_name_are_refused() -> None:
    with pytest.raises(UsageError, match="'shareGroup' is for streams"):
        share_options(GIVEN, streaming=False)
    with pytest.raises(UsageError, match="'shareGroup' is empty"):
        options(sharegroup=" ")


def test_the_data_source_chooses_the_reader() -> None:
    from pyspark.sql.types import BinaryType, StructType

    schema = StructType().add("value", BinaryType())
    source = HeadwaterDataSource(dict(GIVEN))
    assert isinstance(source.streamReader(schema), ShareStreamReader)
    refused = HeadwaterDataSource({**GIVEN, "startingOffsets": "earliest"}).streamReader(schema)
    assert isinstance(refused, RefusedReader)
    with pytest.raises(UsageError, match="is for streams"):
        source.reader(schema)


def test_an_offset_is_read_back_and_another_groups_is_refused() -> None:
    batch = ShareBatch("g", 3, {("t", 0): [(1, 4), (7, 7)], ("t", 1): [(0, 9)]}, {"t": "id"})
    text = batch.to_json()
    assert text["acquired"] == {"t": {"0": [[1, 4], [7, 7]], "1": [[0, 9]]}}
    assert from_json(text, "g") == batch
    assert batch.holds("t", 0, 7)
    assert not batch.holds("t", 0, 5)
    assert not batch.holds("u", 0, 7)
    assert from_json(nothing_yet("g").to_json(), "g").number == 0
    with pytest.raises(UsageError, match="the checkpoint is of share group 'g', the query is of"):
        from_json(text, "h")
    with pytest.raises(UsageError, match="no share source of this version wrote"):
        from_json({"from": {}, "to": {}, "topics": {}, "v": 1}, "g")


def test_ranges_join_neighbours() -> None:
    assert ranges_of([4, 1, 2, 9, 3]) == [(1, 4), (9, 9)]


class Member:
    """A share consumer's double: gives polls in turn, and notes each acknowledgement."""

    def __init__(self, *polls: list[tuple[int, int]], lock_ms: int = 30_000) -> None:
        """A poll's rows are (offset, delivery count) of t-0."""
        self.polls = list(polls)
        self.lock_ms = lock_ms
        self.told: list[tuple[int, str]] = []
        self.errors: dict[TopicPartition, KafkaError | None] = {}
        self.is_closed = False
        self.renewed = threading.Event()

    def statistics(self) -> Any:
        return type("Statistics", (), {"assigned": [TopicPartition("t", 0)]})

    def poll(self, timeout_ms: float) -> dict[TopicPartition, list[ShareRecord]]:
        rows = []
        for offset, count in self.polls.pop(0) if self.polls else []:
            row = ShareRecord("t", 0, offset, 0, 0, None, b"v", [], 0)
            row.delivery_count = count
            rows.append(row)
        return {TopicPartition("t", 0): rows} if rows else {}

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        self.told.append((record.offset, kind.name))

    def acknowledge_offset(self, tp: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        self.told.append((offset, kind.name))
        if kind is AcknowledgeType.RENEW:
            self.renewed.set()

    def acquisition_lock_timeout_ms(self) -> int:
        return self.lock_ms

    def commit(self) -> dict[TopicPartition, KafkaError | None]:
        return self.errors

    def commit_async(self) -> None:
        self.told.append((-1, "SENT"))

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def made() -> Iterator[list[ShareQueue]]:
    queues: list[ShareQueue] = []
    yield queues
    for queue in queues:
        queue.close()


def queue_of(member: Any, made: list[ShareQueue]) -> ShareQueue:
    queue = ShareQueue(options(), SystemClock(), lambda: {"t": "id"}, member)
    made.append(queue)
    return queue


def test_a_batch_is_accepted_once_it_is_complete(made: list[ShareQueue]) -> None:
    member = Member([(0, 1), (1, 1), (3, 2)], [(4, 1)])
    queue = queue_of(member, made)
    first = queue.next(nothing_yet("g"), None)
    assert first == ShareBatch("g", 1, {("t", 0): [(0, 1), (3, 3)]}, {"t": "id"})
    assert queue.next(nothing_yet("g"), None) == first  # asked again before it ran
    assert member.told == []
    second = queue.next(first, None)
    assert member.told == [(0, "ACCEPT"), (1, "ACCEPT"), (3, "ACCEPT")]
    assert second is not None
    assert (second.number, second.acquired) == (2, {("t", 0): [(4, 4)]})
    queue.completed(first)
    assert len(member.told) == 3
    queue.completed(second)
    assert member.told[3:] == [(4, "ACCEPT")]
    assert queue.next(second, None) is None


def test_the_last_complete_batch_is_not_processed_twice_after_a_restart(
    made: list[ShareQueue],
) -> None:
    done = ShareBatch("g", 5, {("t", 0): [(10, 12)]}, {"t": "id"})
    member = Member([(10, 2), (11, 2)], [(12, 1), (13, 1)])
    batch = queue_of(member, made).next(done, None)
    assert member.told == [(10, "ACCEPT"), (11, "ACCEPT")]
    # 12 was delivered for the first time: the group was reset to it.
    assert batch is not None
    assert batch.acquired == {("t", 0): [(12, 13)]}


def test_a_run_with_an_end_ends_and_releases_nothing(made: list[ShareQueue]) -> None:
    member = Member([(0, 1)], [(5, 1)], [(6, 1)])
    queue = queue_of(member, made)
    ends = {("t", 0): 5}
    first = queue.next(nothing_yet("g"), ends)
    assert first is not None
    last = queue.next(first, ends)
    assert last is not None
    assert last.acquired == {("t", 0): [(5, 5)]}
    assert queue.next(last, ends) is None
    assert [kind for _, kind in member.told if kind != "SENT"] == ["ACCEPT", "ACCEPT"]


def test_locks_are_renewed_while_a_batch_runs(made: list[ShareQueue]) -> None:
    member = Member([(0, 1)], lock_ms=30)
    queue = queue_of(member, made)
    queue.next(nothing_yet("g"), None)
    assert member.renewed.wait(LIMIT_S)


def test_a_refused_acceptance_is_a_warning(
    made: list[ShareQueue], caplog: pytest.LogCaptureFixture
) -> None:
    member = Member([(0, 1)])
    queue = queue_of(member, made)
    first = queue.next(nothing_yet("g"), None)
    assert first is not None
    member.errors = {TopicPartition("t", 0): KafkaError(ErrorCode.INVALID_RECORD_STATE, "late")}
    queue.completed(first)
    assert "records of t-0 were not accepted, and are delivered again" in caplog.text


def test_tasks_read_the_acquired_ranges() -> None:
    reader = ShareStreamReader(options(**LOCKS), pytest.importorskip("pyarrow").schema([]))
    assert reader.initialOffset() == nothing_yet("g").to_json()
    batch = ShareBatch("g", 1, {("t", 0): [(0, 1), (3, 3)]}, {"t": "id"})
    (partition,) = reader.partitions(nothing_yet("g").to_json(), batch.to_json())
    assert partition.planned.splits == (
        Split("t", 0, 0, 2, topic_id="id"),
        Split("t", 0, 3, 4, topic_id="id"),
    )
