"""Audit lines on their way to a topic: in order, bounded, never waited for, as JSON objects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from headwater.errors import ErrorCode
from headwater.records.batch import read_header
from headwater.records.record import decode_payload
from headwater.testing.clocks import ManualClock
from headwater.wire.apis.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headwater_broker.app.audit_topic import AuditTopic
from headwater_broker.security.audit_entry import AskedChange, AuditEntry, note


class View:
    """Topic `audit` with partition 0 led by broker 1 and partition 1 by broker 7."""

    def __init__(self) -> None:
        leaders = {0: 1, 1: 7}
        states = {p: SimpleNamespace(leader_id=b) for p, b in leaders.items()}
        self.topics: dict[str, Any] = {"audit": SimpleNamespace(partitions=states)}
        self.brokers = {1: None, 7: None}

    def partition(self, topic: str, partition: int) -> Any:
        return self.topics[topic].partitions[partition]


class Connections:
    """Takes batches; answers with the next of `codes`, or with success."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []
        self.values: list[bytes] = []
        self.bytes_max = 1 << 20
        self.targets: list[tuple[int, int]] = []

    async def call(
        self, broker_id: int, request: ProduceRequest, version: int, reply: object
    ) -> ProduceResponse:
        await asyncio.sleep(0)
        part = request.topic_data[0].partition_data[0]
        assert part.records is not None
        data = bytes(part.records)
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        if len(data) > self.bytes_max:
            code = ErrorCode.MESSAGE_TOO_LARGE
        if not code:
            header = read_header(data)
            rows = decode_payload(data[61:], header)
            self.values += [row.value or b"" for row in rows]
            self.targets.append((broker_id, part.index))
        row = PartitionProduceResponse(index=part.index, error_code=code, base_offset=0)
        topic = TopicProduceResponse(name="audit", partition_responses=(row,))
        return ProduceResponse(responses=(topic,))

    async def close(self) -> None:
        return

    @property
    def lines(self) -> list[str]:
        return [json.loads(value)["line"] for value in self.values]


Tell = Callable[[AuditTopic, Connections], Awaitable[None]]


def play(
    tell: Tell, view: View | None = None, lines_max: int = 100, bytes_max: int = 1 << 20
) -> Connections:
    connections = Connections()

    async def run() -> None:
        topic = AuditTopic(
            "audit",
            7,
            view or View(),  # type: ignore[arg-type]
            connections,  # type: ignore[arg-type]
            ManualClock(),
            retry_s=0,
            lines_max=lines_max,
            bytes_max=bytes_max,
        )
        topic.start()
        await tell(topic, connections)
        await topic.close()

    asyncio.run(run())
    return connections


async def until(connections: Connections, count: int) -> None:
    async with asyncio.timeout(10):
        while len(connections.lines) < count:
            await asyncio.sleep(0)


def test_lines_arrive_in_order_at_the_brokers_own_partition_also_after_errors() -> None:
    async def tell(topic: AuditTopic, connections: Connections) -> None:
        connections.codes = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        for line in ("one", "two", "three"):
            topic.publish(note(line))
        await until(connections, 3)
        topic.publish(note("four"))
        await until(connections, 4)

    seen = play(tell)
    assert seen.lines == ["one", "two", "three", "four"]
    assert seen.targets == [(7, 1), (7, 1)]


def test_lines_wait_for_the_topic(caplog: Any) -> None:
    view = View()
    there = view.topics.pop("audit")

    async def tell(topic: AuditTopic, connections: Connections) -> None:
        topic.publish(note("early"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert connections.lines == []
        view.topics["audit"] = there
        await until(connections, 1)

    assert play(tell, view).lines == ["early"]
    assert "create it" in caplog.text


def test_a_full_queue_drops_the_oldest_and_says_so() -> None:
    async def tell(topic: AuditTopic, connections: Connections) -> None:
        for number in range(5):
            topic.publish(note(str(number)))
        await until(connections, 4)

    dropped, *lines = play(tell, lines_max=3).lines
    assert dropped.startswith("2 audit lines")
    assert lines == ["2", "3", "4"]


def test_a_queue_of_too_many_bytes_drops_the_oldest() -> None:
    async def tell(topic: AuditTopic, connections: Connections) -> None:
        for number in range(5):
            topic.publish(note(str(number) * 10_000))
        await until(connections, 3)

    dropped, *lines = play(tell, bytes_max=50_000).lines
    assert dropped.startswith("3 audit lines")
    assert [line[0] for line in lines] == ["3", "4"]


def test_a_topic_of_small_records_gets_small_batches_and_what_does_not_fit_is_left_out() -> None:
    async def tell(topic: AuditTopic, connections: Connections) -> None:
        connections.bytes_max = 20_000
        for number in range(40):
            topic.publish(note(f"{number:02}" * (20_000 if number == 7 else 500)))
        await until(connections, 40)

    lines = play(tell).lines
    told = lines.pop(7)
    assert told.startswith("1 audit lines before this one were dropped")
    assert [int(line[:2]) for line in lines] == [number for number in range(40) if number != 7]


def test_a_record_has_the_parts_of_a_line_and_always_all_of_them() -> None:
    change = AskedChange("User:öps", "10.0.0.7", "CreateTopics", "NONE", "topic a\nb")
    line = "Principal = User:öps requested CreateTopics from host = 10.0.0.7, result = NONE: "

    async def tell(topic: AuditTopic, connections: Connections) -> None:
        topic.publish(change.entry())
        topic.publish(AuditEntry(line="x", operation="READ", resource="Topic:LITERAL:t", repeats=3))
        await until(connections, 2)

    now = "2023-11-14T22:13:20.000+00:00"
    always = {"time": now, "broker": 7}
    first, second = (json.loads(value) for value in play(tell).values)
    assert first == {
        **always,
        "line": f"{line}topic a\\u000ab",
        "principal": "User:öps",
        "host": "10.0.0.7",
        "request": "CreateTopics",
        "operation": "",
        "resource": "",
        "result": "NONE",
        "detail": "topic a\\u000ab",
        "repeats": 0,
    }
    assert second == {
        **dict.fromkeys(first, ""),
        **always,
        "line": "x",
        "operation": "READ",
        "resource": "Topic:LITERAL:t",
        "repeats": 3,
    }
