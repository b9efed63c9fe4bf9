"""A tiering service as a process of its own for `bench_spark.py tier`: it tiers topics on request.

    python bench/tier_service.py HOST:PORT

Each line on stdin names a topic, which must not be tiered yet; the answer is a line of JSON with
the seconds from then on until the last record committed is in the table, and the rows. It is warmed
up as a service is that runs for more than a moment; group membership, which takes seconds once, is
left out, and so is the service's low priority: on a busy machine it would measure the others.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable

from headwater import Admin
from headwater.columnar.decode import warm_up
from headwater.system import SystemClock, SystemEntropy
from headwater_tier.service.file_writers import FileWriters
from headwater_tier.service.options import ServiceOptions
from headwater_tier.service.service import TieringService


class One:
    """A share of one topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def mine(self, topics: Iterable[str]) -> set[str]:
        return {self.topic} & set(topics)


def tier_one(options: ServiceOptions, writers: FileWriters, topic: str) -> dict[str, object]:
    """Enable tiering of a topic and tier all of it."""
    start = time.monotonic()
    with Admin(options.bootstrap_servers) as admin:
        admin.alter_configs("topic", topic, {"remote.storage.enable": "true"})
    brokers = options.brokers()
    service = TieringService(options.finder(brokers), brokers, writers, SystemClock(), One(topic))
    service.schedule.is_draining = True
    while True:
        service.step(0.05)
        state = service.topics.get(topic)
        if state is None or state.planned is None or state.in_flight:
            continue
        schedule = service.schedule.topics[topic]
        if schedule.looked_at > start and schedule.pending_since is None:
            break
    seconds = time.monotonic() - start
    brokers.close()
    service.tables.close()
    rows = 0 if state.facts is None else state.facts.rows
    return {"seconds": seconds, "rows": rows, "commits": state.commits, "error": state.error}


def main() -> None:
    """Answer until end of file."""
    options = ServiceOptions(sys.argv[1])
    clock = SystemClock()
    writers = FileWriters(options.client, clock, SystemEntropy())
    warm_up()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(tier_one(options, writers, line.strip())), flush=True)


if __name__ == "__main__":
    main()
