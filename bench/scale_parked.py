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
PAIRS = 40
WARM_UP_S = 5.0
ROUND_S = 1.0
BEST = 8
"""So many rounds of each broker count: what else the machine does can only slow a round down, and
does so by more than what is measured here."""
BAR_PERCENT = 5.0


def measure() -> list[Reading]:
    """Two brokers by turns, one of which holds the fetches: the best rounds of each."""
    with cluster("parked", 1) as crowded, cluster("empty", 1) as empty:
        topic = crowded.create_topic("parked", 1)
        crowd = park(crowded, topic)
        peers = [_peer(crowded), _peer(empty)]
        rates: list[list[float]] = [[], []]
        frames = crowded.directory / "frames"
        for peer in peers:
            _rate(peer, WARM_UP_S, frames)
        for pair in range(PAIRS):
            for turn in (0, 1) if pair % 2 else (1, 0):
                rates[turn].append(_rate(peers[turn], ROUND_S, frames))
        left = parked_now(crowded)
        if left != PARKED:
            raise RuntimeError(f"{left} of {PARKED} fetches are still parked")
        for connection in crowd:
            connection.close()
        crowded.wait_until(lambda: parked_now(crowded) == 0, "nobody is parked", PARK_TIMEOUT_S)
    with_them, without = (statistics.mean(sorted(found)[-BEST:]) for found in rates)
    cost = (1 - with_them / without) * 100
    detail = f"raw produce: {without:,.0f}/s without, {with_them:,.0f}/s with"
    return [Reading(f"cost of {PARKED:,} parked fetches", cost, "%", BAR_PERCENT, detail)]


def _peer(single: LocalCluster) -> HeadwaterPeer:
    return HeadwaterPeer(single.directory, bootstrap=single.bootstrap, pids=[single.pid(0)])


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
