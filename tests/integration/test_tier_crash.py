"""SIGKILL of a tiering process at every step, and races: the table has each row once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headwater_tier.delta import LogTable
from headwater_tier.verify import compare, describe, table_rows
from integration.tier_process import ROWS, STEPS, filled
from tier_log import location_at

pytestmark = pytest.mark.integration

WORST = ("half a file", "before the commit", "after the commit")
"""The other steps differ less from one another than these do."""
SCRIPT = Path(__file__).with_name("tier_process.py")


def start(folder: Path, step: str, offsets_max: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), str(folder), step, str(offsets_max)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_table(folder: Path) -> None:
    """Each row once, by the verifier and by plain deltalake."""
    from headwater.columnar.decode import batches_to_arrow
    from headwater.columnar.schema import LOG_TABLE_COLUMNS

    location, log = location_at(folder), filled()
    assert LogTable(location).snapshot.ends == ROWS
    for partition, end in ROWS.items():
        topic = batches_to_arrow(
            bytes(log.partitions[partition]), start_offset=0, end_offset=end,
            partition=partition, columns=LOG_TABLE_COLUMNS,
        )  # fmt: skip
        report = compare(partition, 0, end, [topic], table_rows(location, partition, 0, end))
        assert describe(report) == [] and report.table_digest.rows == end
    rows = DeltaTable(location.uri).to_pyarrow_table(columns=["partition", "offset"])
    assert rows.num_rows == sum(ROWS.values())


@pytest.mark.parametrize("step", WORST)
def test_killed_around_a_commit_and_run_again(tmp_path: Path, step: str) -> None:
    killed_at(tmp_path, step)


@pytest.mark.long
@pytest.mark.parametrize("step", [step for step in STEPS if step not in ("none", *WORST)])
def test_killed_at_a_step_and_run_again(tmp_path: Path, step: str) -> None:
    killed_at(tmp_path, step)


def killed_at(folder: Path, step: str) -> None:
    """Die at the step, run again: each row is in the table once."""
    first = start(folder, step, 10_000)
    output, errors = first.communicate(timeout=120)
    assert (first.returncode, output) == (-signal.SIGKILL, ""), errors
    again = start(folder, "none", 10_000)
    output, errors = again.communicate(timeout=120)
    assert output == "done\n", errors
    check_table(folder)


@pytest.mark.long
def test_two_tierers_race_and_are_killed_at_random(tmp_path: Path) -> None:
    dice = random.Random(7)
    kills = 0
    running = [start(tmp_path, "none", 4) for _ in range(2)]
    deadline = time.monotonic() + 120
    done = False
    while not done:
        assert time.monotonic() < deadline
        time.sleep(dice.uniform(0.3, 1.2))
        for i, process in enumerate(running):
            if process.poll() is None:
                if kills < 6 and dice.random() < 0.5:
                    process.kill()
                    process.communicate()
                    kills += 1
                    running[i] = start(tmp_path, "none", 4)
                continue
            output, errors = process.communicate()
            assert process.returncode == 0, errors
            done = output == "done\n"
    for process in running:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    check_table(tmp_path)
    assert kills >= 3
    versions = LogTable(location_at(tmp_path)).snapshot.version
    assert versions >= max(ROWS.values()) // 4
