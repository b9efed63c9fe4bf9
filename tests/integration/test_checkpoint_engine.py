"""The engine of `docs/checkpoints.md`, as it stands there, killed at many moments."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers import KafkaPeer

from headwater import Admin, Consumer, NewTopic, TopicPartition
from integration.cluster import LocalCluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "checkpoints.md"
ROWS = 1_500
KILLS = 6
WAIT_S = 60.0
CALL = """
import sys
rows = [f"row-{{n}}" for n in range({rows})]
run(sys.argv[1], rows, Path(sys.argv[2]), rows_per_checkpoint=25)
"""


def engine() -> str:
    """The page's program, and a call of it."""
    blocks = PAGE.read_text().split("\n\n    ")
    start = next(n for n, block in enumerate(blocks) if block.startswith("import json"))
    lines = ("    " + "\n\n    ".join(blocks[start:])).splitlines()
    program = []
    for line in lines:
        if line and not line.startswith("    "):
            break
        program.append(line[4:])
    return "\n".join(program) + CALL.format(rows=ROWS)


@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.long), "headwater"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "headwater":
        cluster: LocalCluster = request.getfixturevalue("shared_cluster")
        yield cluster.bootstrap
        return
    peer = KafkaPeer(tmp_path / "kafka")
    try:
        yield peer.start().bootstrap
    finally:
        peer.stop()


def position(folder: Path) -> int:
    path = folder / "checkpoint.json"
    return int(json.loads(path.read_text())["position"]) if path.exists() else 0


def test_the_engine_of_the_docs_writes_each_row_once(servers: str, tmp_path: Path) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("results", 3, 1)])
    script, folder = tmp_path / "engine.py", tmp_path / "state"
    script.write_text(engine())
    folder.mkdir()
    command = [sys.executable, str(script), servers, str(folder)]
    for kill in range(KILLS):
        before = position(folder)
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            deadline = time.monotonic() + WAIT_S
            while position(folder) <= before + 25 and time.monotonic() < deadline:
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.003 * kill)  # another step of the loop for each kill
            process.kill()
        assert before < position(folder) < ROWS
    done = subprocess.run(command, capture_output=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert sorted(read(servers)) == sorted(f"row-{n}" for n in range(ROWS))


def read(servers: str) -> list[str]:
    """All that readers of committed records see."""
    partitions = [TopicPartition("results", p) for p in range(3)]
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found: list[str] = []
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            for rows in consumer.poll(200).values():
                found += [(row.value or b"").decode() for row in rows]
    return found
