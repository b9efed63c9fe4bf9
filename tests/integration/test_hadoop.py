"""MapReduce jobs to and from a topic, on Hadoop's own local job runner."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater import Consumer, Producer
from integration.cluster import LocalCluster
from suites import java_programs, parts
from suites.parts import INTEGRATIONS, PROGRAMS, MissingPartError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
LIST_MAX = 32_767
LINES = 2 * LIST_MAX + 100
KEYS = 50
PARTITIONS = 3
JOB_S = 120.0
READ_MS = 30_000


@pytest.fixture(scope="module")
def classpath() -> str:
    try:
        jars = parts.hadoop_jars()
        return f"{java_programs.classes(INTEGRATIONS / 'hadoop', jars)}:{jars}"
    except MissingPartError as error:
        pytest.skip(str(error))


def test_files_to_a_topic_and_back(
    shared_cluster: LocalCluster, tmp_path: Path, classpath: str
) -> None:
    servers = shared_cluster.bootstrap
    topic = shared_cluster.create_topic("hadoop-lines", PARTITIONS)
    lines = [f"key-{number % KEYS}\tline {number}" for number in range(LINES)]
    lines += [f"without a key {number}" for number in range(10)]
    (tmp_path / "in").mkdir()
    for part in range(2):
        (tmp_path / "in" / f"{part}.txt").write_text("\n".join(lines[part::2]) + "\n")
    settings = {"kafka.output.bootstrap.servers": servers}
    told = job(classpath, tmp_path, "FilesToTopic", settings, str(tmp_path / "in"), topic)
    assert counter(told, "lists") == 3  # full, full, the rest
    found = records(servers, topic, len(lines))
    assert sorted(text for rows in found.values() for text in rows) == sorted(lines)
    of_key: dict[str, set[int]] = defaultdict(set)
    for partition, rows in found.items():
        for text in rows:
            of_key[text.partition("\t")[0]].add(partition)
    assert all(len(of_key[f"key-{n}"]) == 1 for n in range(KEYS))

    settings = {"kafka.input.bootstrap.servers": servers}
    told = job(classpath, tmp_path, "TopicToFiles", settings, topic, str(tmp_path / "first"))
    assert counter(told, "fetches") >= PARTITIONS
    assert written(tmp_path / "first") == sorted(found.values())
    with Producer(servers, transactional_id="hadoop") as producer:
        with producer.transaction():  # its marker is the partition's last offset
            producer.send(topic, b"new", partition=1)
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"aborted", partition=0)
            raise ZeroDivisionError
    last = str(tmp_path / "first")
    job(classpath, tmp_path, "TopicToFiles", settings, topic, str(tmp_path / "second"), last)
    assert written(tmp_path / "second") == [[], [], ["new"]]


@pytest.mark.integrations
def test_when_a_list_is_sent(classpath: str) -> None:
    own = java_programs.classes(PROGRAMS / "hadoop", classpath)
    told = run(java_programs.java(f"{own}:{classpath}", "WriterBoundaries"))
    assert told.splitlines() == [
        # case, lists sent before the writer was closed, all lists, whether its producer is closed
        "nothing [] [] true",
        "below [] [2] true",
        "exact [] [2] true",
        "beyond [2] [2, 1] true",
        "large [1, 1] [1, 1, 1] true",
        "first-large [] [1] true",
        f"count [] [{LIST_MAX}] true",
        f"count-beyond [{LIST_MAX}] [{LIST_MAX}, 1] true",
        "text a value must be byte[] or BytesWritable, not org.apache.hadoop.io.Text",
        "null a value must be byte[] or BytesWritable, not null",
        *["failed 1 messages to topic failed: " + NO_BROKER] * 2,
        "kept k 3",
    ]


@pytest.mark.integrations
def test_a_job_fails_when_its_topic_cannot_take_it(
    shared_cluster: LocalCluster, tmp_path: Path, classpath: str
) -> None:
    topic = shared_cluster.create_topic("hadoop-small", max_message_bytes="1000")
    (tmp_path / "in.txt").write_text("x" * 2000 + "\n")
    settings = {"kafka.output.bootstrap.servers": shared_cluster.bootstrap}
    with pytest.raises(AssertionError, match="RecordTooLargeException"):
        job(classpath, tmp_path, "FilesToTopic", settings, str(tmp_path / "in.txt"), topic)


@pytest.mark.integrations
def test_offsets_that_are_gone_are_not_passed_over(
    shared_cluster: LocalCluster, tmp_path: Path, classpath: str
) -> None:
    topic = shared_cluster.create_topic("hadoop-gone")
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / f"_offset-{topic}-0").write_text("7\n")
    settings = {"kafka.input.bootstrap.servers": shared_cluster.bootstrap}
    arguments = (topic, str(tmp_path / "out"), str(tmp_path / "last"))
    with pytest.raises(AssertionError, match="the last run ended at offset 7 of hadoop-gone-0"):
        job(classpath, tmp_path, "TopicToFiles", settings, *arguments)


NO_BROKER = "org.apache.kafka.common.errors.TimeoutException: no broker"


def job(
    classpath: str, folder: Path, main: str, settings: Mapping[str, str], *arguments: str
) -> str:
    """Run a job to its end; what it told, with its counters."""
    files = str(folder / "hadoop")
    own = {"hadoop.tmp.dir": files, "mapreduce.jobtracker.staging.root.dir": files}
    rows = own | dict(settings)
    options = [f"-D{name}={value}" for name, value in rows.items()]
    properties = {"org.apache.logging.log4j.level": "INFO"}
    return run(java_programs.java(classpath, main, *options, *arguments, properties=properties))


def run(command: list[str]) -> str:
    """The standard output of a program that succeeds."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=JOB_S, check=False)
    assert done.returncode == 0, f"{done.stdout[-8000:]}{done.stderr[-4000:]}"
    return done.stdout


def counter(told: str, name: str) -> int:
    """A counter of a job."""
    found = re.search(rf"^\s*{name}=(\d+)$", told, re.MULTILINE)
    assert found is not None, told
    return int(found[1])


def records(servers: str, topic: str, count: int) -> dict[int, list[str]]:
    """Key, tab, value of each record, by partition and in order."""
    found: dict[int, list[str]] = defaultdict(list)
    options = {"auto_offset_reset": "earliest", "consumer_timeout_ms": READ_MS}
    with Consumer(topic, bootstrap_servers=servers, **options) as consumer:
        for record in itertools.islice(consumer, count):
            key = "" if record.key is None else record.key.decode() + "\t"
            found[record.partition].append(key + (record.value or b"").decode())
    return found


def written(folder: Path) -> list[list[str]]:
    """The lines of each file of a job's output, and that each has an offset for the next run."""
    files = list(folder.glob("part-m-*"))
    assert len(files) == PARTITIONS == len(list(folder.glob("_offset-*")))
    return sorted(file.read_text().splitlines() for file in files)
