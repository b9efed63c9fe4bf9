"""The features of transactions that every client is tried with, and the table in docs/clients.md.

    python -m suites.client_features     # all clients, against Headwater; writes the table
    python -m suites.client_features --kafka franz-go

A client is a program or a function that is given a feature, a bootstrap list and a name. There are
topics NAME-in, which holds "0" to "3", and NAME-out; the group is NAME-group, the transactional id
NAME-id. What the client does, and what a reader of committed records must then see in NAME-out:

- commit: it commits "committed-0" to "-2", each in a transaction. These.
- abort: it aborts "aborted-0" and "-1", then commits "committed-0". Only the last; a reader of
  uncommitted records sees all.
- fence: it begins with "aborted-0", then a second producer of the same id commits "committed-0".
  The commit of the first fails: it prints "refused: " and the error. Only the last.
- offsets: it copies NAME-in in a group as "copied-N" and commits offset 4 with it, then aborts a
  transaction with another offset. The copies, and the group's offset 4.
- read: it prints the committed records of NAME-out, in which there are committed, aborted and open
  transactions. Only what is committed, and before the open one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import confluent_kafka

from docs_pages import DOCS, table, with_block
from suites import judge, parts, python_clients
from suites.clusters import HEADWATER, KAFKA, create_topic, started
from suites.outcomes import WORKS, outcome

PAGE = DOCS / "clients.md"
BLOCK = "client-transactions"
RECORDS = 4
PROGRAM_S = 180.0
SHOWN_CHARACTERS = 1_500


class Trial(NamedTuple):
    """Topics of one client and feature."""

    bootstrap: str
    name: str

    def visible(self, isolation: str = judge.COMMITTED) -> list[str]:
        """What is in NAME-out."""
        return judge.values(self.bootstrap, f"{self.name}-out", isolation)


Client = Callable[[str, Trial], Sequence[str]]
"""(feature, trial) -> the lines it printed. Raises when the feature does not work."""


def judge_commit(trial: Trial, _lines: Sequence[str]) -> None:
    """All committed records are there."""
    assert trial.visible() == ["committed-0", "committed-1", "committed-2"]


def judge_abort(trial: Trial, _lines: Sequence[str]) -> None:
    """The aborted records are there, but not for a reader of committed ones."""
    assert trial.visible() == ["committed-0"]
    assert trial.visible(judge.UNCOMMITTED) == ["aborted-0", "aborted-1", "committed-0"]


def judge_fence(trial: Trial, lines: Sequence[str]) -> None:
    """Only the newer producer could commit."""
    assert trial.visible() == ["committed-0"]
    assert any(line.startswith("refused: ") for line in lines), lines


def judge_offsets(trial: Trial, _lines: Sequence[str]) -> None:
    """Copies and offset came together."""
    assert trial.visible() == [f"copied-{number}" for number in range(RECORDS)]
    group, topic = f"{trial.name}-group", f"{trial.name}-in"
    assert judge.committed_offsets(trial.bootstrap, group, topic) == {0: RECORDS}


def judge_read(_trial: Trial, lines: Sequence[str]) -> None:
    """Nothing aborted, nothing open, nothing behind an open transaction."""
    assert list(lines) == ["committed-0", "committed-1"]


FEATURES: Mapping[str, Callable[[Trial, Sequence[str]], None]] = {
    "commit": judge_commit,
    "abort": judge_abort,
    "fence": judge_fence,
    "offsets": judge_offsets,
    "read": judge_read,
}
HEADINGS = {"offsets": "send offsets", "read": "read committed"}


def _program(
    command: Sequence[str], feature: str, trial: Trial, environment: Mapping[str, str] | None = None
) -> Sequence[str]:
    done = subprocess.run(
        [*command, feature, trial.bootstrap, trial.name],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    told = f"{done.stderr[-SHOWN_CHARACTERS:]}{done.stdout[-SHOWN_CHARACTERS:]}"
    assert done.returncode == 0, told
    return done.stdout.splitlines()


def java(feature: str, trial: Trial) -> Sequence[str]:
    """Kafka's own clients; Java compiles the one file as it starts."""
    source = parts.PROGRAMS / "java" / "TransactionFeatures.java"
    return _program(["java", "-cp", parts.kafka_jars(), str(source)], feature, trial)


def kafkajs(feature: str, trial: Trial) -> Sequence[str]:
    """KafkaJS."""
    command, environment = parts.kafkajs()
    source = parts.PROGRAMS / "kafkajs" / "transaction_features.js"
    return _program([*command, str(source)], feature, trial, environment)


def franz_go(feature: str, trial: Trial) -> Sequence[str]:
    """franz-go."""
    return _program([str(parts.go_program("franz"))], feature, trial)


def sarama(feature: str, trial: Trial) -> Sequence[str]:
    """sarama."""
    return _program([str(parts.go_program("sarama"))], feature, trial)


PYTHON_CLIENTS: Mapping[str, Client] = {
    name: lambda feature, trial, client=client: client[feature](trial.bootstrap, trial.name)
    for name, client in python_clients.CLIENTS.items()
}
OUTSIDE_CLIENTS: Mapping[str, Client] = {
    "Java": java,
    "KafkaJS": kafkajs,
    "franz-go": franz_go,
    "sarama": sarama,
}
CLIENTS: Mapping[str, Client] = {**PYTHON_CLIENTS, **OUTSIDE_CLIENTS}


def run(bootstrap: str, client: str, feature: str) -> None:
    """Try one feature with one client; raises when it does not work."""
    trial = Trial(bootstrap, f"{feature}-{uuid.uuid4().hex[:10]}")
    for topic in ("in", "out"):
        create_topic(bootstrap, f"{trial.name}-{topic}", 1)
    _fill(bootstrap, f"{trial.name}-in")
    open_transaction = _prepared(trial) if feature == "read" else None
    try:
        lines = CLIENTS[client](feature, trial)
        FEATURES[feature](trial, lines)
    finally:
        if open_transaction is not None:
            open_transaction.abort_transaction(judge.WAIT_S)


def _fill(bootstrap: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(judge.WAIT_S) == 0


def _prepared(trial: Trial) -> confluent_kafka.Producer:
    """NAME-out with an open transaction at its end; its producer."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": trial.bootstrap, "transactional.id": f"{trial.name}-writer"}
    )
    producer.init_transactions(judge.WAIT_S)
    for value in ("committed-0", "aborted-0", "committed-1", "open-0"):
        producer.begin_transaction()
        producer.produce(f"{trial.name}-out", value.encode(), partition=0)
        if value == "open-0":
            assert producer.flush(judge.WAIT_S) == 0
        elif value.startswith("aborted"):
            assert producer.flush(judge.WAIT_S) == 0
            producer.abort_transaction(judge.WAIT_S)
        else:
            producer.commit_transaction(judge.WAIT_S)
    plain = confluent_kafka.Producer({"bootstrap.servers": trial.bootstrap, "acks": "all"})
    plain.produce(f"{trial.name}-out", b"behind the open transaction", partition=0)
    assert plain.flush(judge.WAIT_S) == 0
    return producer


def page_block(results: Mapping[tuple[str, str], str]) -> str:
    """The table; `results` by client and feature."""
    headings = ("client", *(HEADINGS.get(feature, feature) for feature in FEATURES))
    rows = (
        (client, *(results.get((client, feature), "not run") for feature in FEATURES))
        for client in CLIENTS
    )
    return table(headings, iter(rows))


def _outcome(bootstrap: str, client: str, feature: str) -> str:
    return outcome(lambda: run(bootstrap, client, feature))


def main(arguments: Iterable[str]) -> int:
    """Run all clients, or those named; write the table after a whole run against Headwater."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka: writes nothing")
    parser.add_argument("clients", nargs="*", choices=[*CLIENTS, []], help="all without a name")
    options = parser.parse_args(list(arguments))
    results: dict[tuple[str, str], str] = {}
    with (
        tempfile.TemporaryDirectory(prefix="client-features-") as folder,
        started(KAFKA if options.kafka else HEADWATER, Path(folder)) as cluster,
    ):
        for client in options.clients or CLIENTS:
            for feature in FEATURES:
                found = results[client, feature] = _outcome(cluster.bootstrap, client, feature)
                print(f"{client}: {feature}: {found}", flush=True)
    if not options.clients and not options.kafka:
        PAGE.write_text(with_block(PAGE.read_text(), BLOCK, page_block(results)))
    return 0 if set(results.values()) == {WORKS} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
