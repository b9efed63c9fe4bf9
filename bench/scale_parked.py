"""The cost of 100,000 parked fetches to other requests: raw produce, with and without them.

Two brokers work at once, each as fast as it can, one of which holds the fetches: whatever else the
machine does in a round slows down both. The one that starts first is slower by a few percent even
when neither holds any, so each order has its turn.
"""

from __future__ import annotations

import socket
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import raw_frames
from measures import Figure
from peers import HeadwaterPeer
from scale_cluster import POLL_S, Reading, cluster, metric

from headwater.client.blocking.fetch import fetch_request
from headwater.wire.framing import encode_request
from integration.cluster import LocalCluster

PARKED = 100_000
CONNECTIONS = 250
PER_CONNECTION = PARKED // CONNECTIONS
"""Below `queued.max.requests`, or the broker would stop reading."""
WAIT_MS = 600_000
PARK_TIMEOUT_S = 120.0
PAIRS = 30
"""Of each order."""
WARM_UP_S = 5.0
ROUND_S = 2.0
BAR_PERCENT = 5.0


def measure() -> list[Reading]:
    """The rate with the fetches over the rate without: the median of each order's pairs."""
    pairs = [_pairs(crowded_at) for crowded_at in (0, 1)]
    ratio = statistics.geometric_mean(
        statistics.median(crowded.rate / empty.rate for crowded, empty in found) for found in pairs
    )
    costs = [f.cpu_per_million for f, _ in [*pairs[0], *pairs[1]]]
    costs_without = [f.cpu_per_million for _, f in [*pairs[0], *pairs[1]]]
    detail = (
        f"raw produce by two brokers at once: {statistics.median(costs_without):.1f} us of CPU per "
        f"request without, {statistics.median(costs):.1f} us with"
    )
    cost = (1 - ratio) * 100
    return [Reading(f"cost of {PARKED:,} parked fetches", cost, "%", BAR_PERCENT, detail)]


def _pairs(crowded_at: int) -> list[tuple[Figure, Figure]]:
    """With the fetches and without, by two new brokers; `crowded_at` holds them."""
    with cluster("first", 1) as first, cluster("second", 1) as second:
        both = (first, second)
        crowded = both[crowded_at]
        crowd = park(crowded, crowded.create_topic("parked", 1))
        _round(both, WARM_UP_S)
        found = [_round(both, ROUND_S) for _ in range(PAIRS)]
        left = parked_now(crowded)
        if left != PARKED:
            raise RuntimeError(f"{left} of {PARKED} fetches are still parked")
        for connection in crowd:
            connection.close()
        crowded.wait_until(lambda: parked_now(crowded) == 0, "nobody is parked", PARK_TIMEOUT_S)
    return [(pair[crowded_at], pair[1 - crowded_at]) for pair in found]


def _round(both: tuple[LocalCluster, LocalCluster], seconds: float) -> tuple[Figure, Figure]:
    """Both at work at once."""
    with ThreadPoolExecutor(2) as pool:
        work = [
            pool.submit(
                raw_frames.run_raw,
                _peer(one),
                raw_frames.WORK[0],
                seconds,
                one.directory / "frames",
            )
            for one in both
        ]
        return work[0].result(), work[1].result()


def _peer(single: LocalCluster) -> HeadwaterPeer:
    return HeadwaterPeer(single.directory, bootstrap=single.bootstrap, pids=[single.pid(0)])


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
