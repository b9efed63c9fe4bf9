"""The recipe of docs/spark.md for a user's own job, run by Spark's spark-submit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headwater import Admin, Producer
from headwater.client.values import NewTopic
from integration.cluster import LocalCluster

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
SPARK_SUBMIT = Path(sys.executable).with_name("spark-submit")
TIMEOUT_S = 240


def recipe() -> str:
    """The job of the page."""
    page = (ROOT / "docs" / "spark.md").read_text()
    (job,) = re.findall(r"```python\n(# job\.py.*?)```", page, re.DOTALL)
    return str(job)


def submit(folder: Path, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(SPARK_SUBMIT), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    return subprocess.run(
        [*command, str(script), *arguments],
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.long
@pytest.mark.timeout(2 * TIMEOUT_S)
def test_the_recipe_reads_a_topic_into_delta(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    servers, script, table = shared_cluster.bootstrap, tmp_path / "job.py", tmp_path / "table"
    script.write_text(recipe())
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("submitted", 2, 3)])
    for rows in (30, 50):
        with Producer(servers) as producer:
            for i in range(rows - 20, rows):
                producer.send("submitted", b"v%d" % i, partition=i % 2)
        done = submit(tmp_path, script, servers, "submitted", str(table))
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.endswith(f"{rows - 10} rows in {table}\n")
