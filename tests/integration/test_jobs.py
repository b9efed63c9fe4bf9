"""The scripts of jobs/ on real brokers and Delta tables: runs, repeats, dry runs, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from backfill import backfill
from bronze_to_silver import bronze_to_silver
from compact import compact
from enrich import enrich
from headwater import Admin, Producer
from headwater.cli.main import run_command
from headwater.client.blocking.epoch_client import EpochClient
from headwater.client.values import NewTopic
from integration.cluster import LocalCluster
from integration.spark_sessions import spark_session
from integration.tiered_topics import tier_here
from suites import judge
from suites.killing import KillableProgram

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
DDL = "id INT, carrier STRING"
SUBMIT_S = 240


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("local[2]", delta=True) as session:
        yield session


class Jobs:
    """Runs scripts in the test's session, as a notebook or a warm cluster would."""

    def __init__(
        self, spark: Any, cluster: LocalCluster, folder: Path, capture: pytest.CaptureFixture[str]
    ) -> None:
        self.spark = spark
        self.cluster = cluster
        self.folder = folder
        self._capture = capture

    def topics(self, *names: str, partitions: int = 2, **configs: str) -> None:
        with Admin(self.cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(n, partitions, 3, configs=configs) for n in names])

    def produce(self, topic: str, start: int, end: int) -> None:
        with Producer(self.cluster.bootstrap) as producer:
            for i in range(start, end):
                value = json.dumps({"id": i, "carrier": f"c{i % 3}"}).encode()
                producer.send(topic, value, key=b"%d" % i)

    def run(self, command: click.Command, *arguments: str, code: int = 0) -> str:
        """The script's stdout, which is one line."""
        shared = ("--bootstrap-server", self.cluster.bootstrap)
        self._capture.readouterr()
        found = run_command(command, [*arguments, *shared], command.name)
        told = self._capture.readouterr()
        assert found == code, told.err
        if code:
            last = told.err.splitlines()[-1]
            assert told.out == "" and last.startswith("headwater: "), told
            return last
        assert told.out.count("\n") == 1, told.out
        return told.out

    def document(self, command: click.Command, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run(command, *arguments, "--json"))
        assert found.pop("seconds") > 0 and found.pop("job") == command.name
        return found

    def table(self, name: str) -> Any:
        return self.spark.read.format("delta").load(str(self.folder / name))

    def values(self, topic: str) -> list[dict[str, Any]]:
        rows = self.records(topic).collect()
        return sorted((json.loads(row.value) for row in rows), key=lambda row: int(row["id"]))

    def records(self, topic: str) -> Any:
        reader = self.spark.read.format("headwater").option("subscribe", topic)
        reader = reader.option("includeHeaders", "true")
        return reader.option("bootstrap.servers", self.cluster.bootstrap).load()


@pytest.fixture
def jobs(
    spark: Any, shared_cluster: LocalCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Jobs:
    return Jobs(spark, shared_cluster, tmp_path, capfd)


def test_bronze_to_silver_goes_on_where_it_stopped(jobs: Jobs) -> None:
    jobs.topics("bronze")
    jobs.produce("bronze", 0, 30)
    table = str(jobs.folder / "silver")
    arguments = ("bronze", table, "--value-schema", DDL)
    planned = jobs.document(bronze_to_silver, *arguments, "--dry-run")
    assert planned == {"dry_run": True, "offsets": 30} and not Path(table).exists()
    line = jobs.run(bronze_to_silver, *arguments, "--max-offsets", "7")
    assert line.startswith(f"bronze_to_silver: 30 records of bronze into {table}, ")
    jobs.produce("bronze", 30, 35)
    with Producer(jobs.cluster.bootstrap) as producer:
        producer.send("bronze", b"no json", key=b"x")
    assert jobs.document(bronze_to_silver, *arguments, "--dry-run")["offsets"] == 6
    assert jobs.document(bronze_to_silver, *arguments) == {"dry_run": False, "records": 6}
    assert jobs.document(bronze_to_silver, *arguments)["records"] == 0
    rows = jobs.table("silver").orderBy("id").collect()
    assert [row.id for row in rows] == [None, *range(35)]
    assert rows[0]["_malformed"] == "no json" and rows[0]["_key"] == "x"
    assert rows[5].carrier == "c1" and rows[5]["_malformed"] is None
    assert len({(row["_partition"], row["_offset"]) for row in rows}) == 36


@pytest.mark.long
def test_malformed_values_are_dropped_or_fail_the_run(jobs: Jobs) -> None:
    jobs.topics("malformed")
    jobs.produce("malformed", 0, 3)
    with Producer(jobs.cluster.bootstrap) as producer:
        producer.send("malformed", b"no json")
    strict = ("malformed", str(jobs.folder / "strict"), "--value-schema", DDL)
    assert "alformed" in jobs.run(bronze_to_silver, *strict, "--malformed", "fail", code=1)
    loose = ("malformed", str(jobs.folder / "loose"), "--value-schema", DDL)
    jobs.run(bronze_to_silver, *loose, "--malformed", "drop")
    assert jobs.table("loose").count() == 3


def test_enrich_writes_each_record_once(jobs: Jobs) -> None:
    jobs.topics("plain", "named")
    jobs.produce("plain", 0, 20)
    names = jobs.spark.createDataFrame(
        [("c0", "Zero"), ("c1", "One")], "carrier STRING, name STRING"
    )
    names.write.format("delta").save(str(jobs.folder / "names"))
    arguments = ("plain", "named", "--table", str(jobs.folder / "names"), "--on", "carrier")
    arguments += ("--value-schema", DDL, "--checkpoint", str(jobs.folder / "checkpoint"))
    assert jobs.document(enrich, *arguments)["records"] == 20
    jobs.produce("plain", 20, 25)
    assert jobs.document(enrich, *arguments)["records"] == 5
    found = jobs.values("named")
    assert [row["id"] for row in found] == list(range(25))
    assert found[3] == {"id": 3, "carrier": "c0", "name": "Zero"}
    assert found[5] == {"id": 5, "carrier": "c2"}, "no row in the table"


@pytest.mark.long
def test_enrich_is_planned_bounded_and_passes_on_what_it_cannot_join(jobs: Jobs) -> None:
    jobs.topics("plain-2", "named-2")
    jobs.produce("plain-2", 0, 5)
    names = jobs.spark.createDataFrame([("c0", "Zero")], "carrier STRING, name STRING")
    names.write.format("delta").save(str(jobs.folder / "names"))
    arguments = ("plain-2", "named-2", "--table", str(jobs.folder / "names"), "--on", "carrier")
    arguments += ("--value-schema", DDL, "--checkpoint", str(jobs.folder / "checkpoint"))
    assert jobs.document(enrich, *arguments, "--dry-run") == {"dry_run": True, "offsets": 5}
    assert jobs.values("named-2") == []
    assert jobs.document(enrich, *arguments, "--max-offsets", "3")["records"] == 5
    assert jobs.document(enrich, *arguments)["records"] == 0
    with Producer(jobs.cluster.bootstrap) as producer:
        producer.send("plain-2", b"\xff no json", key=b"m", headers=[("h", b"1")])
        producer.send("plain-2", None, key=b"t")
    jobs.run(enrich, *arguments)
    passed = jobs.records("named-2").where("key IN ('m', 't')").orderBy("key").collect()
    assert [row.value and bytes(row.value) for row in passed] == [b"\xff no json", None]
    assert [(h.key, bytes(h.value)) for h in passed[0].headers] == [("h", b"1")]


@pytest.mark.long
def test_enrich_refuses_a_table_that_would_repeat_records(jobs: Jobs) -> None:
    jobs.topics("once", "twice")
    names = jobs.spark.createDataFrame([("c0", "A"), ("c0", "B")], "carrier STRING, name STRING")
    names.write.format("delta").save(str(jobs.folder / "names"))
    arguments = ("once", "twice", "--table", str(jobs.folder / "names"), "--value-schema", DDL)
    arguments += ("--checkpoint", str(jobs.folder / "checkpoint"))
    assert "2 rows for one key" in jobs.run(enrich, *arguments, "--on", "carrier", code=1)
    assert "no column id" in jobs.run(enrich, *arguments, "--on", "id", code=2)


@pytest.mark.long
def test_backfill_copies_history_and_tail(jobs: Jobs) -> None:
    """A part of the topic is in its Delta table, the rest only on the brokers."""
    configs = {"retention.ms": "-1", "remote.storage.enable": "true"}
    jobs.topics("history", **configs)
    jobs.topics("copied")
    jobs.produce("history", 0, 40)
    tier_here(jobs.cluster, jobs.spark, "history")
    jobs.produce("history", 40, 50)
    arguments = (
        "history",
        "--to-topic",
        "copied",
        "--where",
        "CAST(CAST(key AS STRING) AS INT) >= 10",
    )
    assert jobs.document(backfill, *arguments, "--dry-run") == {"dry_run": True, "records": 40}
    assert jobs.document(backfill, *arguments)["records"] == 40
    assert [row["id"] for row in jobs.values("copied")] == list(range(10, 50))
    table = ("history", "--to-table", str(jobs.folder / "copy"), "--id", "first")
    for _ in range(2):  # the second run of this name writes nothing
        jobs.run(backfill, *table)
    assert jobs.table("copy").count() == 50


def test_compact_rewrites_small_files_of_topics_and_tables(jobs: Jobs) -> None:
    jobs.topics("small-files", partitions=1, **{"remote.storage.enable": "true"})
    for start in range(0, 30, 10):
        jobs.produce("small-files", start, start + 10)
        tier_here(jobs.cluster, jobs.spark, "small-files")
        rows = jobs.spark.range(start, start + 10).repartition(2)
        rows.write.format("delta").mode("append").save(str(jobs.folder / "plain"))
    plain = str(jobs.folder / "plain")
    arguments = ("small-files", "--files-min", "2", "--table", plain)
    planned = jobs.document(compact, *arguments, "--dry-run")["files"]
    assert planned == {"small-files": 3, plain: 6}
    done = jobs.document(compact, *arguments)["files"]
    assert done == {"small-files": 3, plain: 6}
    assert jobs.document(compact, *arguments)["files"]["small-files"] == 0
    assert jobs.table("plain").count() == 30
    assert len(jobs.values("small-files")) == 30


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        (bronze_to_silver, ("bronze-only",), "Missing argument"),
        (backfill, ("t",), "one of --to-topic and --to-table"),
        (backfill, ("t", "--to-topic", "t"), "is the source itself"),
        (backfill, ("t", "--to-table", "/x"), "needs --id"),
        (compact, (), "give a TOPIC or --table"),
        (enrich, ("a", "b", "--on", "x"), "Missing option"),
    ],
)
def test_wrong_arguments(
    jobs: Jobs, command: click.Command, arguments: tuple[str, ...], words: str
) -> None:
    assert words in jobs.run(command, *arguments, code=2)


def test_a_missing_topic_and_a_wrong_schema(jobs: Jobs) -> None:
    table = str(jobs.folder / "none")
    missing = ("no-such-topic", table, "--value-schema", DDL)
    assert "create it with" in jobs.run(bronze_to_silver, *missing, code=2)
    jobs.topics("schema-test")
    wrong = ("schema-test", table, "--value-schema", "id NONSENSE")
    assert "NONSENSE" in jobs.run(bronze_to_silver, *wrong, code=2)


@pytest.mark.long
def test_spark_submit_passes_on_the_exit_code_and_the_line(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    servers = shared_cluster.bootstrap
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("scheduled", 1, 3)])
    with Producer(servers) as producer:
        producer.send("scheduled", b'{"id": 1}')
    table = str(tmp_path / "table")

    def submit(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = str(Path(sys.executable).with_name("spark-submit"))
        options = ("--master", "local[2]", "--conf", "spark.ui.enabled=false")
        script = str(ROOT / "jobs" / "bronze_to_silver.py")
        return subprocess.run(
            [program, *options, script, *arguments, "--bootstrap-server", servers],
            cwd=tmp_path,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=SUBMIT_S,
            check=False,
        )

    done = submit("scheduled", table, "--value-schema", "id INT")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith(f"bronze_to_silver: 1 records of scheduled into {table}, ")
    assert done.stdout.count("\n") == 1
    wrong = submit("scheduled")
    # spark-submit merges a script's stderr into stdout.
    assert wrong.returncode == 2 and wrong.stdout.startswith("headwater: Missing argument")
    assert wrong.stdout.count("\n") == 1


@pytest.mark.long
def test_a_run_that_is_killed_and_run_again_repeats_no_record(jobs: Jobs) -> None:
    """SIGKILL to driver and tasks between two of its many micro-batches, or within one."""
    count, servers = 400, jobs.cluster.bootstrap
    jobs.topics("killed-in", "killed-out")
    jobs.produce("killed-in", 0, count)
    names = jobs.spark.createDataFrame([("c0", "Zero")], "carrier STRING, name STRING")
    names.write.format("delta").save(str(jobs.folder / "names"))
    arguments = ("killed-in", "killed-out", "--table", str(jobs.folder / "names"))
    arguments += ("--on", "carrier", "--value-schema", DDL)
    arguments += ("--checkpoint", str(jobs.folder / "checkpoint"))
    submit = str(Path(sys.executable).with_name("spark-submit"))
    command = [submit, "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    command += [str(ROOT / "jobs" / "enrich.py"), *arguments, "--max-offsets", "5"]
    program = KillableProgram(
        [*command, "--bootstrap-server", servers],
        jobs.folder / "killed.log",
        {"PYSPARK_PYTHON": sys.executable},
    )

    def killed_at(least: int) -> None:
        with program:
            jobs.cluster.wait_until(
                lambda: reader.advance() >= least or program.exit_code() is not None,
                f"{least} records",
                SUBMIT_S,
            )
            assert program.exit_code() is None, program.last_words()
        assert reader.advance() < count, "it was killed too late"

    with judge.Reader(servers, "killed-out") as reader:
        killed_at(1)
        killed_at(60)
    jobs.document(enrich, *arguments)
    assert [row["id"] for row in jobs.values("killed-out")] == list(range(count))
    metadata = json.loads((jobs.folder / "checkpoint" / "metadata").read_text())
    with EpochClient(servers) as client:
        sink = client.describe(metadata["id"])
    assert sink is not None and sink.epochs == ()
