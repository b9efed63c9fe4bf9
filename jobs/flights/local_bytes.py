"""Size of topics' local segments on the brokers' disks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def of_topics(cluster_dir: Path, topics: Iterable[str]) -> int:
    """The size of all `.log` files of these topics in the cluster's folder."""
    total = 0
    for topic in topics:
        for log in cluster_dir.glob(f"broker-*/**/{topic}-[0-9]*/*.log"):
            try:
                total += log.stat().st_size
            except FileNotFoundError:
                continue  # local retention has just deleted it
    return total
