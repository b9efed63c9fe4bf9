"""A cluster of fakes for the operations: a manager, an admin and a clock that only polls move."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from headwater.client.values import (
    Broker,
    ClusterDescription,
    PartitionDescription,
    PartitionReassignment,
    TopicDescription,
    TopicPartition,
)
from headwater.errors import KafkaError
from headwater.local import change_requests as requests
from headwater.operations.broker_operations import BrokerOperations
from headwater.operations.pacing import Pacing
from headwater.operations.replica_moves import Replicas

NO_ID = UUID(int=0)


class InterruptedCommandError(Exception):
    """The command was killed here."""


class FakeCluster:
    """Brokers whose replicas move, and whose restarted brokers catch up, within a few polls."""

    def __init__(self, brokers: int, replicas: Replicas) -> None:
        self.members = dict.fromkeys(range(brokers), "python")
        self.down: set[int] = set()
        self.replicas = dict(replicas)
        self.moving: dict[TopicPartition, tuple[int, ...]] = {}
        self.lagging: dict[int, int] = {}
        """Broker -> polls until it is in sync."""
        self.stale_polls = 0
        self.stale: Replicas = {}
        """The metadata shown for so many polls after a move has ended."""
        self.calls: list[str] = []
        self.now = 0.0
        self.catch_up_polls = 2
        self.is_stuck = False
        self.controller = 0
        self.interrupt_at: Callable[[str], bool] = lambda _call: False
        self.on_stop: Callable[[int], None] = lambda _broker: None
        self.moves_seen_max = 0

    def operations(self) -> BrokerOperations:
        return BrokerOperations(self, lambda _servers: self, pacing=self.pacing())

    def pacing(self) -> Pacing:
        """Waits by this fake's clock."""
        return Pacing(settle_s=2.0, in_sync_s=30.0, stall_s=30.0, moves_at_once=4,
                      clock=self, sleep=self.sleep)  # fmt: skip

    # The clock.

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.lagging = {b: n - 1 for b, n in self.lagging.items() if n > 1}
        self.stale_polls -= 1
        if self.stale_polls <= 0:
            self.stale = {}
        if self.moving and not self.is_stuck:
            tp = min(self.moving)
            self.stale_polls, self.stale = 3, {tp: self.replicas[tp]}
            self.replicas[tp] = self.moving.pop(tp)

    # The manager.

    def ask(self, command: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        broker_id = arguments.get("broker_id")
        call = command if broker_id is None else f"{command} {broker_id}"
        if command != requests.STATUS:
            self.calls.append(call)
        if self.interrupt_at(call):
            raise InterruptedCommandError(call)
        yield {"event": "progress", "text": "at work", "done": 1, "total": 2}
        yield {"event": "done", **self._done(command, broker_id, arguments)}

    def _done(self, command: str, broker_id: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if command == requests.STATUS:
            rows = [
                {"broker_id": b, "address": f"h:{b}", "ready": b not in self.down, "restarts": 0,
                 "pid": 7, "host": "h", "executor_id": None, "python": python}
                for b, python in self.members.items()
            ]  # fmt: skip
            return {"bootstrap_servers": "h:1", "brokers": rows}
        if command == requests.ADD_BROKERS:
            free = [i for i in range(100) if i not in self.members][: arguments["count"]]
            self.members |= dict.fromkeys(free, "python")
            return {"brokers": {str(i): f"h:{i}" for i in free}}
        if command == requests.LOG_TAIL:
            return {"text": f"the log of {broker_id}\n"[: arguments["size"]]}
        if command == requests.REMOVE_BROKER:
            assert broker_id in self.down, "it was not stopped first"
            del self.members[broker_id]
            return {"folders": [f"broker-{broker_id}"]}
        if command == requests.STOP_BROKER:
            self.on_stop(broker_id)
            self.down.add(broker_id)
        elif command == requests.START_BROKER:
            self.down.discard(broker_id)
        elif command == requests.RESTART_BROKER:
            assert not self.lagging, f"broker {broker_id} restarted while {self.lagging} lag"
            self.lagging[broker_id] = self.catch_up_polls
            self.members[broker_id] = arguments["python"] or self.members[broker_id]
        return {"brokers": {str(broker_id): f"h:{broker_id}"}}

    # The admin.

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *_error: object) -> None:
        return None

    def describe_cluster(self) -> ClusterDescription:
        live = [b for b in self.members if b not in self.down]
        return ClusterDescription("c", self.controller, tuple(Broker(b, "h", b) for b in live))

    def describe_topics(self) -> dict[str, TopicDescription]:
        topics: dict[str, list[PartitionDescription]] = {}
        for (name, index), ids in sorted((self.replicas | self.stale).items()):
            shown = tuple(dict.fromkeys((*self.moving.get(TopicPartition(name, index), ()), *ids)))
            out = self.down | self.lagging.keys()
            isr = tuple(i for i in ids if i not in out)
            row = PartitionDescription(index, isr[0] if isr else -1, 1, shown, isr, ())
            topics.setdefault(name, []).append(row)
        return {n: TopicDescription(n, NO_ID, False, tuple(rows)) for n, rows in topics.items()}

    def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        found = {}
        for tp, target in self.moving.items():
            now = self.replicas[tp]
            adding = tuple(i for i in target if i not in now)
            removing = tuple(i for i in now if i not in target)
            every = tuple(dict.fromkeys((*target, *now)))
            found[tp] = PartitionReassignment(every, adding, removing)
        return found

    def alter_partition_reassignments(
        self, targets: Mapping[Any, list[int] | None]
    ) -> dict[TopicPartition, KafkaError | None]:
        for tp, ids in targets.items():
            assert ids is not None and len(set(ids)) == len(ids)
            if self.interrupt_at(f"move {tp.topic}-{tp.partition}"):
                raise InterruptedCommandError(tp)
            self.calls.append(f"move {tp.topic}-{tp.partition}")
            self.moving[tp] = tuple(ids)
        self.moves_seen_max = max(self.moves_seen_max, len(self.moving))
        return dict.fromkeys(targets)
