"""Spark queries of a world: drivers that write micro-batches over several tasks, exactly once.

A query has runs, one after the other, or two at once when a driver is a zombie. Tasks are processes
of their own: they fail and are tried again, two attempts of one task work at the same time
(speculation), and they go on when their driver is dead. Now and then a run begins from a checkpoint
that was rewound. Half of the queries prepare their epochs, and a table decides.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from headwater.wire.epoch_values import EpochStatus
from sim.clients import Client
from sim.epoch_ledger import CommittedTable, EpochAttempt
from sim.epoch_requests import EpochRequests, Joined, TaskFailedError
from sim.invariants import ViolationError
from sim.plan import EPOCH_TIMEOUT_MS, TRANSACTED
from sim.transaction_clients import GaveUpError

if TYPE_CHECKING:
    from sim.world import World

TASKS_MAX = 3
POLL_S = 0.02
RUN_S = (0.5, 6.0)
RUNS_MAX = 14
FAILS = 0.15
SPECULATES = 0.25
ABORTS = 0.07
LINGERS = 0.06
DIES_BEFORE_ITS_CHECKPOINT = 0.05
REWINDS = 0.15
ZOMBIE = 0.4
EPOCHS_AT_THE_END = 2
LEAVES_AN_EPOCH_OPEN = 0.5


class FencedRunError(Exception):
    """The run stops: a newer one writes the sink, or its checkpoint is refused."""


class Task(EpochRequests):
    """One attempt of one task of a micro-batch."""

    def __init__(
        self, driver: Driver, attempt: EpochAttempt, task: int, number: int, *, fails: bool
    ) -> None:
        name = f"{driver.name}.{attempt.epoch}.{attempt.ticket}.{task}.{number}"
        super().__init__(driver.world, name, driver.owner)
        self.task = task
        self.outcome: Joined | EpochStatus | None = None
        """None: it failed."""
        self._attempt = attempt
        self._number = number
        self._fails = fails
        self._beats_s = 0.0

    async def work(self) -> None:
        try:
            joined = await self.join(self._attempt, self.task, self._number)
            if isinstance(joined, Joined):
                await self._write_all(joined)
                if self._fails:
                    return
            self.outcome = joined
        except TaskFailedError:
            self.outcome = EpochStatus.ABORTED
        except GaveUpError:
            return

    async def _write_all(self, joined: Joined) -> None:
        random, count = self.world.random, 0
        sequences: dict[int, int] = {}
        for _ in range(random.randint(0, 3)):
            index = random.randrange(self.world.topics[TRANSACTED])
            values = tuple(
                b"%b#%d" % (joined.prefix.encode(), count + i) for i in range(random.randint(1, 2))
            )
            count += len(values)
            at = sequences.get(index, 0)
            sequences[index] = at + len(values)
            await self.write(self._attempt, joined, (TRANSACTED, index), values, at)
            await self._rest(random.random() * 0.4)
        if random.random() < LINGERS:
            await self._rest(random.uniform(1.0, 6.0))

    async def _rest(self, seconds: float) -> None:
        """Work that writes nothing, with heartbeats or without."""
        if self.world.random.random() < 0.3:
            await self.heartbeat(self._attempt)
        await asyncio.sleep(seconds)


class Driver(EpochRequests):
    """One run of a query."""

    def __init__(self, query: Query, number: int, first: int, *, is_last: bool = False) -> None:
        super().__init__(query.world, f"{query.name}.run{number}", query.name)
        self.tasks: list[Task] = []
        self._query = query
        self._run = UUID(int=self.world.random.getrandbits(128))
        self._next = first
        self._is_last = is_last

    async def work(self) -> None:
        random, done = self.world.random, 0
        try:
            while done < EPOCHS_AT_THE_END if self._is_last else not self.world.is_healing:
                if await self._epoch(self._next):
                    self.world.transactions.count("epochs committed")
                    if not self._is_last and random.random() < DIES_BEFORE_ITS_CHECKPOINT:
                        return
                    self._query.checkpoint = max(self._query.checkpoint, self._next)
                    self._next += 1
                    done += 1
                await asyncio.sleep(random.random() * self.world.plan.produce_pause_s)
            if self._is_last and random.random() < LEAVES_AN_EPOCH_OPEN:
                await self._run_tasks(await self._begin(self._next))
        except FencedRunError:
            self.world.transactions.count("runs fenced")
            if self._is_last:
                raise ViolationError("SinksMoveOn", f"{self.name} is fenced") from None
        except GaveUpError:
            return

    async def _begin(self, epoch: int) -> EpochAttempt:
        return self.ledger.begin(
            self._query.name, epoch, await self.allocate(), self._run, self.world.scheduler.now
        )

    async def _epoch(self, epoch: int) -> bool:
        """One attempt at an epoch; True: it is committed. Raises FencedRunError."""
        attempt = await self._begin(epoch)
        table = self.ledger.tables.get(self._query.name)
        if table is not None and await self._resolve(attempt, table):
            return True
        found = await self._run_tasks(attempt)
        refused = {row for row in found if isinstance(row, EpochStatus)}
        if refused & {EpochStatus.FENCED, EpochStatus.CHECKPOINT_MISMATCH}:
            raise FencedRunError
        random = self.world.random
        if EpochStatus.ABORTED in refused or (not self._is_last and random.random() < ABORTS):
            await self._abort(attempt)
            return False
        if random.random() < LINGERS:
            await asyncio.sleep(random.uniform(1.0, 6.0))
        participants = [row for row in found if isinstance(row, Joined)]
        status = await self.commit(attempt, participants, prepares=table is not None)
        if status in (EpochStatus.FENCED, EpochStatus.CHECKPOINT_MISMATCH):
            raise FencedRunError
        if status is EpochStatus.PREPARED and table is not None:
            status = await self._decide(attempt, table)
        self.world.note(f"{attempt.name} {status.name}, named {len(participants)}")
        if status is EpochStatus.ABORTED:
            self.world.transactions.count("epochs aborted")
        return status is EpochStatus.COMMITTED

    async def _abort(self, attempt: EpochAttempt) -> None:
        self.world.transactions.count("epochs aborted")
        if await self.abort(attempt) is EpochStatus.FENCED:
            raise FencedRunError

    async def _resolve(self, attempt: EpochAttempt, table: CommittedTable) -> bool:
        """Decide what an earlier run has prepared, as the table says; True: it is committed."""
        if not table.claim(attempt.ticket):
            raise FencedRunError
        if attempt.epoch in table.epochs:
            return await self._commit_prepared(attempt) is EpochStatus.COMMITTED
        status = await self.abort(attempt, is_prepared=True)
        if status in (EpochStatus.FENCED, EpochStatus.CHECKPOINT_MISMATCH):
            raise FencedRunError
        if status is not EpochStatus.ABORTED:
            self.fail("TablesAgree", attempt, f"the table lacks it, and it is {status.name}")
        attempt.is_abort_sent = False  # of the earlier one: this attempt goes on
        return False

    async def _decide(self, attempt: EpochAttempt, table: CommittedTable) -> EpochStatus:
        """The table commits a prepared epoch; if a newer run has it, so does that one decide."""
        random = self.world.random
        await asyncio.sleep(random.random() * 0.3)
        if not table.commit(attempt.epoch, attempt.ticket):
            raise FencedRunError
        self.world.transactions.count("epochs prepared")
        await asyncio.sleep(random.random() * 0.3)
        return await self._commit_prepared(attempt)

    async def _commit_prepared(self, attempt: EpochAttempt) -> EpochStatus:
        status = await self.commit_prepared(attempt)
        if status in (EpochStatus.FENCED, EpochStatus.CHECKPOINT_MISMATCH):
            raise FencedRunError
        if status is not EpochStatus.COMMITTED:
            self.fail("TablesAgree", attempt, f"the table has it, and it is {status.name}")
        return status

    async def _run_tasks(self, attempt: EpochAttempt) -> list[Joined | EpochStatus]:
        """Each task's first outcome: a participant, or the status that ends it."""
        random, found, number = self.world.random, dict[int, Joined | EpochStatus](), 0
        count = random.randint(1, TASKS_MAX)
        working: list[Task] = []
        for task in range(count):
            twice = random.random() < SPECULATES
            for _ in range(1 + twice):
                fails = not twice and random.random() < FAILS
                working.append(self._start(attempt, task, number, fails=fails))
                number += 1
        while len(found) < count:
            if self.world.has_given_up:
                raise GaveUpError
            await asyncio.sleep(POLL_S)
            for one in [row for row in working if row.is_done]:
                working.remove(one)
                if one.outcome is not None:
                    found.setdefault(one.task, one.outcome)
                elif one.task not in found:
                    self.world.transactions.count("tasks retried")
                    working.append(self._start(attempt, one.task, number, fails=False))
                    number += 1
        return list(found.values())

    def _start(self, attempt: EpochAttempt, task: int, number: int, *, fails: bool) -> Task:
        made = Task(self, attempt, task, number, fails=fails)
        self.tasks.append(made)
        made.run()
        return made


class Query(Client):
    """A query: whoever starts it again, and its checkpoint."""

    is_awaited = True

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"query{number}")
        self.checkpoint = -1
        """The last epoch in Spark's commit log."""
        self._runs = 0
        self._working: list[Driver] = []
        if number % 2:
            world.epochs.tables[self.name] = CommittedTable()

    async def work(self) -> None:
        random = self.world.random
        while not self.world.is_healing:
            if self._runs < RUNS_MAX:
                driver = self._start(self._first())
                end_s = self.world.scheduler.now + random.uniform(*RUN_S)
                while not driver.is_done and self.world.scheduler.now < end_s:
                    await asyncio.sleep(POLL_S)
                if random.random() < ZOMBIE:
                    self.world.transactions.count("zombies")
                else:
                    self._kill(driver)
            await asyncio.sleep(random.random())
        for driver in self._working:
            self._kill(driver)
        last = self._start(self.checkpoint + 1, is_last=True)
        while not last.is_done:
            await asyncio.sleep(POLL_S)
        await asyncio.sleep(2 * EPOCH_TIMEOUT_MS / 1000)  # what it left open is aborted meanwhile

    def _first(self) -> int:
        """The epoch that a run begins with; of a rewound checkpoint an earlier one."""
        if self.checkpoint >= 1 and self.world.random.random() < REWINDS:
            self.world.transactions.count("rewound")
            return self.checkpoint - self.world.random.randint(0, 1)
        return self.checkpoint + 1

    def _start(self, first: int, *, is_last: bool = False) -> Driver:
        driver = Driver(self, self._runs, first, is_last=is_last)
        self._runs += 1
        self._working.append(driver)
        driver.run()
        return driver

    def _kill(self, driver: Driver) -> None:
        """The driver's process dies, with it perhaps its tasks' executors."""
        if driver.is_done:
            return
        self.world.note(f"{driver.name} dies")
        dead: list[Client] = [driver]
        dead += [t for t in driver.tasks if not t.is_done and self.world.random.random() < 0.5]
        for client in dead:
            client.is_done = True
            client.loop.kill()
            self.world.network.process_died(client.loop)


def spark_queries(world: World) -> list[Client]:
    """The queries of a world."""
    return [Query(world, number) for number in range(world.plan.queries)]
