"""The city's live service on a real cluster: instructions at run time, tracks in order, counts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from city.fields import (
    FACES,
    STATISTICS,
    STATISTICS_INSTRUCTIONS,
    TOPICS,
    TRACKS,
    VEHICLES,
    WATCH_INSTRUCTIONS,
)
from city.instructions import CountInstruction, WatchInstruction
from city.live import LiveService
from city.whole_topics import read_to_end
from city_records import HERE, THERE, face, vehicle
from headwater import Admin, Consumer, NewTopic, Producer
from headwater.system import SystemClock
from integration.cluster import LocalCluster
from integration.conftest import Start

pytestmark = pytest.mark.integration

OTHERS = 100
WAIT_S = 20


@pytest.fixture
def city_cluster(start_cluster: Start) -> LocalCluster:
    """A broker with the city's topics, for one test: their names are fixed."""
    cluster = start_cluster(1)
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(t.name, t.partitions, 1, configs=t.configs) for t in TOPICS])
    return cluster


@contextmanager
def live(cluster: LocalCluster) -> Iterator[LiveService]:
    service = LiveService(cluster.bootstrap, {}, SystemClock())
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        assert service.ready.wait(WAIT_S)
        yield service
    finally:
        service.stopping.set()
        thread.join()


def reports(cluster: LocalCluster, topic: str, kind: str) -> list[dict[str, Any]]:
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        found = [json.loads(r.value or b"") for r in read_to_end(consumer, [topic], SystemClock())]
    return [told for told in found if told["kind"] == kind]


def instruct(cluster: LocalCluster, *instructions: Any) -> None:
    """Send instructions, and wait until the service has taken them."""
    with Producer(cluster.bootstrap) as producer:
        for one in instructions:
            is_count = isinstance(one, CountInstruction)
            topic = STATISTICS_INSTRUCTIONS if is_count else WATCH_INSTRUCTIONS
            producer.send(topic, one.value(), key=one.instruction_id).result(WAIT_S)

    def taken() -> bool:
        told = reports(cluster, TRACKS, "taken") + reports(cluster, STATISTICS, "taken")
        return {one.instruction_id for one in instructions} <= {t["instruction_id"] for t in told}

    cluster.wait_until(taken, "the instructions are taken")


def test_three_captures_among_a_hundred_others_and_a_restart(city_cluster: LocalCluster) -> None:
    wanted = "浙A00017"
    with Producer(city_cluster.bootstrap) as producer:

        def capture(number: int, plate: str, place: str) -> None:
            value = vehicle(number, plate, at_s=number, checkpoint=place)
            producer.send(VEHICLES, value, key=plate)

        with live(city_cluster) as service:
            capture(0, wanted, HERE)  # before the instruction: no point
            producer.flush(WAIT_S)
            instruct(
                city_cluster,
                WatchInstruction("car", traits=(("plate", wanted),)),
                WatchInstruction("person", person="P000007"),
                CountInstruction("flow", "vehicle", minutes=1),
            )
            for n in range(1, OTHERS + 1):
                capture(n, wanted if n in (20, 50, 80) else f"浙B{n:05}", THERE if n % 2 else HERE)
            producer.send(VEHICLES, b"no record of a device")
            producer.send(FACES, face(1, "P000007"), key="P000007")
            producer.send(WATCH_INSTRUCTIONS, b'{"instruction_id": "bad", "action": "hunt"}')
            producer.flush(WAIT_S)
            city_cluster.wait_until(lambda: service.summary()["points"] == 4, "four points")
            city_cluster.wait_until(lambda: bool(service.refused), "the refusal")
        assert "'hunt'" in service.refused[0]
        capture(200, wanted, THERE)  # while the service is down
        producer.flush(WAIT_S)
        with live(city_cluster) as again:
            city_cluster.wait_until(lambda: again.summary()["points"] == 5, "the fifth point")
            assert again.summary()["active"] == ["car", "flow", "person"]
            since = WatchInstruction("since", traits=(("plate", wanted),), since_ms=0)
            instruct(city_cluster, since)  # the first capture was before every other instruction
            city_cluster.wait_until(lambda: again.summary()["points"] == 10, "all five captures")
    points = reports(city_cluster, TRACKS, "point")
    track = [p["record_id"] for p in points if p["instruction_id"] == "car"]
    assert track == ["v20", "v50", "v80", "v200"]
    assert [p["record_id"] for p in points if p["instruction_id"] == "person"] == ["f1"]
    last: dict[int, dict[str, int]] = {}
    for told in reports(city_cluster, STATISTICS, "count"):
        last[told["bucket_ms"]] = told["counts"]
    assert next(p["record_id"] for p in points if p["instruction_id"] == "since") == "v0"
    assert sum(sum(counts.values()) for counts in last.values()) == OTHERS + 1
    assert sum(counts.get(THERE, 0) for counts in last.values()) == OTHERS // 2 + 1
