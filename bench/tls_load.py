"""Load over TLS with few own costs: prepared frames, or handshakes, from one process.

    tls_load.py produce|fetch|handshakes SECONDS ADDRESS CA CERTIFICATE [TOPIC PARTITION]

It prints {"count": requests or handshakes, "bytes": of payload, "seconds": ..., "cpu": seconds} as
JSON. OpenSSL in this process does what the client of a real deployment does elsewhere: the same for
both peers.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from headwater.records.builder import build_batch
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.wire.apis.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.wire.framing import encode_request
from headwater.wire.schema import Message

IN_FLIGHT = 4
VALUE_BYTES = 1_000
RECORDS_PER_BATCH = 250
FETCH_BYTES = 1 << 20
PRODUCE_VERSION, FETCH_VERSION = 9, 4
HANDSHAKE_THREADS = 2

_SIZE = struct.Struct(">i")


def context(ca: str, certificate: str) -> ssl.SSLContext:
    """A client with a certificate."""
    made = ssl.create_default_context(cafile=ca)
    made.load_cert_chain(certificate)
    return made


def connect(address: str, tls: ssl.SSLContext) -> ssl.SSLSocket:
    """A new connection, its handshake done."""
    host, _, port = address.rpartition(":")
    raw = socket.create_connection((host, int(port)), timeout=30)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tls.wrap_socket(raw, server_hostname=host)


def produce_frame(topic: str, partition: int) -> tuple[bytes, int]:
    """(frame, bytes of values) of one batch."""
    now_ms = time.time_ns() // 1_000_000
    rows = [(now_ms, None, os.urandom(VALUE_BYTES), ()) for _ in range(RECORDS_PER_BATCH)]
    data = PartitionProduceData(index=partition, records=build_batch(rows))
    topics = (TopicProduceData(name=topic, partition_data=(data,)),)
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)
    return _framed(request, PRODUCE_VERSION), VALUE_BYTES * RECORDS_PER_BATCH


def fetch_frame(topic: str, partition: int) -> tuple[bytes, int]:
    """(frame, bytes of values in its reply)."""
    row = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=(FetchTopic(topic=topic, partitions=(row,)),),
    )
    return _framed(request, FETCH_VERSION), 0


def _framed(request: Message, version: int) -> bytes:
    body = encode_request(request, version, 1, "bench")
    return _SIZE.pack(len(body)) + body


def exchange(connection: ssl.SSLSocket, frame: bytes, end: float) -> Iterator[int]:
    """The size of each reply, with `IN_FLIGHT` requests on their way, until `end`."""
    buffer = memoryview(bytearray(2 * FETCH_BYTES))
    connection.sendall(frame * IN_FLIGHT)
    while time.monotonic() < end:
        read_whole(connection, buffer[:4])
        size = _SIZE.unpack(buffer[:4])[0]
        read_whole(connection, buffer[:size])
        yield size
        connection.sendall(frame)


def read_whole(connection: ssl.SSLSocket, view: memoryview) -> None:
    """Fill `view`."""
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError("the broker has closed the connection")
        view = view[count:]


def handshakes(address: str, tls: ssl.SSLContext, end: float) -> int:
    """Complete handshakes one after the other; how many."""
    count = 0
    while time.monotonic() < end:
        connect(address, tls).close()
        count += 1
    return count


def main(work: str, seconds: str, address: str, ca: str, certificate: str, *where: str) -> None:
    """Run, print the figures."""
    tls, began = context(ca, certificate), time.monotonic()
    end, spent = began + float(seconds), time.process_time()
    count = payload = 0
    if work == "handshakes":
        with ThreadPoolExecutor(HANDSHAKE_THREADS) as pool:
            runs = [pool.submit(handshakes, address, tls, end) for _ in range(HANDSHAKE_THREADS)]
            count = sum(run.result() for run in runs)
    else:
        topic, partition = where
        make = produce_frame if work == "produce" else fetch_frame
        frame, sent = make(topic, int(partition))
        with connect(address, tls) as connection:
            for size in exchange(connection, frame, end):
                count += 1
                payload += sent or size
    took = time.monotonic() - began
    row = {"count": count, "bytes": payload, "seconds": took, "cpu": time.process_time() - spent}
    print(json.dumps(row))


if __name__ == "__main__":
    main(*sys.argv[1:])
