"""The watchdog ends a broker whose loop hangs, so that other brokers become leaders."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from integration.conftest import Start
from integration.workload import Workload
from soak.world import HOOKS

pytestmark = pytest.mark.integration

HOUR_MS = 3_600_000
SESSION_MS = "10000"
"""The watchdog waits for as long, and never for less."""


@pytest.mark.long
def test_a_leader_whose_loop_hangs_ends_and_others_lead(
    start_cluster: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [str(HOOKS), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, roots)))
    monkeypatch.setenv("HEADWATER_SOAK_DISKS", str(tmp_path))
    cluster = start_cluster(brokers=3, zookeeper_session_timeout_ms=SESSION_MS)
    cluster.create_topic("hung", 1, 3, min_insync_replicas="2")
    with Workload(cluster.bootstrap, "hung") as load:
        load.wait_acks(50)
        victim = cluster.leader_of("hung")
        pid = cluster.pid(victim)
        trouble = tmp_path / f"broker-{victim}.disk"
        trouble.write_text(json.dumps({"delay_ms": HOUR_MS}))  # its next write hangs
        cluster.wait_until(lambda: cluster.supervised(victim).pid != pid, "its process ends", 60)
        load.wait_acks(50, 60)
        trouble.unlink()
        cluster.wait_isr("hung", 3)
    report = load.check()
    assert report.is_clean, report
    assert "the event loop hangs" in cluster.log_text(victim)
