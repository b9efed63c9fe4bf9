"""What `headwater status` computes from the brokers' documents, and its tables."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from headwater.cli.status import ClusterWatcher, watch
from headwater.cli.status_tables import bar, render
from headwater.cli.status_view import (
    Answer,
    GroupRow,
    StatusView,
    as_document,
    build_view,
    check_format,
    rates_between,
)
from headwater.local.cluster_file import ClusterFile


def row(led: bool, *, end: int = 100, watermark: int = 90, **more: Any) -> dict[str, Any]:
    return {
        "topic": "flights",
        "partition": 0,
        "leader": 0,
        "leader_epoch": 3,
        "is_leader": led,
        "replicas": [0, 1],
        "isr": [0, 1],
        "log_start_offset": 20,
        "local_log_start_offset": 40,
        "high_watermark": watermark,
        "log_end_offset": end,
        "size_bytes": 1000,
        "offline_reason": None,
        **more,
    }


def view(*rows: dict[str, Any], at: float = 1.0, bytes_in: int = 0) -> StatusView:
    answers = [
        Answer(
            broker,
            f"127.0.0.1:{9092 + broker}",
            ready=True,
            document={
                "controller_id": 1,
                "hosted": {"partitions": [found]},
                "rates": {"bytes_in_total": bytes_in, "bytes_out_total": 0},
            },
        )
        for broker, found in enumerate(rows)
    ]
    return build_view(answers, "abc", at)


def test_a_partition_that_moves_is_healthy() -> None:
    moving = {"replicas": [2, 0, 1], "isr": [0, 1]}
    assert not view(row(True, **moving)).healthy
    assert view(row(True, **moving, adding_replicas=[2])).healthy
    assert not view(row(True, **{**moving, "isr": [0]}, adding_replicas=[2])).healthy


def test_the_leaders_row_is_the_partition_and_followers_give_lag() -> None:
    shown = view(row(True), row(False, end=70))
    (partition,) = shown.partitions
    assert (partition.leader, partition.log_end_offset, partition.lag) == (0, 100, {1: 30})
    assert [b.controller for b in shown.brokers] == [False, True]
    assert [b.leaders for b in shown.brokers] == [1, 0]
    assert shown.healthy


def test_a_partition_without_a_leader_says_why() -> None:
    reason = "disk wiped"
    shown = view(row(False, offline_reason=reason), row(False, end=70))
    assert shown.partitions[0].leader == -1
    assert shown.partitions[0].offline_reason == reason
    assert not shown.healthy


def test_of_two_leaders_the_higher_epoch_is_right() -> None:
    shown = view(row(True), row(True, leader=1, leader_epoch=4, end=95))
    assert shown.partitions[0].leader == 1


def test_the_share_in_delta_ends_where_hot_begins() -> None:
    assert view(row(True)).partitions[0].delta_share == 0.25
    assert view(row(True, tiered_end_offset=60)).partitions[0].delta_share == 0.5
    assert view(row(True, end=20, watermark=20)).partitions[0].delta_share == 0.0


def test_a_broker_that_does_not_answer_is_shown_with_the_others() -> None:
    answers = [
        Answer(0, "127.0.0.1:9092", ready=True, document={"hosted": {"partitions": [row(True)]}}),
        Answer(1, "127.0.0.1:9093", problem="does not answer"),
    ]
    shown = build_view(answers, "abc", 1.0)
    assert not shown.healthy
    assert shown.brokers[1].problem == "does not answer"
    assert shown.partitions[0].leader == 0


def test_a_document_of_another_format_is_refused() -> None:
    check_format({"format": 1, "of_a_newer_broker": 1})
    for found in ({"format": 2}, {}):
        with pytest.raises(ValueError, match="this command reads 1"):
            check_format(found)


def test_a_partition_without_a_live_replica_is_known_from_metadata() -> None:
    state = {
        "partition": 2,
        "leader": -1,
        "leader_epoch": 7,
        "replicas": [2],
        "isr": [2],
        "offline_reason": "broker 2 is down",
    }
    topic = {"topic": "flights", "partitions": [state]}
    answers = [Answer(0, "127.0.0.1:9092", ready=True, document={"topics": [topic]})]
    (partition,) = build_view(answers, "abc", 1.0).partitions
    assert (partition.name, partition.leader) == ("flights-2", -1)
    assert partition.offline_reason == "broker 2 is down"


def test_rates_are_per_second_and_never_negative() -> None:
    before = view(row(True, watermark=50), at=1.0, bytes_in=1000)
    now = view(row(True, watermark=90), at=3.0, bytes_in=5000)
    moved = rates_between(before, now)
    assert moved.records == {"flights-0": 20.0}
    assert moved.bytes_in == {0: 2000.0}
    restarted = rates_between(now, view(row(True, watermark=50), at=4.0, bytes_in=10))
    assert restarted.records == {"flights-0": 0.0}
    assert restarted.bytes_in == {0: 0.0}
    assert rates_between(None, now).records == {}


def text_of(shown: StatusView, width: int = 140, *, internal: bool = False) -> str:
    """The tables as a terminal of this width has them."""
    cluster = ClusterFile("abc", 2, 9092, bootstrap_servers="127.0.0.1:9092")
    tables = render(shown, rates_between(None, shown), cluster, internal=internal, width=width)
    out = io.StringIO()
    Console(file=out, width=width).print(tables)
    return out.getvalue()


def test_views_render_and_serialise() -> None:
    shown = view(row(True), row(False, end=70))
    assert as_document(shown, rates_between(None, shown))["partitions"][0]["lag"] == {"1": 30}
    assert "25%" in bar(shown.partitions[0]).plain
    text = text_of(shown)
    assert "flights-0" in text and "in Delta" in text and "turn" not in text


@pytest.mark.parametrize("width", [80, 100, 140])
def test_no_row_needs_a_second_line_on_a_narrow_terminal(width: int) -> None:
    """`--watch` wrapped at 100 columns."""
    size = {"end": 9_876_543_210, "watermark": 9_876_543_210, "size_bytes": 987_654_321_000}
    topic = {"topic": "__consumer_offsets", "isr": [0, 1, 2], **size}
    document: dict[str, Any] = {
        "controller_id": 0,
        "hosted": {"partitions": [row(True, partition=p, **topic) for p in (0, 17)]},
        "rss_bytes": 987_000_000,
    }
    answers = [
        Answer(0, "127.0.0.1:19090", ready=True, document=document),
        Answer(1, "127.0.0.1:19091", problem="does not answer"),
    ]
    text = text_of(build_view(answers, "abc", 1.0), width, internal=True)
    lines = [words for line in text.splitlines() if (words := line.split())]
    titles = ("cluster", "bootstrap", "brokers", "partitions", "broker", "partition")
    rows = ("0", "1", "__consumer_offsets-0", "__consumer_offsets-17")
    firsts = [words[0] for words in lines if not words[0].startswith("─")]
    assert sorted(firsts) == sorted((*titles, *rows)), text
    assert ["1", "127.0.0.1:19091", "does", "not", "answer"] in [words[:5] for words in lines]
    assert "█ 0%" in text, "what is left out is of less importance"


def test_without_any_answer_the_topics_are_not_said_to_be_none() -> None:
    """It said `no topics yet`."""
    answers = [Answer(b, f"h:{b}", problem="does not answer") for b in range(3)]
    text = text_of(build_view(answers, "abc", 1.0))
    assert "no broker answers: its topics are not known" in text and "no topics yet" not in text
    one = [*answers[:2], Answer(2, "h:2", ready=True, document={"format": 1})]
    assert "no topics yet" in text_of(build_view(one, "abc", 1.0))


def test_the_lag_of_a_group_is_summed_by_topic_over_all_brokers() -> None:
    def at(topic: str, partition: int, offset: int) -> dict[str, Any]:
        return {"topic": topic, "partition": partition, "committed_offset": offset}

    group = {
        "group_id": "delays",
        "state": "Stable",
        "members": 2,
        "partitions": [at("flights", 0, 60), at("flights", 1, 200), at("gone", 0, 1)],
    }
    fresh = {"group_id": "fresh", "state": "Empty", "members": 0, "partitions": []}
    rows = [row(True), row(True, partition=1, watermark=150)]
    documents = [
        {"hosted": {"partitions": [rows[0]]}},
        {"hosted": {"partitions": [rows[1]]}, "groups": [group, fresh], "groups_left_out": 4},
    ]
    answers = [Answer(b, "h:1", ready=True, document=d) for b, d in enumerate(documents)]
    shown = build_view(answers, "abc", 1.0)
    assert shown.groups == (
        GroupRow("delays", "Stable", 2, "flights", 2, 30),
        GroupRow("fresh", "Empty", 0),
    )
    document = as_document(shown, rates_between(None, shown))
    assert (document["groups"][0]["lag"], document["groups_left_out"]) == (30, 4)
    text = text_of(shown)
    assert "delays" in text and "and 4 more groups" in text


def test_blocked_readers_are_joined_with_their_transactions() -> None:
    now_ms = 1_700_000_000_000

    def at(partition: int, producer_id: int | None) -> dict[str, Any]:
        last_ms = None if producer_id is None else now_ms - 4_000
        return {
            "topic": "flights", "partition": partition, "last_stable_offset": 5,
            "high_watermark": 1_240, "producer_id": producer_id, "producer_epoch": 3,
            "first_offset": 5, "last_timestamp_ms": last_ms,
        }  # fmt: skip

    def owner(producer_id: int, **more: Any) -> dict[str, Any]:
        return {
            "transactional_id": f"pay-{producer_id}", "producer_id": producer_id,
            "state": "Ongoing", "start_ms": now_ms - 90_000, "timeout_ms": 60_000,
            "principal": "User:app", "client_id": "app-1", "client_host": "10.0.0.9", **more,
        }  # fmt: skip

    documents = [
        {"now_ms": now_ms, "blocked": [at(0, 7), at(1, 8), at(2, 9), at(3, None), at(4, 10)]},
        {
            "now_ms": now_ms,
            "transactions": [
                owner(7),
                owner(8, state="PrepareAbort", start_ms=-1),
                owner(10, start_ms=now_ms - 5_000, timeout_ms=None),
            ],
        },
    ]
    answers = [Answer(b, "h:1", ready=True, document=d) for b, d in enumerate(documents)]
    shown = build_view(answers, "abc", 1.0)
    rows = {row.partition: row for row in shown.blocked}
    assert [row.partition for row in shown.blocked] == [0, 4, 1, 2, 3], "the oldest first"
    assert (rows[0].transactional_id, rows[0].coordinator) == ("pay-7", 1)
    assert (rows[0].age_ms, rows[0].times_out_in_ms) == (90_000, -30_000)
    assert (rows[1].age_ms, rows[1].times_out_in_ms) == (4_000, None)
    assert (rows[2].transactional_id, rows[2].age_ms) == (None, 4_000)
    assert (rows[3].producer_id, rows[3].age_ms) == (None, 0)
    assert (rows[4].age_ms, rows[4].times_out_in_ms) == (5_000, None)
    document = as_document(shown, rates_between(None, shown))
    assert document["blocked"][0]["client_host"] == "10.0.0.9"
    text = text_of(shown)
    assert "blocked readers" in text and "pay-7" in text and "overdue for 30.0 s" in text
    assert "flights-2" in text and "no coordinator knows it" in text
    assert "flights-3" not in text, "it has not waited long"


def test_events_are_shown_once_with_the_earliest_observation() -> None:
    def answer(broker: int, at_ms: int) -> Answer:
        gone = {"broker_id": 2, "kind": "gone", "broker_epoch": 7, "at_ms": at_ms, "away_ms": -1}
        document = {"rss_bytes": 60_000_000, "events": [gone]}
        return Answer(broker, "h:1", ready=True, document=document)

    shown = build_view([answer(0, 2000), answer(1, 1900)], "abc", 1.0)
    assert [(e.broker_id, e.kind, e.at_ms) for e in shown.events] == [(2, "gone", 1900)]
    document = as_document(shown, rates_between(None, shown))
    assert document["events"][0]["at_ms"] == 1900
    assert document["brokers"][0]["rss_bytes"] == 60_000_000
    assert "broker 2 gone" in text_of(shown)


def test_a_broker_is_watched_over_one_client(tmp_path: Path) -> None:
    opened: list[str] = []

    class Channel:
        def __init__(self, address: str) -> None:
            opened.append(address)

        def status(self) -> Any:
            raise ConnectionError("refused")

        def close(self) -> None:
            opened.remove("h:9092")

    cluster = ClusterFile("c", 1, 9092, bootstrap_servers="h:9092", control_addresses=(CONTROL,))
    watcher = ClusterWatcher(tmp_path, cluster, connect=cast(Any, Channel))
    for _ in range(3):
        assert watcher.view().brokers[0].problem == "does not answer"
    watcher.close()
    assert opened == []


def test_a_pipe_gets_each_view_as_it_is_watched(capsys: pytest.CaptureFixture[str]) -> None:
    """As of `headwater status --watch | head`."""
    shown: list[int] = []

    class Watcher:
        cluster = ClusterFile(
            "c", 1, 9092, bootstrap_servers="h:9092", control_addresses=(CONTROL,)
        )

        def view(self) -> StatusView:
            return view(row(led=True))

    def pause(_: float) -> None:
        shown.append(capsys.readouterr().out.count("bootstrap servers h:9092"))
        if len(shown) == 2:
            raise KeyboardInterrupt

    watcher = cast(ClusterWatcher, Watcher())
    with pytest.raises(KeyboardInterrupt):
        watch(watcher, internal=False, as_json=False, pause=pause)
    assert shown == [1, 1]


CONTROL = "h:9192"
