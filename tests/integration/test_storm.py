"""The book's word count on a real Storm, with Storm's own spout and bolt for Kafka."""

from __future__ import annotations

import itertools
import json
import re
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import Admin, Consumer, Producer
from headwater.client.values import NewTopic
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from suites import java_programs, parts
from suites.killing import KillableProgram, wait_until
from suites.parts import INTEGRATIONS, PROGRAMS, MissingPartError

pytestmark = [pytest.mark.integration, pytest.mark.integrations, pytest.mark.timeout(300)]
SENTENCES = ("the cow jumped over the moon", "an apple a day", "a b a", "two  spaces", 'a "quote"')
ROUNDS = 40
NOT_UTF8 = b"\xff\xfe the"
RUNS_S = 120.0
STOPS_S = 60.0
GROUPED = 9_000
VALUES = 30
TASKS = 3
GROUPINGS = ("shuffle", "fields", "all", "global", "none", "direct", "local-or-shuffle")
EVEN = 0.1
"""How far from a third of the tuples a task may be by shuffle, as a share of it."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        parts.storm_jars()
    except MissingPartError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("storm")
    with LocalCluster(folder, next_base_port(folder), brokers=1) as cluster:
        yield cluster.bootstrap


def program(folder: Path, sources: Path, servers: str, *command: str) -> KillableProgram:
    """A topology of these sources in a JVM of its own, which is Storm's whole cluster."""
    jars = parts.storm_jars()
    classpath = f"{java_programs.classes(sources, jars)}:{jars}"
    properties = {"bootstrap.servers": servers, "run.seconds": str(int(RUNS_S))}
    java = java_programs.java(classpath, *command, properties=properties)
    return KillableProgram(java, folder / "storm.log")


def test_the_books_word_count(servers: str, tmp_path: Path) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("consumeTopic", 3, 1), NewTopic("productTopic", 1, 1)])
    expected = Counter(w for s in SENTENCES for w in s.split(" ") for _ in range(ROUNDS))
    with Producer(servers) as producer:
        for number, sentence in enumerate(SENTENCES * ROUNDS):
            producer.send("consumeTopic", sentence.encode(), partition=number % 3)
        producer.send("consumeTopic", NOT_UTF8, partition=0)
    folder = INTEGRATIONS / "storm"
    with program(tmp_path, folder, servers, "WordCountKafka") as storm:
        counts = read_counts(servers, expected.total())
        # Every running count of a word is told of, from 1 to its total.
        assert {word: sorted(told) for word, told in counts.items()} == {
            word: list(range(1, total + 1)) for word, total in expected.items()
        }
        wait_until(lambda: committed(servers) == len(SENTENCES) * ROUNDS + 1, "offsets", STOPS_S)
        storm.signal(signal.SIGTERM)
        storm.wait(STOPS_S)
        assert "killed topology WordCountKafka" in storm.log_text(), storm.last_words()


def test_each_grouping_reaches_the_tasks_it_should(servers: str, tmp_path: Path) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("grouped", 3, 1)])
    with Producer(servers) as producer:
        for number in range(GROUPED):
            producer.send("grouped", f"v{number % VALUES}".encode(), partition=number % 3)
    sources = PROGRAMS / "storm"
    with program(tmp_path, sources, servers, "Groupings", "grouped", str(GROUPED)) as storm:
        assert storm.wait(RUNS_S) == 0, storm.last_words()
        rows = re.findall(r"^seen (\S+) (\d) (\S+) (\d+)$", storm.log_text(), re.MULTILINE)
    by_task: dict[str, Counter[int]] = defaultdict(Counter)
    tasks_of_value: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for grouping, task, value, count in rows:
        by_task[grouping][int(task)] += int(count)
        if int(count):
            tasks_of_value[grouping][value].add(int(task))
    assert set(by_task) == set(GROUPINGS)
    assert all(sorted(tasks) == list(range(TASKS)) for tasks in by_task.values())
    each = GROUPED / TASKS
    for grouping in ("shuffle", "none", "local-or-shuffle"):
        assert all(abs(c - each) <= each * EVEN for c in by_task[grouping].values()), grouping
    assert all(len(tasks) == 1 for tasks in tasks_of_value["fields"].values())
    assert len(tasks_of_value["fields"]) == VALUES
    assert by_task["all"] == Counter(dict.fromkeys(range(TASKS), GROUPED))
    assert by_task["global"] == Counter({0: GROUPED, 1: 0, 2: 0})  # the lowest id, not the newest
    assert tasks_of_value["direct"] == {f"v{n}": {n % TASKS} for n in range(VALUES)}


def read_counts(servers: str, count: int) -> dict[str, list[int]]:
    """The counts told of each word, from `count` records of productTopic."""
    found: dict[str, list[int]] = defaultdict(list)
    options = {"auto_offset_reset": "earliest", "consumer_timeout_ms": RUNS_S * 1000}
    with Consumer("productTopic", bootstrap_servers=servers, **options) as consumer:
        records = list(itertools.islice(consumer, count))
    assert len(records) == count
    for record in records:
        row = json.loads(record.value or b"")
        assert set(row) == {"word", "count"}
        found[row["word"]].append(int(row["count"]))
    return found


def committed(servers: str) -> int:
    """The sum of the offsets of the spout's group."""
    with Admin(servers) as admin:
        rows = admin.list_group_offsets("wordCount")
    return sum(row.offset for row in rows.values())
