"""Kafka Streams' word count: a repartition topic, a store with its changelog, exactly once."""

from __future__ import annotations

import itertools
import signal
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from headwater import Consumer, Producer
from headwater.client.admin.client import LATEST
from integration.cluster import LocalCluster
from integration.conftest import Start
from suites import java_programs, parts
from suites.killing import Feeder, KillableProgram, wait_until
from suites.parts import INTEGRATIONS, MissingPartError

pytestmark = [pytest.mark.integration, pytest.mark.integrations, pytest.mark.timeout(300)]
INPUT, OUTPUT = "streams-plaintext-input", "streams-wordcount-output"
APPLICATION = "word-count"
SENTENCES = ("the cow jumped over the moon", "An apple a day", "the end")
WORDS_OF_SENTENCE = (6, 4, 2)
PARTITIONS = 2
WAIT_S = 90.0
LINES = 3_000
LINES_PER_S = 400
KILLED_AT = (0.2, 0.5)
"""The shares of the output after which the job, then a broker, is killed."""


@pytest.fixture(autouse=True)
def streams_is_there() -> None:
    try:
        parts.streams_jars()
    except MissingPartError as error:
        pytest.skip(str(error))


def word_count(folder: Path, cluster: LocalCluster, guarantee: str) -> KillableProgram:
    """The example, with a state folder of its own and a session that ends soon."""
    jars = parts.streams_jars()
    classpath = f"{java_programs.classes(INTEGRATIONS / 'streams', jars)}:{jars}"
    configs = {
        "bootstrap.servers": cluster.bootstrap,
        "application.id": APPLICATION,
        "processing.guarantee": guarantee,
        "state.dir": folder / "state",
        "num.stream.threads": 2,
        "replication.factor": cluster.spec.brokers,
        "commit.interval.ms": 200,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
    }
    file = folder / "streams.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in configs.items()))
    command = java_programs.java(classpath, "WordCountStreams", str(file))
    return KillableProgram(command, folder / "streams.log")


def test_counts_go_on_where_the_last_run_ended(start_cluster: Start, tmp_path: Path) -> None:
    cluster = start_cluster(brokers=1)
    create_topics(cluster)
    job = word_count(tmp_path, cluster, "at_least_once")
    for run in (1, 2):
        with Producer(cluster.bootstrap) as producer:
            for number, sentence in enumerate(SENTENCES):
                producer.send(INPUT, sentence.encode(), partition=number % PARTITIONS)
        with job:
            found = read_counts(cluster, run * sum(WORDS_OF_SENTENCE))
            assert found == expected(run)
            job.signal(signal.SIGTERM)
            job.wait(WAIT_S)
            assert "closed true" in job.log_text(), job.last_words()


def test_a_killed_job_and_a_killed_broker_count_each_word_once(
    start_cluster: Start, tmp_path: Path
) -> None:
    cluster = start_cluster(brokers=3)
    create_topics(cluster)
    sentences, rest = divmod(LINES, len(SENTENCES))
    assert rest == 0
    words = sentences * sum(WORDS_OF_SENTENCE)
    feeder = Feeder(cluster.bootstrap, INPUT, line, LINES_PER_S, LINES)
    with word_count(tmp_path, cluster, "exactly_once_v2") as job:
        with feeder:
            wait_until(lambda: written(cluster) > words * KILLED_AT[0], "output", WAIT_S)
            job.kill()
            job.start()
            wait_until(lambda: written(cluster) > words * KILLED_AT[1], "output", WAIT_S)
            cluster.kill_broker(cluster.leader_of(OUTPUT))
            feeder.join()
        assert read_counts(cluster, words) == expected(sentences)
        assert job.exit_code() is None, job.last_words()


def create_topics(cluster: LocalCluster) -> None:
    """The input and the output, as wide as each other."""
    for topic in (INPUT, OUTPUT):
        cluster.create_topic(topic, PARTITIONS, min_insync_replicas="1")


def written(cluster: LocalCluster) -> int:
    """How far the output goes, with what is not committed."""
    with cluster.admin() as admin:
        ends = admin.list_offsets({(OUTPUT, p): LATEST for p in range(PARTITIONS)})
    return sum(row.offset for row in ends.values())


def line(number: int) -> tuple[int, str]:
    """The partition and the text of a line."""
    return number % PARTITIONS, SENTENCES[number % len(SENTENCES)]


def expected(rounds: int) -> dict[str, list[int]]:
    """Every word's counts in the output, in order, after the sentences came this often."""
    words = Counter(word for sentence in SENTENCES for word in sentence.lower().split(" "))
    return {word: list(range(1, rounds * n + 1)) for word, n in words.items()}


def read_counts(cluster: LocalCluster, count: int) -> dict[str, list[int]]:
    """The counts told of each word by this many committed records, and that there are no more."""
    found: dict[str, list[int]] = defaultdict(list)
    options = {
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "consumer_timeout_ms": WAIT_S * 1000,
    }
    with Consumer(OUTPUT, bootstrap_servers=cluster.bootstrap, **options) as consumer:
        for record in itertools.islice(consumer, count):
            assert record.key is not None and record.value is not None
            found[record.key.decode()].append(int(record.value))
        assert consumer.poll(timeout_ms=1_000) == {}
    return found
