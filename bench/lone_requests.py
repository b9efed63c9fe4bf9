"""CPU time of one lone request inside a broker, without and with ACLs: `make bench-rights`.

A broker in this process gets Produce (one record, acks=1) and Fetch (one small batch) over
a transport without a socket. Rounds alternate, each in a process of its own, and ratios are of
pairs, so that a busy machine says the same. Exit 1 when ACLs cost more than the bar.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from fuzz.frames import Wire
from headwater.ports.authorizer import AllowAll, Authorizer, Operation, ResourceType
from headwater.records.builder import build_batch
from headwater.security.acl import AclBinding, PatternType, PermissionType
from headwater.system import SystemClock
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.wire.apis.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.wire.framing import encode_request
from headwater.wire.schema import Message
from headwater_broker.network.connection import Connection
from headwater_broker.security.audit_log import AuditLog
from headwater_broker.security.standard_authorizer import StandardAuthorizer
from solo_broker import SoloBroker

PRODUCE_VERSION, FETCH_VERSION = 7, 4
NOW_MS = 1_700_000_000_000
VALUE_BYTES = 100
REQUESTS = 40_000
PER_TURN = 20
PARTS = 10
ACLS = 10_000
RATIO_MAX = 1.03
IN_MEMORY = "/dev/shm"
KINDS = ("open", "acls")


def authorizer(kind: str) -> Authorizer:
    """None, or one with the ACLs of as many topics; the topic `t` is one of them."""
    if kind == "open":
        return AllowAll()
    found = StandardAuthorizer(frozenset({"User:admin"}), AuditLog(SystemClock()))
    found.load(
        AclBinding(
            ResourceType.TOPIC, name, PatternType.LITERAL, "User:ANONYMOUS", "*", Operation.ALL,
            PermissionType.ALLOW,
        )
        for name in ("t", *(f"t{number}" for number in range(ACLS)))
    )  # fmt: skip
    return found


async def measure(kind: str) -> list[float]:
    """Microseconds of CPU per produce, and per fetch."""
    where = IN_MEMORY if os.path.isdir(IN_MEMORY) else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        solo = SoloBroker(Path(folder))
        solo.authorizer = authorizer(kind)
        async with solo as broker:
            broker.create_topic("t")
            near, far = socket.socketpair()
            near.setblocking(False)
            connection = Connection(broker.listener)
            connection.connection_made(Wire(near))
            frames = [_produce(), _fetch()]
            await _time(connection, frames[0])  # codecs are compiled, buffers grow
            found = [await _time(connection, frame) for frame in frames]
            connection.connection_lost(None)
            near.close()
            far.close()
    return found


def _produce() -> bytes:
    records = build_batch([(NOW_MS, None, bytes(VALUE_BYTES), ())])
    row = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", partition_data=(row,))
    return _frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=(topic,)), PRODUCE_VERSION)


def _fetch() -> bytes:
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topic = FetchTopic(topic="t", partitions=(row,))
    return _frame(FetchRequest(max_wait_ms=500, min_bytes=1, topics=(topic,)), FETCH_VERSION)


def _frame(request: Message, version: int) -> bytes:
    body = encode_request(request, version, 1, "bench")
    return len(body).to_bytes(4, "big") + body


async def _time(connection: Connection, frame: bytes) -> float:
    size, costs = len(frame), []
    for _ in range(PARTS):
        gc.collect()
        began = time.process_time()
        for _ in range(REQUESTS // PARTS // PER_TURN):
            for _ in range(PER_TURN):
                connection.get_buffer(-1)[:size] = frame
                connection.buffer_updated(size)
            await asyncio.sleep(0)
        costs.append((time.process_time() - began) / (REQUESTS // PARTS) * 1e6)
    return statistics.median(costs)


def main(arguments: Iterable[str]) -> int:
    """Pairs of rounds; 1 when ACLs cost too much."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--one", choices=KINDS, help="one round of this kind, as JSON")
    options = parser.parse_args(list(arguments))
    if options.one:
        print(json.dumps(asyncio.run(measure(options.one))))
        return 0
    rounds = [{kind: _apart(kind) for kind in KINDS} for _ in range(options.rounds)]
    worst = 0.0
    for at, what in enumerate(("produce", "fetch")):
        costs = [statistics.median(one[kind][at] for one in rounds) for kind in KINDS]
        ratio = statistics.median(one["acls"][at] / one["open"][at] for one in rounds)
        worst = max(worst, ratio)
        print(f"{what}: {costs[0]:.2f} us without, {costs[1]:.2f} us with ACLs, ratio {ratio:.3f}")
    return 1 if worst > RATIO_MAX else 0


def _apart(kind: str) -> list[float]:
    command = [sys.executable, __file__, "--one", kind]
    found: list[float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
