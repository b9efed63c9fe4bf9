"""An SDK producer and an SDK consumer in a group that run while brokers are changed.

with SdkLoad(servers, "topic", partitions=6) as load:
    ...brokers come and go...
load.check(gap_max_s=1.0)
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType

from headwater import Consumer, Producer
from headwater.errors import HeadwaterError
from integration.workload import read_partition

FLUSH_S = 60.0
CATCH_UP_S = 60.0
ROUND_S = 0.01
"""One record to each partition in this interval."""


@dataclass(slots=True)
class SdkLoad:
    """What was acknowledged and read; every error that a client raised."""

    servers: str
    topic: str
    partitions: int
    acks: dict[int, list[tuple[float, str, int]]] = field(default_factory=lambda: defaultdict(list))
    """Partition -> (monotonic time, value, offset)."""
    read: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    _done: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> SdkLoad:
        for work in (self._produce, self._consume):
            self._threads.append(threading.Thread(target=self._guarded, args=(work,)))
            self._threads[-1].start()
        self._wait(lambda: all(self.acks[p] for p in range(self.partitions)), "first records")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(FLUSH_S + CATCH_UP_S)

    def _guarded(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except HeadwaterError as error:
            self.errors.append(repr(error))

    def _produce(self) -> None:
        with Producer(self.servers, linger_ms=0) as producer:
            number = 0
            while not self._done.wait(ROUND_S):
                for partition in range(self.partitions):
                    self._send(producer, partition, f"{partition}:{number}")
                number += 1
            producer.flush(FLUSH_S)

    def _send(self, producer: Producer, partition: int, value: str) -> None:
        future = producer.send(self.topic, value.encode(), partition=partition)

        def outcome(done: object) -> None:
            try:
                at = future.result(0).offset
            except HeadwaterError as error:
                self.errors.append(f"{value}: {error!r}")
            else:
                self.acks[partition].append((time.monotonic(), value, at))

        future.add_done_callback(outcome)

    def _consume(self) -> None:
        with Consumer(
            self.topic,
            bootstrap_servers=self.servers,
            group_id=f"{self.topic}-readers",
            auto_offset_reset="earliest",
        ) as consumer:
            deadline = float("inf")
            while time.monotonic() < deadline and not self._has_read_all():
                for records in consumer.poll(200).values():
                    self.read.update(bytes(r.value or b"").decode() for r in records)
                if self._done.is_set() and deadline == float("inf"):
                    deadline = time.monotonic() + CATCH_UP_S

    def _has_read_all(self) -> bool:
        if not self._done.is_set() or self._threads[0].is_alive():
            return False
        return all(v in self.read for rows in self.acks.values() for _, v, _ in rows)

    def longest_gap(self) -> tuple[float, float]:
        """The longest time in which a partition acknowledged nothing, and when that began, both in
        seconds; the second since this load began."""
        return max(
            (later[0] - sooner[0], sooner[0] - self.began)
            for rows in self.acks.values()
            for sooner, later in pairwise(sorted(rows))
        )

    def since_began_s(self) -> float:
        """Seconds since this load began."""
        return time.monotonic() - self.began

    def check(self, gap_max_s: float) -> None:
        """No error, nothing lost, nothing twice, and no gap that is longer."""
        assert not self.errors, self.errors[:5]
        acked = {(p, at): v for p, rows in self.acks.items() for _, v, at in rows}
        stored = {
            (p, at): v
            for p in range(self.partitions)
            for at, v in read_partition(self.servers, self.topic, p)
        }
        lost = [v for where, v in acked.items() if stored.get(where) != v]
        assert not lost, lost[:5]
        assert max(Counter(stored.values()).values()) == 1
        unread = [v for v in acked.values() if v not in self.read]
        assert not unread, unread[:5]
        gap, at_s = self.longest_gap()
        print(f"{len(acked)} records acknowledged, longest gap {gap:.2f} s after {at_s:.2f} s")
        assert gap <= gap_max_s

    @staticmethod
    def _wait(condition: object, what: str) -> None:
        deadline = time.monotonic() + CATCH_UP_S
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < deadline, what
            time.sleep(0.02)
