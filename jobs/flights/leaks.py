"""The last phase of a secure run: its secrets are nowhere but in the cluster's private folders.

Searched are all files of the run (brokers' data and logs, Spark's event log, its executors' output,
checkpoints, tables, plans), the arguments of every process, and the znodes that anyone may read. A
planted secret must be found, or the search is worth nothing.
"""

from __future__ import annotations

import base64
import io
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from flights.connection import Connection
from headwater import Admin
from headwater.testing import secret_search
from headwater_spark.cluster.cluster import Cluster

EVENTS = "events"
PLANS = "plans.txt"
PLANTED = "planted-by-the-demo"


@dataclass(frozen=True)
class Search:
    """What a search has found."""

    secrets: int
    places: int
    problems: list[str]

    def __str__(self) -> str:
        found = len(self.problems)
        return f"{self.secrets} secrets, each in 3 forms, {self.places:,} places: {found} found"


def event_log(out: Path) -> dict[str, str]:
    """Spark's settings for an event log that can be searched."""
    folder = out / EVENTS
    folder.mkdir()
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": folder.as_uri(),
    }


def secrets_of_run(cluster: Cluster, connection: Connection) -> dict[str, str]:
    """Every secret of the cluster, the delegation tokens of Spark's tasks too."""
    directory = Path(cluster.status()["directory"])
    with Admin(connection.servers, **connection.sdk) as admin:
        tokens = admin.describe_delegation_tokens()
    of_tokens = {f"the HMAC of token {n}": t.password for n, t in enumerate(tokens)}
    return {**secret_search.secrets_of(directory), **of_tokens}


def write_plan(spark: SparkSession, connection: Connection, topic: str, out: Path) -> None:
    """Keep what `explain` shows of a read; the event log has the plans of all that ran."""
    frame = spark.read.format("headwater").options(**connection.spark).option("subscribe", topic)
    with redirect_stdout(io.StringIO()) as text:
        frame.load().explain(extended=True)
    (out / PLANS).write_text(text.getvalue())


def search(out: Path, spark: SparkSession | None, secrets: dict[str, str]) -> Search:
    """Search the run for its secrets, and for a planted one. `spark`: while it runs."""
    planted = out / PLANTED
    planted.write_bytes(b"log: " + base64.b64encode(next(iter(secrets.values())).encode()))
    try:
        also = [path for path in out.iterdir() if path.name != "cluster"]
        if spark is not None:
            also.append(_executor_logs(spark))
        found, places = secret_search.search(out / "cluster", secrets, also)
    finally:
        planted.unlink()
    problems = [f"{f.secret} is in {f.place}" for f in found if f.place != str(planted)]
    if len(problems) == len(found):
        problems.append("the search did not find the secret that was planted for it")
    if spark is not None and not any((out / EVENTS).rglob("events*")):
        problems.append("Spark wrote no event log to search")
    return Search(len(secrets), places, problems)


def _executor_logs(spark: SparkSession) -> Path:
    """The folder of the executors' output, on a master of one machine."""
    home = Path(str(spark.conf.get("spark.home", "")) or Path(pyspark.__file__).parent)
    return home / "work" / str(spark.sparkContext.applicationId)
