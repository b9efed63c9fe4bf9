"""`headwater up` tiers topics without anyone starting a job, also when the service is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.local.service_spec import tiering_service
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.tiered_topics import at, cli, create, ends_of, producing

pytestmark = pytest.mark.integration
PARTITIONS = 3


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster with the service, as `up` starts it."""
    service, folder = tiering_service(), tmp_path_factory.mktemp("tiered")
    assert service is not None
    with LocalCluster(folder, next_base_port(folder), 3, services=(service,)) as cluster:
        yield cluster


def status(cluster: LocalCluster, topic: str) -> dict[str, Any]:
    found = cli("tier", "status", topic, "--json", *at(cluster), ok=False)
    assert found.stdout, found.stderr
    [row] = json.loads(found.stdout)["topics"]
    return dict(row)


def rows(cluster: LocalCluster, topic: str) -> int:
    return int(status(cluster, topic)["rows"] or 0)


def service_pid(cluster: LocalCluster) -> int:
    assert cluster.supervisor is not None
    pids = [p.pid for p in cluster.supervisor.state().processes if p.name == "tiering"]
    return pids[0] if pids else -1


@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.long)])
def test_a_topic_fills_its_table_and_kills_of_the_service_neither_lose_nor_double_a_record(
    tiered: LocalCluster, kills: int
) -> None:
    topic = create(tiered, f"flights-{kills}", PARTITIONS, delta_interval_ms="200")
    with producing(tiered, topic, PARTITIONS) as acked:
        LocalCluster.wait_until(lambda: rows(tiered, topic) > 0, "the first rows", 90.0)
        for _ in range(kills):
            former, before = service_pid(tiered), rows(tiered, topic)
            assert former > 0, "the service has ended by itself"
            os.kill(former, signal.SIGKILL)
            LocalCluster.wait_until(
                lambda former=former: service_pid(tiered) not in (former, -1), "the restart", 60.0
            )
            LocalCluster.wait_until(
                lambda before=before: rows(tiered, topic) > before, "more rows", 60.0
            )
    LocalCluster.wait_until(lambda: status(tiered, topic)["behind"] == 0, "the last rows", 60.0)
    report = json.loads(cli("verify", topic, *at(tiered), "--json").stdout)
    assert report["equal"], report
    assert sum(ends_of(tiered, topic, PARTITIONS).values()) == acked[0]
    row = status(tiered, topic)
    assert row["state"] == "tiering" and row["asked_ms"] == 200 and row["achieved_ms"] > 0


def test_the_status_document_and_the_metrics_of_brokers_show_tiering(tiered: LocalCluster) -> None:
    topic = create(tiered, "shown", delta_interval_ms="200")
    with producing(tiered, topic, 1):
        LocalCluster.wait_until(lambda: rows(tiered, topic) > 0, "rows", 60.0)

    def reported() -> list[dict[str, Any]]:
        return [r for b in range(3) for r in tiered.status(b)["tiering"] if r["topic"] == topic]

    LocalCluster.wait_until(lambda: len(reported()) > 0, "the brokers' report")
    reports = reported()
    assert len(reports) == 1 and reports[0]["state"] == "tiering"
