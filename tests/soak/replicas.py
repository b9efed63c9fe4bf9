"""Records the bytes of all replicas at the end, when nothing is written any more."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from soak.history import COPIED_FROM, TRANSACTED_FROM
from soak.transactions import COPIED, PARTITIONS, TRANSACTED
from soak.world import WHOLE_S, World

EQUAL_S = 20.0
POLL_S = 0.5


def record(world: World) -> None:
    """Wait until every replica is in sync, then record the contents of each broker's disk."""
    if not world.wait_whole(WHOLE_S):
        world.history.add("stuck", why=f"replicas are not in sync {WHOLE_S:.0f} s after the end")
    deadline = time.monotonic() + EQUAL_S
    places = [(p, world.topic, p) for p in range(world.partitions)]
    for topic, first in ((TRANSACTED, TRANSACTED_FROM), (COPIED, COPIED_FROM)):
        places += [(first + p, topic, p) for p in range(PARTITIONS)]
    for place, topic, partition in places:
        while True:
            found = {b: digest(world, b, topic, partition) for b in world.brokers}
            if len(set(found.values())) == 1 or time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        for broker_id, (size, sha) in found.items():
            world.history.add("replica", p=place, b=broker_id, bytes=size, sha=sha)


def digest(world: World, broker_id: int, topic: str, partition: int) -> tuple[int, str]:
    """(bytes, SHA-256) of a replica's batches, however they are cut into segments."""
    folder = Path(world.cluster.spec.slot(broker_id).folder) / f"{topic}-{partition}"
    hasher, size = hashlib.sha256(), 0
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        hasher.update(data)
        size += len(data)
    return size, hasher.hexdigest()[:16]
