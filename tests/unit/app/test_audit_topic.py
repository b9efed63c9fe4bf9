"""Audit lines on their way to a topic: in order, bounded, never waited for."""

from __future__ import annotations

import asyncio
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
        self.lines: list[str] = []
        self.targets: list[tuple[int, int]] = []

    async def call(
        self, broker_id: int, request: ProduceRequest, version: int, reply: object
    ) -> ProduceResponse:
        await asyncio.sleep(0)
        part = request.topic_data[0].partition_data[0]
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        if not code:
            assert part.records is not None
            data = bytes(part.records)
            header = read_header(data)
            rows = decode_payload(data[61:], header)
            self.lines += [(row.value or b"").decode() for row in rows]
            self.targets.append((broker_id, part.index))
        row = PartitionProduceResponse(index=part.index, error_code=code, base_offset=0)
        topic = TopicProduceResponse(name="audit", partition_responses=(row,))
        return ProduceResponse(responses=(topic,))

    async def close(self) -> None:
        return


def play(tell: Any, view: View | None = None, lines_max: int = 100) -> Connections:
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
            topic.publish(line)
        await until(connections, 3)
        topic.publish("four")
        await until(connections, 4)

    seen = play(tell)
    assert seen.lines == ["one", "two", "three", "four"]
    assert seen.targets == [(7, 1), (7, 1)]


def test_lines_wait_for_the_topic(caplog: Any) -> None:
    view = View()
    there = view.topics.pop("audit")

    async def tell(topic: AuditTopic, connections: Connections) -> None:
        topic.publish("early")
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
            topic.publish(str(number))
        await until(connections, 4)

    dropped, *lines = play(tell, lines_max=3).lines
    assert dropped.startswith("2 audit lines")
    assert lines == ["2", "3", "4"]
