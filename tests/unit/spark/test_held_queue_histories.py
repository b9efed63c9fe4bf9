"""The queue source's driver over share partitions: dying and zombie drivers in any order, dying
leaders, failed and lost writes, and another member of the group.

What must hold: no record is accepted before its epoch has committed; none is in two epochs, or in
an epoch and accepted by the other member; in the end none is left over.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast
from uuid import UUID

import pytest

from headwater import ShareRecord, TopicPartition
from headwater.client.blocking.share_holds import Held, HoldOutcome, HoldRow
from headwater.errors import ErrorCode, KafkaError
from headwater.system import SystemClock
from headwater.wire.share_hold_operation import ShareHoldOperation
from headwater_broker.coordinator.share_state.state_batches import merge_into
from headwater_broker.replica.share.holds import Holds
from headwater_broker.replica.share.ports import StateBatch
from headwater_broker.replica.share.runs import Change
from headwater_broker.replica.share.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    Limits,
    SharePartition,
    Wanted,
)
from headwater_spark.source.held_queue import HeldQueue, HoldParts, HoldsLostError
from headwater_spark.source.share_offsets import ShareBatch, from_json, nothing_yet
from headwater_spark.source.share_options import share_options

OPTIONS = share_options(
    {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "shareGroup": "g"}, streaming=True
)
TOPIC_ID = UUID(int=7)
PARTITIONS, RECORDS, SEEDS = 2, 24, 150
LIMITS = Limits(record_locks=12, deliveries=10_000)
OTHER = "other"


class DiedError(Exception):
    """A driver ends here."""


class World:
    """The share partitions, what is durable of them, Spark's logs, and the sink."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.has_faults = True
        self.now = 0.0
        self.tickets = 0
        self.machines = [SharePartition(0) for _ in range(PARTITIONS)]
        self.durable: list[tuple[int, list[StateBatch], bytes]] = [
            (0, [], b"") for _ in range(PARTITIONS)
        ]
        self.offsets: dict[int, str] = {}
        self.commits: set[int] = set()
        self.epochs: dict[int, list[tuple[int, int]]] = {}
        self.by_other: set[tuple[int, int]] = set()

    def happens(self, one_in: int) -> bool:
        return self.has_faults and self.random.randrange(one_in) == 0

    # -- leaders

    def settle(self, partition: int, change: Change | None) -> None:
        """Make a change durable, or fail at it. Raises DiedError for who waits for a reply."""
        if change is None:
            return
        machine = self.machines[partition]
        is_written = not self.happens(12)
        if is_written:
            self.write(partition, change)
        if self.happens(12):
            self.lose_leader(partition)
            raise DiedError
        if is_written and not self.happens(12):
            machine.commit(change)
            return
        machine.roll_back(change)  # nobody knows whether it is written
        raise DiedError

    def write(self, partition: int, change: Change) -> None:
        machine = self.machines[partition]
        start, batches, holds = self.durable[partition]
        start = max(start, machine.start_offset)
        merge_into(batches, change.batches, start)
        if change.has_holds:
            holds = machine.holds.encoded({change})
        self.durable[partition] = (start, batches, holds)
        self.check_accepted(partition, change)

    def check_accepted(self, partition: int, change: Change) -> None:
        if not change.has_holds:
            return
        in_epochs = {record for rows in self.epochs.values() for record in rows}
        for batch in change.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                assert batch.delivery_state != 2 or (partition, offset) in in_epochs

    def lose_leader(self, partition: int) -> None:
        start, batches, holds = self.durable[partition]
        self.machines[partition] = SharePartition(start, list(batches), holds)

    # -- another member

    def other_member(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        machine = self.machines[partition]
        for first, last, _ in self.acquire(partition, OTHER, self.random.randint(1, 3)):
            if self.has_faults and self.happens(3):
                continue  # it is slow: the lock times out
            rows = [Acknowledgement(first, last, (AcknowledgeType.ACCEPT,))]
            change = machine.acknowledge(OTHER, rows, LIMITS, renewed=None)
            assert change is not None
            self.write(partition, change)
            machine.commit(change)
            found = {(partition, offset) for offset in range(first, last + 1)}
            assert not found & self.by_other, "accepted twice"
            self.by_other |= found

    def acquire(self, partition: int, member: str, most: int) -> list[Any]:
        machine = self.machines[partition]
        self.now += 1
        if not machine.can_acquire(LIMITS):
            return []
        at = machine.next_fetch_offset()
        batches = [(at, RECORDS - 1)] if at < RECORDS else []
        wanted = Wanted(most, is_exact=True)
        return list(machine.acquire(member, at, batches, wanted, LIMITS, self.now + 30))

    def expire(self) -> None:
        self.now += 31
        for machine in self.machines:
            machine.expire(self.now, LIMITS)


class Leaders:
    """Stands for `ShareHolds`."""

    def __init__(self, world: World) -> None:
        self.world = world

    def ask(
        self,
        operation: ShareHoldOperation,
        rows: Iterable[HoldRow],
        owner: str = "",
        ticket: int = -1,
        member: str = "",
    ) -> dict[HoldRow, HoldOutcome]:
        return {row: self._one(operation, row, owner, ticket, member) for row in rows}

    def _one(
        self, operation: ShareHoldOperation, row: HoldRow, owner: str, ticket: int, member: str
    ) -> HoldOutcome:
        holds = self.world.machines[row.partition].holds
        change = None
        try:
            if operation is ShareHoldOperation.CLAIM:
                holds.claim(owner, ticket)
            elif operation is ShareHoldOperation.HOLD:
                change = holds.hold(owner, ticket, row.batch, member, row.ranges)
            elif operation is ShareHoldOperation.ACCEPT:
                change = holds.accept(owner, ticket, row.batch, row.ranges)
            else:
                assert operation is ShareHoldOperation.RELEASE
                change = holds.release(owner, ticket, row.batch, row.ranges)
        except KafkaError as error:
            assert error.code is not ErrorCode.REQUEST_TIMED_OUT
            return HoldOutcome(error)
        self.world.settle(row.partition, change)
        found = tuple(Held(*held) for held in holds if held.owner == owner)
        return HoldOutcome(None, 0, found)


class Consumer:
    """Stands for `ShareConsumer`."""

    def __init__(self, world: World, member_id: str) -> None:
        self.world = world
        self.member_id = member_id

    def statistics(self) -> Any:
        return type("Statistics", (), {"assigned": [TopicPartition("t", 0)]})

    def poll(self, _timeout_ms: float) -> dict[TopicPartition, list[ShareRecord]]:
        found: dict[TopicPartition, list[ShareRecord]] = {}
        for partition in range(PARTITIONS):
            for first, last, count in self.world.acquire(partition, self.member_id, 4):
                for offset in range(first, last + 1):
                    row = ShareRecord("t", partition, offset, 0, 0, None, b"", [], 0)
                    row.delivery_count = count
                    found.setdefault(TopicPartition("t", partition), []).append(row)
        if self.world.happens(4):
            self.world.expire()  # before they are held
        return found

    def hand_over(self, _records: Iterable[ShareRecord]) -> None:
        pass

    def close(self) -> None:
        pass


def queue_of(world: World, name: str) -> HeldQueue:
    def ticket() -> int:
        world.tickets += 1
        return world.tickets

    parts = HoldParts(
        consumer=cast(Any, Consumer(world, name)),
        holds=cast(Any, Leaders(world)),
        ticket=ticket,
        topics=lambda: {"t": (TOPIC_ID, "id", PARTITIONS)},
        new_owner=lambda: f"owner-{name}",
        clock=SystemClock(),
        close=lambda: None,
    )
    return HeldQueue(OPTIONS, parts)


def driver(world: World, name: str) -> Iterator[None]:
    """One run of the query, as Spark's micro-batch execution goes; it yields where others may run.
    It returns when there is nothing to read. Raises DiedError, HoldsLostError."""
    queue = queue_of(world, name)

    def parsed(number: int) -> Any:
        text = world.offsets.get(number)
        return nothing_yet("g") if text is None else from_json(json.loads(text), "g")

    number = max(world.commits, default=-1) + 1
    while True:
        start = parsed(number - 1)
        if number in world.offsets:
            end = parsed(number)
        else:
            end = queue.next(start, None)
            yield
            if end is None:
                return
            if number in world.offsets or world.happens(8):
                raise DiedError  # another driver has logged this batch
            world.offsets[number] = json.dumps(end.to_json())
        yield
        queue.planned(start, end)
        yield
        if world.happens(8):
            raise DiedError
        if number not in world.epochs:  # else the sink drains it
            world.epochs[number] = [
                (partition, offset)
                for (_, partition), ranges in end.acquired.items()
                for first, last in ranges
                for offset in range(first, last + 1)
            ]
        yield
        if world.happens(8):
            raise DiedError
        world.commits.add(number)
        number += 1
        yield


def check(world: World) -> None:
    written = [record for rows in world.epochs.values() for record in rows]
    assert len(set(written)) == len(written), "a record is in two epochs"
    assert not set(written) & world.by_other, "a record is in an epoch, and accepted by another"


@pytest.mark.parametrize("part", range(3))
def test_each_record_stands_once(part: int) -> None:
    for seed in range(part * SEEDS // 3, (part + 1) * SEEDS // 3):
        story(World(seed))


def story(world: World) -> None:
    drivers: list[Iterator[None]] = []
    names = iter(range(10_000))
    steps: list[Callable[[], None]] = [world.other_member, world.expire]
    for _ in range(150):
        if world.happens(15):
            world.lose_leader(world.random.randrange(PARTITIONS))
        if world.happens(6):
            world.random.choice(steps)()
        if not drivers or (len(drivers) < 2 and world.happens(20)):
            drivers.append(driver(world, f"d{next(names)}"))
        one = world.random.choice(drivers)
        try:
            next(one)
        except (StopIteration, DiedError, HoldsLostError):
            drivers.remove(one)
        check(world)
    world.has_faults = False
    world.expire()
    for _ in driver(world, "last"):
        check(world)
    world.expire()
    for _ in driver(world, "last again"):
        check(world)
    for partition, machine in enumerate(world.machines):
        states = [repr(run) for run in machine.runs()]
        assert machine.start_offset == RECORDS, f"{partition}: {states}"
    written = {record for rows in world.epochs.values() for record in rows}
    everything = {(p, at) for p in range(PARTITIONS) for at in range(RECORDS)}
    assert written | world.by_other == everything


PLANNED = HeldQueue.planned


def _is_accepted_when_planned(queue: HeldQueue, start: ShareBatch, end: ShareBatch) -> None:
    PLANNED(queue, start, end)
    queue.completed(end)


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("HeldQueue.planned", _is_accepted_when_planned),
        ("without", lambda _ranges, _taken: []),  # a repeated batch counts as held
    ],
)
def test_planted_bugs_of_the_driver_are_found(
    name: str, planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"headwater_spark.source.held_queue.{name}", planted)
    with pytest.raises(AssertionError):
        for seed in range(SEEDS):
            story(World(seed))


def test_a_planted_bug_of_the_leader_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Holds, "encoded", lambda _holds, _durable: b"")  # they are not durable
    with pytest.raises(AssertionError):
        for seed in range(SEEDS):
            story(World(seed))
