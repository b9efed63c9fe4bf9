"""A real Flink job under kills of job and brokers, and an outage beyond its timeout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from integration.conftest import Start
from suites import flink, parts
from suites.clusters import HeadwaterUnderTest
from suites.parts import MissingPartError

JOB_KILLS = int(os.environ.get("HEADWATER_JOB_KILLS") or 3)
BROKER_KILLS = int(os.environ.get("HEADWATER_BROKER_KILLS") or 2)
LIMIT_S = 3 * 60 * 60

pytestmark = [pytest.mark.integrations, pytest.mark.timeout(LIMIT_S)]


@pytest.fixture(autouse=True)
def flink_is_there() -> None:
    try:
        parts.flink_python()
        parts.flink_connector()
    except MissingPartError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("naming", flink.NAMINGS)
def test_every_line_is_counted_once(start_cluster: Start, tmp_path: Path, naming: str) -> None:
    cluster = HeadwaterUnderTest(start_cluster())
    found = flink.killed(cluster, tmp_path / "flink", naming, JOB_KILLS, BROKER_KILLS)
    assert found.fed > 0
    assert found.is_exact, found


@pytest.mark.parametrize("naming", flink.NAMINGS)
def test_a_timeout_between_checkpoint_and_commit_stops_the_job(
    start_cluster: Start, tmp_path: Path, naming: str
) -> None:
    cluster = HeadwaterUnderTest(start_cluster())
    found = flink.outage(cluster, tmp_path / "flink", naming)
    assert found.exit_code, f"the job went on: {found.verdict}"
    assert "TransactionAbortableException" in found.log, found.log[-3_000:]
