"""Declarative pipelines (`spark-pipelines run`): the project of docs/spark.md, and AUTO CDC."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Admin, Producer
from headwater.client.values import NewTopic
from integration import connect_server
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.connect_server import ConnectServer
from suites.parts import MissingPartError, spark_row_level_catalog

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
RUN_S = 120
DOCUMENTED_SERVERS = "127.0.0.1:9092"
CHANGES = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

spark = SparkSession.active()


@dp.temporary_view
def changes():
    reader = spark.readStream.format("headwater").option("subscribe", "pipeline-changes")
    rows = reader.option("kafka.bootstrap.servers", spark.conf.get("flights.servers"))
    row = from_json(col("value").cast("string"), "id INT, name STRING, seq INT, op STRING")
    return rows.option("startingOffsets", "earliest").load().select(row.alias("c")).select("c.*")


dp.create_streaming_table("people")
dp.create_auto_cdc_flow(
    target="people",
    source="changes",
    keys=["id"],
    sequence_by="seq",
    apply_as_deletes="op = 'd'",
    except_column_list=["op", "seq"],
)
"""

RUN_IN_CATALOG = """
import sys
from pathlib import Path
from pyspark.pipelines.cli import run
from pyspark.sql import SparkSession

url, catalog = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.default")
run(Path("spark-pipeline.yml"), [], False, [], False)
"""


class Project:
    """A pipeline's folder, run against a Connect server, whose catalog outlives each run."""

    def __init__(self, folder: Path, servers: str, server: ConnectServer) -> None:
        self.folder = folder
        self._servers = servers
        self._server = server
        page = (ROOT / "docs" / "spark.md").read_text()
        (self._spec,) = re.findall(r"```yaml\n(# spark-pipeline\.yml.*?)```", page, re.DOTALL)
        (self.documented,) = re.findall(r"```python\n(# transform.*?)```", page, re.DOTALL)

    def define(self, definitions: str, more_spec: str = "") -> None:
        spec = self._spec.replace("/data/flights-storage", f"{self.folder}/storage")
        assert DOCUMENTED_SERVERS in spec and f"{self.folder}/storage" in spec
        spec = spec.replace(DOCUMENTED_SERVERS, self._servers) + more_spec
        (self.folder / "spark-pipeline.yml").write_text(spec)
        (self.folder / "transformations").mkdir(exist_ok=True)
        (self.folder / "transformations" / "flights.py").write_text(definitions)

    def run(self, command: str = "run") -> str:
        program = str(Path(sys.executable).with_name("spark-pipelines"))
        return self._run(program, "--remote", self._server.url, command)

    def run_in_catalog(self, catalog: str) -> str:
        """As `run`, in a session whose instance of the catalog has a namespace `default`."""
        return self._run(sys.executable, "-c", RUN_IN_CATALOG, self._server.url, catalog)

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**connect_server.environment(), "SPARK_REMOTE": self._server.url},
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    connect_server.need("yaml")
    folder = tmp_path_factory.mktemp("pipelines")
    with ConnectServer(folder, next_base_port(folder), {}) as running:
        yield running


def session(server: ConnectServer) -> Any:
    from pyspark.sql.connect.session import SparkSession

    return SparkSession.builder.remote(server.url).create()


def fill(servers: str, topic: str, start: int, end: int) -> None:
    with Producer(servers) as producer:
        for i in range(start, end):
            producer.send(topic, b"v%d" % i, key=b"k%d" % i)


@pytest.mark.long
def test_the_documented_project_goes_on_where_it_stopped(
    server: ConnectServer, shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    servers = shared_cluster.bootstrap
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("flights", 2, 3), NewTopic("copies", 1, 3)])
    fill(servers, "flights", 0, 20)
    project = Project(tmp_path, servers, server)
    project.define(project.documented)
    spark = session(server)

    def values(frame: Any) -> list[str]:
        return sorted(r.v for r in frame.selectExpr("CAST(value AS STRING) AS v").collect())

    def check(count: int) -> None:
        for table in ("bronze", "per_partition"):
            spark.sql(f"REFRESH TABLE {table}").collect()
        expected = sorted(f"v{i}" for i in range(count))
        assert values(spark.table("bronze")) == expected
        assert sum(row["count"] for row in spark.table("per_partition").collect()) == count
        copies = spark.read.format("headwater").option("kafka.bootstrap.servers", servers)
        assert values(copies.option("subscribe", "copies").load()) == expected

    try:
        assert "COMPLETED" in project.run("dry-run")
        assert "COMPLETED" in project.run()
        check(20)
        fill(servers, "flights", 20, 30)
        assert "COMPLETED" in project.run()
        check(30)
    finally:
        spark.stop()


@pytest.mark.integrations
def test_auto_cdc_applies_a_topics_changes(
    shared_cluster: LocalCluster, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The target is in Spark's test catalog: of those at hand only it has row-level operations."""
    connect_server.need("yaml")
    try:
        jar = spark_row_level_catalog()
    except MissingPartError as missing:
        pytest.skip(f"a catalog with row-level operations cannot be had: {missing}")
    servers = shared_cluster.bootstrap
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("pipeline-changes", 1, 3)])

    def send(*changes: tuple[int, str, int, str]) -> None:
        with Producer(servers) as producer:
            for change in changes:
                row = dict(zip(("id", "name", "seq", "op"), change, strict=True))
                producer.send("pipeline-changes", json.dumps(row).encode())

    conf = {"spark.jars": str(jar), "spark.sql.catalog.rows": ROW_LEVEL_CATALOG}
    folder = tmp_path_factory.mktemp("auto-cdc")
    with ConnectServer(folder, next_base_port(folder), conf) as server:
        spark = session(server)
        try:
            project = Project(tmp_path, servers, server)
            project.define(CHANGES, "catalog: rows\n")
            send((1, "a", 1, "u"), (2, "b", 1, "u"), (1, "aa", 2, "u"), (2, "", 3, "d"))
            assert "COMPLETED" in project.run_in_catalog("rows")
            assert people(spark) == {1: "aa"}
            send((1, "late", 1, "u"), (3, "c", 1, "u"))
            assert "COMPLETED" in project.run_in_catalog("rows")
            assert people(spark) == {1: "aa", 3: "c"}
        finally:
            spark.stop()


ROW_LEVEL_CATALOG = (
    "org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog"
)


def people(spark: Any) -> dict[int, str]:
    return {row.id: row.name for row in spark.table("rows.default.people").collect()}
