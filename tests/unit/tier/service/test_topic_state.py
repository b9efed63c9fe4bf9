"""How a turn is shared among a topic's partitions, and what a topic's state says."""

from __future__ import annotations

from uuid import UUID

from headwater.client.blocking.broker_metadata import Topic
from headwater.errors import HeadwaterError
from headwater_tier.retention import Limits
from headwater_tier.service.reports import status_of
from headwater_tier.service.schedule import TopicSchedule
from headwater_tier.service.topic_finder import TieredTopic, tiered_topic
from headwater_tier.service.topic_state import TopicState
from headwater_tier.table_names import TableLocation

ID = UUID(int=7)


def topic(partitions: int = 3) -> Topic:
    return Topic("t", "AAAA", ID, partitions, False, (0,) * partitions)


def state(ends: dict[int, int], stable: dict[int, int]) -> TopicState:
    location = TableLocation("file:///tables/t", "t", ID)
    settings = TieredTopic(topic(len(stable)), location, 3.0, Limits(), {})
    made = TopicState(settings, location, planned=dict(ends), ends=dict(ends), stable=stable)
    made.log_starts, made.starts_at = dict.fromkeys(stable, 0), 0.0
    return made


def sizes(found: TopicState, offsets_max: int) -> tuple[dict[int, int], bool]:
    ranges, has_more = found.plan(offsets_max)
    return {r.partition: r.end_offset - r.start_offset for r in ranges}, has_more


def test_everything_fits() -> None:
    assert sizes(state({0: 5, 1: 0}, {0: 10, 1: 3}), 100) == ({0: 5, 1: 3}, False)


def test_partitions_share_a_turn_and_small_ones_leave_their_room() -> None:
    found = state({0: 0, 1: 0, 2: 0}, {0: 1000, 1: 10, 2: 1000})
    assert sizes(found, 110) == ({0: 50, 1: 10, 2: 50}, True)


def test_a_turn_takes_at_least_one_offset_of_each() -> None:
    assert sizes(state({0: 0, 1: 0}, {0: 9, 1: 9}), 1) == ({0: 1, 1: 1}, True)


def test_a_new_partition_starts_at_its_log_start() -> None:
    found = state({0: 5}, {0: 5, 1: 20})
    found.log_starts = {0: 0, 1: 12}
    ranges, _ = found.plan(100)
    assert [(r.partition, r.expected_end, r.start_offset, r.end_offset) for r in ranges] == [
        (1, None, 12, 20)
    ]


def test_a_partition_whose_log_start_is_not_known_waits_for_it() -> None:
    found = state({0: 5}, {0: 5, 1: 20})
    found.log_starts = {}
    assert found.needs_starts
    assert found.plan(100) == ((), False)


def test_planned_ranges_are_not_planned_again_until_a_failure() -> None:
    found = state({0: 0}, {0: 10})
    ranges, _ = found.plan(100)
    found.took(ranges)
    assert (found.behind, found.in_flight) == (0, 1)
    found.failed(HeadwaterError("disk\nfull"), now_ms=9)
    assert (found.planned, found.error, found.error_ms) == (None, "disk full", 9)


def test_the_status_of_a_failed_topic_names_the_error_and_its_age() -> None:
    found, schedule = state({0: 4}, {0: 10}), TopicSchedule(3.0)
    schedule.saw(0, now=1.0)
    schedule.saw(6, now=2.0)
    found.failed(HeadwaterError("no such table"), now_ms=50)
    status = status_of(found, schedule, now=9.0, now_ms=99, service="h:1")
    assert (status.state, status.error, status.behind, status.behind_ms) == (
        "failed",
        "no such table",
        6,
        8000,
    )


def test_a_topics_configs_say_where_and_how_it_is_tiered() -> None:
    configs = {
        "headwater.table.uri": "s3://lake/own/",
        "delta.interval.ms": "500",
        "retention.ms": "1000",
        "headwater.value.format": "json",
        "headwater.key.format": "",
    }
    found = tiered_topic(topic(), configs, "file:///base")
    assert found.location is not None and found.location.uri.startswith("s3://lake/own/t-")
    assert (found.interval_s, found.limits) == (0.5, Limits(1000, -1))
    assert found.declared == {"headwater.value.format": "json"}


def test_a_compacted_topic_has_no_retention_and_one_without_a_folder_no_table() -> None:
    found = tiered_topic(topic(), {"cleanup.policy": "compact", "retention.ms": "5"}, "")
    assert (found.limits, found.location, found.interval_s) == (Limits(), None, 3.0)
