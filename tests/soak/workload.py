"""All clients of the soak: started together, and stopped so that the history can be checked."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from integration.workload import read_values
from soak.consumers import (
    ConfluentMember,
    ConfluentReader,
    Member,
    Reader,
    SdkMember,
    SdkReader,
)
from soak.history import History, decode
from soak.producers import FLUSH_S, Acks, ConfluentWriter, SdkWriter, Writer

DRAIN_S = 45.0
POLL_S = 0.05
ACK_POLL_S = 0.01


class Load:
    """Per kind of client two producers, a reader, and two members of a group."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, history: History, rate: float, seed: int
    ) -> None:
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self.history = history
        self.acks = Acks(partitions)
        sends = (bootstrap,)
        shared = (topic, history, self.acks, rate)
        self.writers: list[Writer] = [
            ConfluentWriter(*sends, "librdkafka-0", *shared),
            ConfluentWriter(*sends, "librdkafka-1", *shared),
            SdkWriter(*sends, "sdk-0", *shared),
            SdkWriter(*sends, "sdk-1", *shared),
        ]
        reads = (bootstrap, topic, partitions, history)
        self.readers: list[Reader] = [
            ConfluentReader("reads-librdkafka", *reads),
            SdkReader("reads-sdk", *reads),
        ]
        self.members: list[Member] = [
            kind(f"group-{name}", seed + n, f"group-{name}-{n}", *reads)
            for kind, name in ((ConfluentMember, "librdkafka"), (SdkMember, "sdk"))
            for n in range(2)
        ]

    def start(self) -> None:
        """Start all clients."""
        for client in (*self.writers, *self.readers, *self.members):
            client.start()

    def silent(self, acks: int, partitions: Iterable[int], timeout_s: float) -> list[int]:
        """Wait for further acknowledgements in each of these partitions; returns those without."""
        start = self.acks.counts()
        deadline = time.monotonic() + timeout_s
        left = list(partitions)
        while left and time.monotonic() < deadline:
            time.sleep(ACK_POLL_S)
            now = self.acks.counts()
            left = [p for p in left if now[p] - start[p] < acks]
        return left

    def stop(self) -> None:
        """Stop the producers, read the whole log, and let every consumer read to its end."""
        self._join(self.writers)
        with ThreadPoolExecutor(self.partitions) as pool:
            ends = list(pool.map(self._read_all, range(self.partitions)))
        self._drain(ends)
        self._join([*self.readers, *self.members])

    def _join(self, clients: list[Writer] | list[Reader]) -> None:
        for client in clients:
            client.stopping.set()
        deadline = time.monotonic() + FLUSH_S + 10
        for client in clients:
            client.join(max(0.0, deadline - time.monotonic()))
            if not client.is_alive():
                continue
            if isinstance(client, Reader) and client.pulse.has_stopped():
                client.stood_still()  # in commit() or close(), which never return then
            else:
                self.history.add("stuck", why=f"{client.name} does not end")

    def _read_all(self, partition: int) -> int:
        """Record the partition from start to end; returns its last offset."""
        try:
            found = read_values(self.bootstrap, self.topic, partition)
        except Exception as error:  # noqa: BLE001 - told in the history, and so in the report
            self.history.add("stuck", why=f"final read of {partition}: {error!r}"[:300])
            return -1
        rows = [[offset, decode(value)] for offset, value in found]
        self.history.add("final", p=partition, rows=rows)
        return rows[-1][0] if rows else -1

    def _drain(self, ends: list[int]) -> None:
        """Wait until each reader, and each group as a whole, has read the last record."""
        sides: dict[str, list[Reader]] = {}
        for client in (*self.readers, *self.members):
            sides.setdefault(client.group or client.name, []).append(client)
        deadline = time.monotonic() + DRAIN_S
        behind = dict.fromkeys(sides, True)
        while any(behind.values()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
            for name, clients in sides.items():
                reached = [max(c.reached[p] for c in clients) for p in range(self.partitions)]
                behind[name] = any(r < end for r, end in zip(reached, ends, strict=True))
        for name, is_behind in behind.items():
            if is_behind:
                self.history.add("stuck", why=f"{name} has not read to the end in {DRAIN_S:.0f} s")
