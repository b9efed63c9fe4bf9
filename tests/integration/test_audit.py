"""`headwater audit` over a real topic: a group, the Delta table, late records, a difference."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from headwater import Admin, Consumer, NewTopic, Producer
from headwater.cli.main import main
from integration.cluster import LocalCluster

pytestmark = pytest.mark.integration
TOPIC, GROUP, REPORT = "audited", "readers", "audit-report"
MINUTE_MS = 60_000
FIRST_MS = 1_700_000_040_000
ROWS, BAD = 300, 20


def audit(cluster: LocalCluster, *options: str) -> tuple[int, list[dict[str, Any]]]:
    command = ["audit", TOPIC, "--json", "--bootstrap-server", cluster.bootstrap, *options]
    out = io.StringIO()
    with redirect_stdout(out):
        code = main(command)
    return code, json.loads(out.getvalue())


def test_minutes_of_a_group(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    servers = shared_cluster.bootstrap
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(TOPIC, 2, 3)])
    with Producer(servers, transactional_id="audited") as producer:
        with producer.transaction():
            for number in range(ROWS):
                at = FIRST_MS + number % 3 * MINUTE_MS
                producer.send(TOPIC, b"x", key=b"%d" % number, timestamp=at)
        producer.begin_transaction()
        for number in range(BAD):
            producer.send(TOPIC, b"aborted", key=b"%d" % number, timestamp=FIRST_MS)
        producer.flush()
        producer.abort_transaction()
    reader = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with Consumer(TOPIC, bootstrap_servers=servers, group_id=GROUP, **reader) as consumer:
        read = 0
        while read < ROWS:
            read += sum(map(len, consumer.poll(timeout_ms=10_000).values()))
        consumer.commit()
        code, rows = audit(shared_cluster, "--group", GROUP, "--to", REPORT)
        assert code == 0
        assert [(row["produced"], row["places"]) for row in rows] == [
            (ROWS // 3, {f"group {GROUP}": ROWS // 3})
        ] * 3, "aborted records and markers are no records"
        with Producer(servers) as late:
            late.send(TOPIC, b"late", key=b"1", timestamp=FIRST_MS + 1)
        code, rows = audit(shared_cluster, "--group", GROUP)
        assert code == 1
        assert rows[0]["differing"] == {f"group {GROUP}": -1}
        assert [row["differing"] for row in rows[1:]] == [{}, {}]
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as report:
        report.assign([(REPORT, 0)])
        written = [json.loads(r.value or b"") for r in report.poll(timeout_ms=10_000)[REPORT, 0]]
    assert [row["produced"] for row in written] == [ROWS // 3] * 3
