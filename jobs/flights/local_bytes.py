"""How many bytes of a topic's records are on the brokers' own disks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def of_topics(cluster_dir: Path, topics: Iterable[str]) -> int:
    """Sizes of all `.log` files of these topics' partitions under the cluster's folder."""
    total = 0
    for topic in topics:
        for log in cluster_dir.glob(f"broker-*/**/{topic}-[0-9]*/*.log"):
            try:
                total += log.stat().st_size
            except FileNotFoundError:
                continue  # retention was faster: that is what the demo waits for
    return total
