"""The fast path for plain fetches: the response of `DelayedFetch`, byte for byte, or none."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.ports.authorizer import AllowAll, Operation, Requester, ResourceType
from headwater.records.builder import build_batch
from headwater.records.compression import Compression
from headwater.wire.apis.k01_fetch import (
    FetchPartition,
    FetchRequest,
    ForgottenTopic,
    ReplicaState,
)
from headwater.wire.schema import encode
from headwater_broker.api.fetch.delayed_fetch import DelayedFetch
from headwater_broker.api.fetch.fast_path import answer_plain
from headwater_broker.api.fetch.request_codec import parse_fetch, parse_plain
from headwater_broker.api.replies import Answer, FilePart, ParkedReply
from headwater_broker.network.request_dispatch import MALFORMED
from headwater_broker.security.session import Session
from solo_broker import SoloBroker
from unit.network.test_data_plane import batch, fetch, fetch_request, produce, serve

VERSIONS = range(4, 19)
READ_COMMITTED = 1
BIG = 90_000
"""Of one batch: beyond what is copied, it goes by sendfile."""
Change = Callable[[FetchRequest], FetchRequest]


def peer_of(broker: SoloBroker) -> Any:
    """A connection that keeps nothing."""
    return SimpleNamespace(
        services=broker.services,
        session=Session(broker.authorizer, listener="test"),
        park=lambda: ParkedReply(lambda: None),
        spawn=lambda work: work.close(),
        rejected=None,
    )


def flat(answer: Answer) -> bytes | None:
    """What would be sent; None for a reply that waits."""
    if answer is None or isinstance(answer, ParkedReply):
        return None
    parts = [answer] if isinstance(answer, bytes) else answer
    return b"".join(
        os.pread(p.fd, p.size, p.position) if isinstance(p, FilePart) else p for p in parts
    )


def placed(request: FetchRequest, version: int) -> tuple[memoryview, int, int]:
    """The request in a receive buffer: view, start and end."""
    body, noise = encode(request, version), b"\x01" * 40
    return memoryview(noise + body + noise), len(noise), len(noise) + len(body)


def fast(peer: Any, view: memoryview, at: int, end: int, version: int) -> Answer:
    """What the fast path answers."""
    plain = parse_plain(view, at, end, version)
    return None if plain is None else answer_plain(peer, plain, version, 77)


def both(broker: SoloBroker, request: FetchRequest, version: int) -> tuple[Answer, Answer]:
    """(fast path, `DelayedFetch`)."""
    peer, (view, at, end) = peer_of(broker), placed(request, version)
    plain = fast(peer, view, at, end, version)
    job = DelayedFetch(peer, parse_fetch(view[:end], at, end, version), version, 77)
    return plain, job.start()


def request_of(topic_id: UUID, version: int, offset: int, **options: Any) -> FetchRequest:
    by_id = version >= 13
    return fetch_request(
        "" if by_id else "daily-orders",
        offset,
        **({"topic_id": topic_id} if by_id else {}),
        **options,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_it_answers_as_a_fetch_job_does(tmp_path: Path, version: int) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("daily-orders", configs={"segment.bytes": "200000"})
        for size in (10, 300, BIG, 10, BIG, 10):
            await produce(c, "daily-orders", batch(3, size // 3))
        chance = random.Random(version)
        answered = by_file = 0
        for _ in range(300):
            request = request_of(
                topic_id,
                version,
                chance.randrange(-1, 20),
                leader_epoch=chance.choice([-1, -1, -1, 0, 5]),
                isolation_level=chance.randrange(2),
                partition_max_bytes=chance.choice([-1, 1, 200, 4000, 1 << 20]),
                max_bytes=chance.choice([1, 5000, 1 << 20]),
                min_bytes=chance.choice([0, 1, 1, 3000, 1 << 21]),
                max_wait_ms=chance.choice([0, 0, 0, 100]),
            )
            plain, whole = both(broker, request, version)
            if plain is not None:
                assert flat(plain) == flat(whole), request
                answered += 1
                by_file += isinstance(plain, list)
        assert answered > 100
        assert by_file > 10

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_takes_what_is_plain(tmp_path: Path, version: int) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("daily-orders")
        await produce(c, "daily-orders", batch(3))
        for isolation in (0, READ_COMMITTED):
            request = request_of(topic_id, version, 0, max_wait_ms=500, isolation_level=isolation)
            plain, whole = both(broker, request, version)
            assert plain is not None
            assert flat(plain) == flat(whole)
        meter = broker.services.meters.topics["daily-orders"]
        assert meter.bytes_out == 4 * len(batch(3))

    serve(tmp_path, scenario)


OTHERWISE: list[tuple[str, int, Change]] = [
    ("a session begins", 7, lambda r: replace(r, session_epoch=0)),
    ("a session that is not known", 7, lambda r: replace(r, session_id=9, session_epoch=3)),
    ("a session is closed", 7, lambda r: replace(r, session_id=9, session_epoch=-1)),
    ("a rack", 11, lambda r: replace(r, rack_id="b")),
    ("no partition", 4, lambda r: replace(r, topics=())),
    ("two topics", 4, lambda r: replace(r, topics=r.topics * 2)),
    ("two partitions", 4, lambda r: _with_rows(r, lambda rows: rows * 2)),
    ("beyond the end", 4, lambda r: _with_rows(r, lambda _: (FetchPartition(fetch_offset=9),))),
    ("before the start", 4, lambda r: _with_rows(r, lambda _: (FetchPartition(fetch_offset=-2),))),
    ("another partition", 4, lambda r: _with_rows(r, lambda _: (FetchPartition(partition=4),))),
    ("it waits", 4, lambda r: replace(r, min_bytes=1 << 20, max_wait_ms=100)),
    (
        "a consumer that may have diverged",
        12,
        lambda r: _with_rows(r, lambda rows: (replace(rows[0], last_fetched_epoch=0),)),
    ),
    (
        "a former leader epoch",
        9,
        lambda r: _with_rows(r, lambda rows: (replace(rows[0], current_leader_epoch=4),)),
    ),
]


def _with_rows(request: FetchRequest, change: Callable[[Any], Any]) -> FetchRequest:
    topic = request.topics[0]
    return replace(request, topics=(replace(topic, partitions=change(topic.partitions)),))


@pytest.mark.parametrize(("name", "since", "change"), OTHERWISE, ids=[row[0] for row in OTHERWISE])
def test_it_leaves_the_rest(tmp_path: Path, name: str, since: int, change: Change) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("daily-orders")
        await produce(c, "daily-orders", batch(3))
        for version in range(since, 19):
            plain, _ = both(broker, change(request_of(topic_id, version, 0)), version)
            assert plain is None, f"{name}, version {version}"

    serve(tmp_path, scenario)


def test_it_leaves_followers_and_what_is_forgotten(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("daily-orders", replicas=(1, 2))
        await produce(c, "daily-orders", batch(3))
        for version in VERSIONS:
            request = request_of(topic_id, version, 0)
            state = ReplicaState(replica_id=2, replica_epoch=7)
            follower = (
                replace(request, replica_state=state)
                if version >= 15
                else replace(request, replica_id=2)
            )
            assert both(broker, follower, version)[0] is None
            if version >= 7:
                by_id = version >= 13
                row = ForgottenTopic(topic="" if by_id else "x", topic_id=topic_id, partitions=(0,))
                forgetting = replace(request, forgotten_topics_data=(row,))
                assert both(broker, forgetting, version)[0] is None

    serve(tmp_path, scenario)


def test_old_clients_get_zstd_as_kafka_4_gives_it(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("daily-orders")
        rows = [(1_795_000_000_000, None, b"x" * 50, ())]
        await produce(c, "daily-orders", bytes(build_batch(rows, compression=Compression.ZSTD)))
        for version in VERSIONS:
            plain, whole = both(broker, request_of(topic_id, version, 0), version)
            assert plain is not None
            assert flat(plain) == flat(whole)

    serve(tmp_path, scenario)


def test_a_client_without_the_right_to_read_is_left_to_the_fetch_job(tmp_path: Path) -> None:
    class NoReader(AllowAll):
        def authorize(
            self, requester: Requester, operation: Operation, kind: ResourceType, name: str
        ) -> bool:
            return operation is not Operation.READ

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("daily-orders")
        await produce(c, "daily-orders", batch(3))
        for version in VERSIONS:
            assert both(broker, request_of(topic_id, version, 0), version)[0] is None

    serve(tmp_path, scenario, authorizer=NoReader())


def test_frames_that_are_cut_are_refused_or_left(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("daily-orders")
        await produce(c, "daily-orders", batch(3))
        peer = peer_of(broker)
        for version in VERSIONS:
            body = encode(request_of(topic_id, version, 0), version)
            for size in range(len(body)):
                for view in (memoryview(body[:size]), memoryview(body)):
                    try:
                        assert fast(peer, view, 0, size, version) is None
                    except MALFORMED:
                        with pytest.raises(MALFORMED):
                            parse_fetch(view[:size], 0, size, version)

    serve(tmp_path, scenario)


def test_a_zstd_topic_needs_a_version_whose_readers_know_it(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("daily-orders", configs={"compression.type": "zstd"})
        await produce(c, "daily-orders", batch(3))
        for version in VERSIONS:
            plain, _ = both(broker, request_of(topic_id, version, 0), version)
            assert (plain is None) == (version < 10)
        old = await fetch(c, "daily-orders", 0, version=9)
        assert old.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert not old.records
        new = await fetch(c, "daily-orders", 0, version=10)
        assert new.error_code == ErrorCode.NONE
        assert new.records

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reader_that_knows_no_storage_error_looks_for_another_leader(
    tmp_path: Path, version: int
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t")
        broker.replicas.partitions["t", 0].fail_storage("a test's")
        key = {"topic_id": topic_id} if version >= 13 else {}
        read = await fetch(c, "" if key else "t", 0, version=version, **key)
        old, new = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR
        assert read.error_code == (old if version < 6 else new)

    serve(tmp_path, scenario)
