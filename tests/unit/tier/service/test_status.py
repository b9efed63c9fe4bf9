"""The status of a topic as metadata of an offset, and the rows of `headwater tier status`."""

from __future__ import annotations

from dataclasses import fields, replace
from uuid import UUID

from headwater.client.blocking.broker_metadata import Topic
from headwater.client.core.assignors import Subscription
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater_tier.cli.status import (
    NO_SERVICE,
    OPENING,
    SILENT_AFTER_MS,
    StatusRow,
    achieved,
    status_rows,
)
from headwater_tier.retention import Limits
from headwater_tier.service.membership import assign_topics, offsets_of
from headwater_tier.service.status import (
    METADATA_BYTES_MAX,
    DerivedStatus,
    TopicReport,
    TopicStatus,
    from_metadata,
)
from headwater_tier.service.topic_finder import TieredTopic
from headwater_tier.table_names import TableLocation

STATUS = TopicStatus(
    topic="t",
    state="tiering",
    table="file:///t",
    rows=10,
    size_bytes=1000,
    files=2,
    version=3,
    behind=1,
    behind_ms=500,
    asked_ms=3000,
    achieved_ms=2900,
    committed_ms=77,
    error="",
    error_ms=None,
    reported_ms=1_000_000,
    service="h:1",
    derived={"typed": DerivedStatus(9, 1, "no schema")},
)


def tiered(partitions: int = 2) -> dict[str, TieredTopic]:
    at = TableLocation("file:///t", "t", UUID(int=1))
    topic = Topic("t", "AA", UUID(int=1), partitions, False, (0, 0))
    return {"t": TieredTopic(topic, at, 3.0, Limits(), {})}


def test_a_status_survives_its_text() -> None:
    assert from_metadata(STATUS.to_metadata()) == STATUS


def test_a_long_error_is_cut_so_that_brokers_take_it() -> None:
    derived = {"typed": DerivedStatus(9, 1, "y" * 5000)}
    text = replace(STATUS, error="x" * 9000, derived=derived).to_metadata()
    assert len(text) <= METADATA_BYTES_MAX
    found = from_metadata(text)
    assert found is not None and found.error.startswith("xxx")


def test_a_topic_without_rows_in_partition_0_has_a_status() -> None:
    sent = offsets_of(TopicReport(STATUS, {2: 500}))
    rows = {p.partition_index: (p.committed_offset, p.committed_metadata) for p in sent.partitions}
    assert rows == {0: (0, STATUS.to_metadata()), 2: (500, "")}


def test_other_metadata_is_no_status() -> None:
    for text in ("", "consumed by x", "[]", '{"format":2}', '{"format":1,"topic":"t"}'):
        assert from_metadata(text) is None


def test_behind_is_computed_from_offsets_and_log_ends() -> None:
    offsets = {
        TopicPartition("t", 0): OffsetAndMetadata(7, STATUS.to_metadata()),
        TopicPartition("t", 1): OffsetAndMetadata(5, ""),
    }
    ends = {("t", 0): 10, ("t", 1): 5}
    [row] = status_rows(tiered(), ends, offsets, now_ms=STATUS.reported_ms + 1000, is_served=True)
    assert (row.state, row.behind, row.document()["rows"]) == ("tiering", 3, 10)
    assert row.report is not None
    assert row.report.derived["typed"].behind == 3, (
        "what came since the report is behind there, too"
    )


def test_the_achieved_intervals_of_many_topics_are_summed_up() -> None:
    def row(ms: int | None) -> StatusRow:
        return StatusRow("t", "tiering", 0, replace(STATUS, achieved_ms=ms))

    rows = [row(ms) for ms in range(100, 0, -1)]
    unknown = [row(None), StatusRow("t", "opening", None, None)]
    assert achieved([*rows, *unknown]) == {"p50": 50, "p95": 96, "max": 100}
    assert achieved([row(7)]) == {"p50": 7, "p95": 7, "max": 7}
    assert achieved(unknown) is None


def test_a_silent_or_absent_service_is_told() -> None:
    ends = {("t", 0): 10, ("t", 1): 5}
    [row] = status_rows(tiered(), ends, {}, now_ms=0, is_served=False)
    assert (row.state, row.behind) == (NO_SERVICE, None)
    assert row.document().keys() == {"behind", *(f.name for f in fields(TopicStatus))}
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(7, STATUS.to_metadata())}
    late = STATUS.reported_ms + SILENT_AFTER_MS + 1
    [row] = status_rows(tiered(), ends, offsets, late, is_served=True)
    assert row.state == NO_SERVICE


def test_a_table_that_a_service_has_not_reported_yet_is_opening() -> None:
    [row] = status_rows(tiered(), {("t", 0): 10, ("t", 1): 5}, {}, now_ms=0, is_served=True)
    assert (row.state, row.behind, row.report) == (OPENING, None, None)


def test_a_topic_without_a_folder_for_its_table_has_the_remedy() -> None:
    homeless = {"t": replace(tiered()["t"], location=None)}
    [row] = status_rows(homeless, {("t", 0): 1, ("t", 1): 1}, {}, now_ms=0, is_served=True)
    assert row.state == "failed" and "headwater.tables.uri" in row.error


def test_a_report_of_a_former_topics_table_is_named_and_not_shown_as_the_present_ones() -> None:
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(7, STATUS.to_metadata())}
    at = TableLocation("file:///t-of-another-id", "t", UUID(int=2))
    again = {"t": replace(tiered()["t"], location=at)}
    ends = {("t", 0): 10, ("t", 1): 5}
    [row] = status_rows(again, ends, offsets, STATUS.reported_ms, is_served=True)
    assert (row.state, row.report) == ("opening", None)
    assert "file:///t, the table of a former topic" in row.error


def test_topics_are_assigned_whole_and_few_move_when_a_service_joins() -> None:
    counts = {f"topic-{i}": 3 for i in range(300)}
    two = assign_topics({m: Subscription(()) for m in ("a", "b")}, counts)
    three = assign_topics({m: Subscription(()) for m in ("a", "b", "c")}, counts)
    for assignment in (two, three):
        owners = {tp.topic: member for member, rows in assignment.items() for tp in rows}
        assert len(owners) == 300 and sum(map(len, assignment.values())) == 900
        assert all(len(rows) > 900 / len(assignment) / 2 for rows in assignment.values())
    kept = {tp for m in ("a", "b") for tp in three[m] if tp in two[m]}
    assert kept == {tp for m in ("a", "b") for tp in three[m]}  # only the new one gained
