"""What 100,000 parked fetches cost a broker's other requests: raw produce, with and without."""

from __future__ import annotations

import socket
import statistics
import time
from pathlib import Path

import raw_frames
from peers import HeadwaterPeer
from scale_cluster import POLL_S, Reading, cluster, metric

from headwater.client.raw_fetch import fetch_request
from headwater.wire.framing import encode_request
from integration.cluster import LocalCluster

PARKED = 100_000
CONNECTIONS = 250
PER_CONNECTION = PARKED // CONNECTIONS
"""Below `queued.max.requests`, or the broker would stop reading."""
WAIT_MS = 600_000
PARK_TIMEOUT_S = 120.0
ROUNDS = 4
WARM_UP_S = 5.0
ROUND_S = 4.0
BAR_PERCENT = 5.0


def measure() -> list[Reading]:
    """Rounds without, with, and without again; medians."""
    with cluster("parked", 1) as single:
        topic = single.create_topic("parked", 1)
        peer = HeadwaterPeer(single.directory, bootstrap=single.bootstrap, pids=[single.pid(0)])
        frames = single.directory / "frames"
        _rate(peer, WARM_UP_S, frames)
        without = [_rate(peer, ROUND_S, frames) for _ in range(ROUNDS)]
        crowd = park(single, topic)
        beside = [_rate(peer, ROUND_S, frames) for _ in range(ROUNDS)]
        left = parked_now(single)
        if left != PARKED:
            raise RuntimeError(f"{left} of {PARKED} fetches are still parked")
        for connection in crowd:
            connection.close()
        single.wait_until(lambda: parked_now(single) == 0, "nobody is parked", PARK_TIMEOUT_S)
        without += [_rate(peer, ROUND_S, frames) for _ in range(ROUNDS)]
    alone, crowded = statistics.median(without), statistics.median(beside)
    cost = (1 - crowded / alone) * 100
    rates = f"raw produce: {alone:,.0f}/s without, {crowded:,.0f}/s with"
    return [Reading(f"cost of {PARKED:,} parked fetches", cost, "%", BAR_PERCENT, rates)]


def _rate(peer: HeadwaterPeer, seconds: float, frames: Path) -> float:
    return raw_frames.run_raw(peer, raw_frames.WORK[0], seconds, frames).rate


def park(single: LocalCluster, topic: str) -> list[socket.socket]:
    """Fetches at the end of an empty partition; the connections that hold them."""
    request = fetch_request(topic, 0, 0, 1 << 20, 0, WAIT_MS)
    body = encode_request(request, raw_frames.FETCH_VERSION, 1, "bench")
    frame = len(body).to_bytes(4, "big") + body
    crowd = []
    for _ in range(CONNECTIONS):
        connection = socket.create_connection(("127.0.0.1", single.spec.slot(0).port))
        connection.sendall(frame * PER_CONNECTION)
        crowd.append(connection)
    end = time.monotonic() + PARK_TIMEOUT_S
    while (count := parked_now(single)) < PARKED:
        if time.monotonic() > end:
            raise RuntimeError(f"{count} of {PARKED} fetches are parked")
        time.sleep(POLL_S)
    return crowd


def parked_now(single: LocalCluster) -> int:
    """How many fetches the broker holds."""
    return metric(single, 0, "headwater_parked_fetch")
