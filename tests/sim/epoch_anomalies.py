"""Anomalies of epochs, each planted by a script like `anomalies.py`.

Two runs of a query write one sink. What a script raises is judged by the invariants of epochs.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from headwater.wire.apis import k27_write_txn_markers as k27
from headwater.wire.apis import k10001_join_epoch as k10001
from headwater.wire.apis import k10002_commit_epoch as k10002
from headwater.wire.apis import k10003_abort_epoch as k10003
from headwater.wire.epoch_values import EpochState, EpochStatus
from sim.anomalies import SOME_S, Anomaly
from sim.broker import Broker
from sim.epoch_ledger import EpochAttempt, EpochFate
from sim.epoch_requests import EpochRequests, Joined, TaskFailedError
from sim.invariants import ViolationError
from sim.plan import EPOCH_PROPERTIES, EPOCH_TIMEOUT_MS
from sim.scripted import KEY, OTHER, Script
from sim.transaction_clients import TRANSACTION

SINK = "alerts"
COORDINATOR = f"__hw.{SINK}"
OPEN_FOR_EVER = {**EPOCH_PROPERTIES, "epoch.timeout.ms": "60000", "epoch.max.ms": "120000"}


class Run(EpochRequests):
    """A run of the query, on the script's loop."""

    def __init__(self, script: Script, number: int) -> None:
        super().__init__(script.world, f"run{number}", "query")
        self.loop = script.loop
        self._run = UUID(int=number)
        self._attempts = 0

    async def begin(self, epoch: int) -> EpochAttempt:
        """An attempt with a new ticket."""
        ticket = await self.allocate()
        return self.ledger.begin(SINK, epoch, ticket, self._run, self.world.scheduler.now)

    async def task(self, attempt: EpochAttempt, task: int = 0) -> Joined:
        """A task that has joined and written a record to each of two partitions."""
        self._attempts += 1
        joined = await self.join(attempt, task, self._attempts)
        if not isinstance(joined, Joined):
            raise ViolationError("TheScriptHolds", f"{attempt.name}: {joined.name}")
        for number, key in enumerate((KEY, OTHER)):
            await self.write(attempt, joined, key, (_value(joined, number),), 0)
        return joined

    async def coordinator(self, script: Script) -> Broker:
        """The broker that decides."""
        while (host := await self.find_coordinator((TRANSACTION, COORDINATOR))) is None:
            await self.pause()
        return script.broker(host)


def _value(joined: Joined, number: int) -> bytes:
    return b"%b#%d" % (joined.prefix.encode(), number)


async def _later_epoch(run: Run, epoch: int) -> None:
    """A whole epoch: the sink moves on."""
    attempt = await run.begin(epoch)
    joined = [await run.task(attempt, task) for task in range(2)]
    status = await run.commit(attempt, joined)
    if status is not EpochStatus.COMMITTED:
        raise ViolationError("TheScriptHolds", f"{attempt.name}: {status.name}")


# -- 22: a slot is handed out twice


async def coordinator_dies_at_a_join(script: Script) -> None:
    """The coordinator is killed after each number of events that a join may take: what it has
    handed out is not handed out again (`SlotsAreNotShared`)."""
    run, random = Run(script, 1), script.world.random
    for epoch in range(12):
        attempt = await run.begin(epoch)
        broker = await run.coordinator(script)
        if broker.loop is not None:
            broker.loop.kill_after = random.randrange(40)
            script.world.scheduler.later(SOME_S, broker.start)
        number = 0
        found = []
        for task in range(3):
            for _ in range(1 + random.randrange(2)):
                number += 1
                joined = await run.join(attempt, task, number)
            found.append(joined)
        named = [row for row in found if isinstance(row, Joined)]
        status = await run.commit(attempt, named) if len(named) == 3 else await run.abort(attempt)
        script.expect(status, EpochStatus.COMMITTED, EpochStatus.ABORTED)
        await script.until(
            lambda: all(b.node is not None and b.node.is_ready for b in script.world.brokers),
            "all brokers are up",
        )


async def join_reply_lost(script: Script) -> None:
    """The reply to JoinEpoch is lost, and so is its coordinator: the task's retry gets what it was
    given, another task something else."""
    run = Run(script, 1)
    await _later_epoch(run, 0)
    attempt = await run.begin(1)
    held = script.hold(k10001.JoinEpochRequest)
    first = script.loop.create_task(run.task(attempt, 0))
    await held.caught()
    await held.lose_reply()
    broker = await run.coordinator(script)
    joined = [await first]
    broker.kill("the coordinator of a join")
    broker.start_later(SOME_S)
    joined.append(await run.task(attempt, 1))
    script.expect(await run.commit(attempt, joined), EpochStatus.COMMITTED)


# -- 24: two drivers


async def zombie_with_a_fresh_ticket(script: Script) -> None:
    """A driver that was thought dead takes a new ticket: its run is retired all the same."""
    old, new = Run(script, 1), Run(script, 2)
    first = await old.begin(0)
    mine = [await old.task(first, task) for task in range(2)]
    second = await new.begin(0)
    theirs = [await new.task(second, task) for task in range(2)]
    third = await old.begin(0)
    script.expect(await old.join(third, 0, 99), EpochStatus.FENCED)
    script.expect(await old.commit(first, mine), EpochStatus.FENCED)
    try:
        await old.write(first, mine[0], KEY, (_value(mine[0], 9),), 1)
        script.expect("a zombie's record is acked", "it is refused")
    except TaskFailedError:
        pass
    script.expect(await old.abort(third), EpochStatus.FENCED)
    script.expect(await new.commit(second, theirs), EpochStatus.COMMITTED)
    script.expect(await old.commit(third, ()), EpochStatus.COMMITTED)
    script.expect(await old.join(await old.begin(1), 0, 100), EpochStatus.FENCED)
    await _later_epoch(new, 1)


async def late_join(script: Script) -> None:
    """The JoinEpoch of a zombie's task arrives when its successor has committed the epoch."""
    await _late(script, k10001.JoinEpochRequest)


async def late_commit(script: Script) -> None:
    """The CommitEpoch of a zombie arrives when its successor's epoch is open."""
    await _late(script, k10002.CommitEpochRequest)


async def late_abort(script: Script) -> None:
    """The AbortEpoch of a zombie arrives when its successor's epoch is open."""
    await _late(script, k10003.AbortEpochRequest)


async def _late(script: Script, kind: type[Any]) -> None:
    old, new = Run(script, 1), Run(script, 2)
    first = await old.begin(0)
    mine = [await old.task(first)]
    held = script.hold(kind)
    if kind is k10001.JoinEpochRequest:
        late = script.loop.create_task(old.join(first, 1, 50))
    elif kind is k10002.CommitEpochRequest:
        late = script.loop.create_task(old.commit(first, mine))
    else:
        late = script.loop.create_task(old.abort(first))
    await held.caught()
    second = await new.begin(0)
    theirs = [await new.task(second, task) for task in range(2)]
    await held.release()
    script.expect(await late, EpochStatus.FENCED)
    script.expect(await new.commit(second, theirs), EpochStatus.COMMITTED)
    await _later_epoch(new, 1)


# -- 25: the reply to a commit is lost


async def commit_reply_lost(script: Script) -> None:
    """The reply to CommitEpoch is lost, and the driver with it; a new run begins, while markers are
    still on their way: the epoch stays committed, and is not written again."""
    old, new = Run(script, 1), Run(script, 2)
    await _later_epoch(old, 0)
    first = await old.begin(1)
    mine = [await old.task(first, task) for task in range(2)]
    markers = script.hold(k27.WriteTxnMarkersRequest, limit=1_000)
    lost = script.hold(k10002.CommitEpochRequest)
    gone = script.loop.create_task(old.commit(first, mine))
    await lost.caught()
    await lost.lose_reply()
    await script.until(lambda: _state(script, first) is EpochState.COMMITTING, "the decision")
    second = await new.begin(1)
    script.expect(await new.join(second, 0, 1), EpochStatus.COMMITTED)
    script.expect(await new.abort(second), EpochStatus.COMMITTED)
    third = await new.begin(2)
    joined = await new.task(third)
    script.expect(await old.abort(first), EpochStatus.COMMITTED)
    broker = await new.coordinator(script)
    broker.kill("the coordinator, with markers on their way")
    broker.start_later(SOME_S)
    await markers.release()
    script.expect(await new.commit(third, [joined]), EpochStatus.COMMITTED)
    script.expect(await gone, EpochStatus.COMMITTED, EpochStatus.FENCED)
    first.fate = EpochFate.DECIDED


async def commit_lost_with_its_coordinator(script: Script) -> None:
    """The coordinator dies with a decision that no follower has: the driver asks again, and gets
    one outcome, whichever it is."""
    run = Run(script, 1)
    for epoch in range(6):
        attempt = await run.begin(epoch)
        joined = [await run.task(attempt, task) for task in range(2)]
        broker = await run.coordinator(script)
        if broker.loop is not None:
            broker.loop.kill_after = script.world.random.randrange(60)
            script.world.scheduler.later(SOME_S, broker.start)
        status = await run.commit(attempt, joined)
        script.expect(status, EpochStatus.COMMITTED, EpochStatus.ABORTED)
        await script.until(
            lambda: all(b.node is not None and b.node.is_ready for b in script.world.brokers),
            "all brokers are up",
        )


async def nobody_comes_back(script: Script) -> None:
    """A driver dies with an open epoch: at its deadline readers go on."""
    run = Run(script, 1)
    await _later_epoch(run, 0)
    await run.task(await run.begin(1))
    await script.whole(KEY)
    await asyncio.sleep(2 * EPOCH_TIMEOUT_MS / 1000)


# -- prepared epochs


async def zombie_commits_what_is_prepared(script: Script) -> None:
    """A newer run aborts what the zombie has prepared, and prepares the epoch itself; then the
    zombie commits."""
    old, new = Run(script, 1), Run(script, 2)
    first = await old.begin(0)
    mine = [await old.task(first)]
    script.expect(await old.commit(first, mine, prepares=True), EpochStatus.PREPARED)
    second = await new.begin(0)
    script.expect(await new.abort(second, is_prepared=True), EpochStatus.ABORTED)
    first.fate = EpochFate.ABORTED
    second.is_abort_sent = False
    theirs = [await new.task(second)]
    script.expect(await new.commit(second, theirs, prepares=True), EpochStatus.PREPARED)
    script.expect(await old.commit_prepared(first), EpochStatus.FENCED)
    broker = await new.coordinator(script)
    broker.kill("the coordinator of a prepared epoch")
    broker.start_later(SOME_S)
    await asyncio.sleep(2 * EPOCH_TIMEOUT_MS / 1000)
    script.expect(await new.commit_prepared(second), EpochStatus.COMMITTED)
    await _later_epoch(new, 1)


def _state(script: Script, attempt: EpochAttempt) -> EpochState | None:
    return script.world.epochs.decisions.get(attempt.name)


EPOCH_ANOMALIES = tuple(
    Anomaly(number, play, (2,), properties)
    for number, play, properties in (
        ("22", coordinator_dies_at_a_join, OPEN_FOR_EVER),
        ("22, reply lost", join_reply_lost, OPEN_FOR_EVER),
        ("24", zombie_with_a_fresh_ticket, OPEN_FOR_EVER),
        ("24, late join", late_join, OPEN_FOR_EVER),
        ("24, late commit", late_commit, OPEN_FOR_EVER),
        ("24, late abort", late_abort, OPEN_FOR_EVER),
        ("24, prepared", zombie_commits_what_is_prepared, EPOCH_PROPERTIES),
        ("25", commit_reply_lost, OPEN_FOR_EVER),
        ("25, coordinator dies", commit_lost_with_its_coordinator, OPEN_FOR_EVER),
        ("nobody comes back", nobody_comes_back, EPOCH_PROPERTIES),
    )
)
