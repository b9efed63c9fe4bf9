"""The two servers, and the run of all cases on one of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peers import KafkaPeer

from differential.exchange import Exchange
from differential.session import NOT_READY, Answer, Case
from headwater.errors import ErrorCode
from headwater.wire.apis import k03_metadata as k03
from headwater.wire.apis import k10_find_coordinator as k10
from headwater.wire.apis import k19_create_topics as k19
from whole_cluster import ServedCluster

PROPERTIES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}
PARTITIONS = 2
READY_S = 60.0
POLL_S = 0.05


@contextmanager
def kafka(folder: Path) -> Iterator[Exchange]:
    """A connection to one broker of Apache Kafka."""
    peer = KafkaPeer(folder, properties=PROPERTIES)
    try:
        peer.start()
        with connected(peer.ports[0]) as exchange:
            yield exchange
    finally:
        peer.stop()


@contextmanager
def headwater(folder: Path) -> Iterator[Exchange]:
    """A connection to one broker of Headwater, in this process."""
    properties = {key.replace(".", "_"): value for key, value in PROPERTIES.items()}
    with (
        ServedCluster(folder, 1, **properties) as served,
        connected(int(served.bootstrap.rpartition(":")[2])) as exchange,
    ):
        yield exchange


@contextmanager
def connected(port: int) -> Iterator[Exchange]:
    """A connection to a broker on this machine, once its coordinators serve."""
    exchange = Exchange("127.0.0.1", port)
    try:
        for key_type in (0, 1):
            _wait_for_coordinator(exchange, key_type)
        yield exchange
    finally:
        exchange.close()


def _wait_for_coordinator(exchange: Exchange, key_type: int) -> None:
    request = k10.FindCoordinatorRequest(key_type=key_type, coordinator_keys=("any",))
    end = time.monotonic() + READY_S
    while True:
        reply = exchange.ask(request, k10.FindCoordinatorResponse, 4)
        code = ErrorCode(reply.coordinators[0].error_code)
        if code is ErrorCode.NONE:
            return
        if code not in NOT_READY or time.monotonic() > end:
            raise RuntimeError(f"no coordinator of type {key_type}: {code.name}")
        time.sleep(POLL_S)


def run_cases(exchange: Exchange, cases: tuple[Case, ...]) -> dict[str, list[Answer]]:
    """The answers of a server, by case."""
    topics = {case.name: f"case-{number}" for number, case in enumerate(cases)}
    _create_topics(exchange, tuple(topics.values()))
    return {case.name: case.run(exchange, topics[case.name]) for case in cases}


def _create_topics(exchange: Exchange, topics: tuple[str, ...]) -> None:
    request = k19.CreateTopicsRequest(
        topics=tuple(
            k19.CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=1)
            for topic in topics
        ),
        timeout_ms=int(READY_S * 1000),
    )
    reply = exchange.ask(request, k19.CreateTopicsResponse, 7)
    for row in reply.topics:
        if row.error_code:
            raise RuntimeError(f"{row.name}: {ErrorCode(row.error_code).name}")
    end = time.monotonic() + READY_S
    wanted = k03.MetadataRequest(topics=tuple(k03.MetadataRequestTopic(name=t) for t in topics))
    while True:
        found = exchange.ask(wanted, k03.MetadataResponse, 12)
        partitions = [p for topic in found.topics for p in topic.partitions]
        if len(partitions) == PARTITIONS * len(topics) and all(
            not p.error_code and p.leader_id >= 0 for p in partitions
        ):
            return
        if time.monotonic() > end:
            raise RuntimeError("the topics have no leaders")
        time.sleep(POLL_S)
