"""ksqlDB's pageviews in Spark SQL: a stream-table join and counts per minute, into topics."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Consumer, Producer
from headwater.cli.main import run_command
from integration.cluster import LocalCluster
from integration.spark_sessions import spark_session
from integrations.ksql.pageviews import QUERIES, USERS_TOPIC, VIEWS_TOPIC, pageviews

pytestmark = [pytest.mark.integration, pytest.mark.integrations, pytest.mark.timeout(300)]
MINUTE_MS = 60_000
START_MS = 1_772_352_000_000
"""2026-03-01 08:00 UTC"""
ENRICHED, PER_MINUTE = (query.name for query in QUERIES)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("local[2]", delta=False) as session:
        yield session


def test_a_join_and_a_windowed_count_go_on_over_runs(
    spark: Any, shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    servers = shared_cluster.bootstrap
    shared_cluster.create_topic(VIEWS_TOPIC, 3)
    shared_cluster.create_topic(USERS_TOPIC, 2, cleanup_policy="compact")
    for query in QUERIES:
        shared_cluster.create_topic(query.name, 2)
    with Producer(servers) as producer:
        for user, region in (("ann", "north"), ("bob", "west"), ("bob", "south")):
            producer.send(USERS_TOPIC, json.dumps({"region": region}), key=user)
        producer.send(USERS_TOPIC, None, key="gone")
        for second in range(0, 150, 10):
            view(producer, "ann", "/", START_MS + second * 1000)
        view(producer, "bob", "/cart", START_MS)
        view(producer, "gone", "/cart", START_MS)
        producer.send(VIEWS_TOPIC, b"no JSON")
    run(servers, tmp_path)
    with Producer(servers) as producer:
        producer.send(USERS_TOPIC, json.dumps({"region": "east"}), key="bob")
        view(producer, "bob", "/cart", START_MS + 2 * MINUTE_MS)
        view(producer, "ann", "/", START_MS + 2 * MINUTE_MS + 59_000)
    run(servers, tmp_path)

    rows = read(servers, ENRICHED)
    regions = Counter((row["user"], row.get("region")) for row in rows)
    assert regions == {
        ("ann", "north"): 16, ("bob", "south"): 1, ("gone", None): 1, ("bob", "east"): 1
    }  # fmt: skip
    counts: dict[tuple[str, str], int] = {}
    for row in read(servers, PER_MINUTE):
        counts[row["page"], row["minute"][11:16]] = row["views"]  # the last one of a key holds
    assert counts == {
        ("/", "08:00"): 6, ("/", "08:01"): 6, ("/", "08:02"): 4,
        ("/cart", "08:00"): 2, ("/cart", "08:02"): 1,
    }  # fmt: skip


def view(producer: Producer, user: str, page: str, at_ms: int) -> None:
    """A user looks at a page."""
    value = {"user": user, "page": page, "viewed_at": at_ms}
    producer.send(VIEWS_TOPIC, json.dumps(value), key=user)


def run(servers: str, folder: Path) -> None:
    """Both queries over what is there."""
    arguments = ["--bootstrap-server", servers, "--checkpoints", str(folder)]
    assert run_command(pageviews, arguments, "pageviews") == 0


def read(servers: str, topic: str) -> list[dict[str, Any]]:
    """The values of a topic's committed records."""
    options = {
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "consumer_timeout_ms": 2_000,
    }
    with Consumer(topic, bootstrap_servers=servers, **options) as consumer:
        return [json.loads(record.value or b"") for record in consumer]
