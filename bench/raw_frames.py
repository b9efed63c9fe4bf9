"""Prepared Produce and Fetch frames from a C generator that costs little: the server's own speed.

4 connections x 5 in flight to 4 partitions of one broker. A session fetch names one partition, as a
Java consumer does that has read from it; the session may hold more, which have nothing new.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from generators import generator
from measures import Bar, Figure, Peer, create_topic, delete_topics, topic_id, touch
from peers import cpu_seconds

from headwater.records.builder import build_batch
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.wire.apis.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.wire.headers import RequestHeader
from headwater.wire.schema import Message, encode

PARTITIONS = 4
CONNECTIONS = 4
IN_FLIGHT = 5
PRODUCE_VERSION = 7
FETCH_VERSION = 4
SESSION_VERSION = 17
"""Of current Java clients: topic ids, no replica id."""
SESSION_AT = 4 + 10 + len("bench") + 1 + 13
"""Length; header up to the client id, its tags; max wait, min and max bytes, isolation."""
SESSION_REPLY_AT = 4 + 1 + 4 + 2
"""Correlation id, tags, throttle time, error."""
SESSION_ERROR_AT = SESSION_REPLY_AT + 4 + 1 + 16 + 1 + 4
"""Session id, topics, topic id, partitions, index."""
VALUE_BYTES = 100
RECORDS_16_KB = 150
FILL_S = 1.0
FETCH_WAIT_MS = 500


@dataclass(frozen=True)
class Raw:
    """`records` of 100 B per produced batch; a fetch asks for `fetch_bytes` (0: it produces).

    `session`: how many partitions its fetch session holds (0: none).
    """

    name: str
    records: int
    fetch_bytes: int
    bar: Bar
    session: int = 0


WORK = (
    Raw("raw produce, 1 record", 1, 0, Bar(2.5, 0.5)),
    Raw("raw produce, 16 KB", RECORDS_16_KB, 0, Bar(1.8, 0.5)),
    Raw("raw produce, 1 MB", 9000, 0, Bar(1.1, 0.5)),
    Raw("raw fetch, one small batch", 1, 1, Bar(1.5)),
    Raw("raw fetch, 1 MB", RECORDS_16_KB, 1 << 20, Bar(0.9)),
    Raw("raw session fetch, one small batch", 1, 1, Bar(1.5), session=1),
    Raw("raw session fetch, one of 100 partitions", 1, 1, Bar(1.5), session=100),
)


def run_raw(peer: Peer, work: Raw, seconds: float, frames: Path, nice: int = 0) -> Figure:
    """Blast one fresh topic for `seconds`; fetches read what was produced just before.

    `nice`: how much the generator steps back behind the server.
    """
    topic = f"raw{time.monotonic_ns()}"
    partitions = PARTITIONS - 1 + max(work.session, 1)
    create_topic(peer, topic, partitions)
    touch(peer, topic, partitions)
    produce = [_produce_request(topic, p, work.records) for p in range(PARTITIONS)]
    error_at = 4 + 4 + 2 + len(topic) + 4 + 4  # correlation id, topics, name, partitions, index
    if work.session:
        _blast(peer, topic, produce, PRODUCE_VERSION, error_at, FILL_S, frames, nice)
        requests = _session_requests(topic_id(peer, topic), work)
        figure = _blast(
            peer, topic, requests, SESSION_VERSION, SESSION_ERROR_AT, seconds, frames, nice
        )
    elif work.fetch_bytes:
        _blast(peer, topic, produce, PRODUCE_VERSION, error_at, FILL_S, frames, nice)
        requests = [_fetch_request(topic, p, work.fetch_bytes) for p in range(PARTITIONS)]
        error_at += 4  # the throttle time comes first
        figure = _blast(peer, topic, requests, FETCH_VERSION, error_at, seconds, frames, nice)
    else:
        figure = _blast(peer, topic, produce, PRODUCE_VERSION, error_at, seconds, frames, nice)
    delete_topics(peer, topic)
    return figure


def _produce_request(topic: str, partition: int, records: int) -> Message:
    now_ms = time.time_ns() // 1_000_000
    rows = [(now_ms, None, os.urandom(VALUE_BYTES), ()) for _ in range(records)]
    data = PartitionProduceData(index=partition, records=build_batch(rows))
    topics = (TopicProduceData(name=topic, partition_data=(data,)),)
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)


def _fetch_request(topic: str, partition: int, max_bytes: int) -> Message:
    row = FetchPartition(partition=partition, fetch_offset=1, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=(FetchTopic(topic=topic, partitions=(row,)),),
    )


def _session_requests(topic: UUID, work: Raw) -> list[Message]:
    """For each of the first partitions the fetch that opens its session, and the one that goes on.

    What else is in the session has one record, and is read to its end.
    """
    requests: list[Message] = []
    for partition in range(PARTITIONS):
        idle = range(PARTITIONS, PARTITIONS + work.session - 1)
        rows = [
            FetchPartition(partition=p, fetch_offset=1, partition_max_bytes=work.fetch_bytes)
            for p in (partition, *idle)
        ]
        for epoch, named in ((0, rows), (1, rows[:1])):
            request = FetchRequest(
                max_wait_ms=FETCH_WAIT_MS,
                min_bytes=1,
                max_bytes=50 << 20,
                session_epoch=epoch,
                topics=(FetchTopic(topic_id=topic, partitions=tuple(named)),),
            )
            requests.append(request)
    return requests


def _blast(
    peer: Peer,
    topic: str,
    requests: list[Message],
    version: int,
    error_at: int,
    seconds: float,
    folder: Path,
    nice: int,
) -> Figure:
    """Send these requests over and over, each (in sessions: each pair) on its own connection."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, request in enumerate(requests):
        header = RequestHeader(
            request_api_key=type(request).api_key,
            request_api_version=version,
            correlation_id=1,
            client_id="bench",
        )
        body = encode(header, 2 if version == SESSION_VERSION else 1) + encode(request, version)
        path = folder / f"{topic}-{number}"
        path.write_bytes(len(body).to_bytes(4, "big") + body)
        files.append(str(path))
    before = cpu_seconds(peer.pids)
    program = ["nice", "-n", str(nice), generator("blaster")]
    if version == SESSION_VERSION:
        program += ["-s", f"{SESSION_AT}:{SESSION_REPLY_AT}"]
    command = [*program, str(peer.ports[0]), str(CONNECTIONS), str(IN_FLIGHT), str(seconds)]
    done = subprocess.run(
        [*command, str(error_at), *files], capture_output=True, text=True, check=False
    )
    used = cpu_seconds(peer.pids) - before
    if done.returncode != 0:
        raise RuntimeError(f"{peer.name} {topic}: {done.stdout}{done.stderr}")
    result = json.loads(done.stdout)
    count = result["requests"]
    return Figure(count / result["seconds"], used / count * 1e6)
