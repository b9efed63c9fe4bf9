"""Samples the groups that someone looks at, every 5 s, by the clients of whoever looks."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from headwater.client.admin.client import EARLIEST, LATEST
from headwater.client.values import GroupDescription, GroupListing, TopicPartition
from headwater.errors import HeadwaterError, KafkaError
from headwater_gateway.app.parts import Login, Services
from headwater_gateway.console.lag.throttles import Throttles
from headwater_gateway.console.lag.verdict import SAMPLE_S
from headwater_gateway.console.lag.window import GroupWindow, LogEnds

WAIT_S = 10.0
BRIEF_WAIT_S = 0.2
"""Of pages that are about something else."""
IDLE_S = 600.0
"""Sampling ends so long after the last look."""
GROUPS_MAX = 500
"""More groups of one principal are listed without lag."""
CALLS_AT_ONCE = 16
LOGINS_MAX = 50

log = logging.getLogger(__name__)


class GroupSamples:
    """The groups that one principal sees."""

    def __init__(self) -> None:
        self.listings: list[GroupListing] = []
        self.groups: dict[str, GroupDescription] = {}
        self.windows: dict[str, GroupWindow] = {}
        self.left_out = 0
        """Groups over `GROUPS_MAX`."""
        self.error: HeadwaterError | None = None
        """Why the last round failed."""
        self.has_round = False
        """True once there is a sample."""
        self.first = asyncio.Event()
        """Set after the first round, whatever came of it."""
        self.looked_s = 0.0
        self._throttles = Throttles()

    @property
    def problem(self) -> str:
        """Why the last round failed; empty if it did not."""
        return "" if self.error is None else str(self.error)

    async def take(self, admin: Any, now_s: float, wall_s: float) -> None:
        """One round of samples. Raises KafkaError."""
        self.listings = await admin.list_groups()
        names = [g.group_id for g in self.listings][:GROUPS_MAX]
        self.left_out = len(self.listings) - len(names)
        described, committed = await asyncio.gather(
            admin.describe_groups(names) if names else _nothing(), _committed(admin, names)
        )
        self.groups = described
        tps = {tp for rows in committed.values() for tp in rows}
        tps |= {tp for g in described.values() for m in g.members for tp in m.assignment}
        ends = await log_ends(admin, tps)
        throttled = await self._throttles.find(admin, now_s, described, self.windows)
        for gone in self.windows.keys() - set(names):
            del self.windows[gone]
        for name in names:
            window = self.windows.setdefault(name, GroupWindow())
            rows = throttled.get(name, frozenset())
            window.add(now_s, wall_s, described[name], committed[name], ends, rows)
        self.has_round = True


async def _nothing() -> dict[str, Any]:
    return {}


async def _committed(admin: Any, names: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    gate = asyncio.Semaphore(CALLS_AT_ONCE)

    async def one(name: str) -> dict[TopicPartition, int]:
        async with gate:
            try:
                found = await admin.list_group_offsets(name)
            except KafkaError as error:
                log.debug("offsets of group %r: %s", name, error)
                return {}
            return {tp: at.offset for tp, at in found.items()}

    return dict(zip(names, await asyncio.gather(*(one(name) for name in names)), strict=True))


async def log_ends(admin: Any, wanted: set[TopicPartition]) -> dict[TopicPartition, LogEnds]:
    """Begin and ends of each partition's log. Those of deleted topics are left out; of one without
    a leader nothing is known but that. Raises KafkaError."""
    if not wanted:
        return {}
    topics = await admin.describe_topics()
    leaders = {
        TopicPartition(t.name, p.partition): p.leader for t in topics.values() for p in t.partitions
    }
    led = [tp for tp in wanted if leaders.get(tp, -1) >= 0]
    starts, ends, stable = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(led, EARLIEST)),
        admin.list_offsets(dict.fromkeys(led, LATEST)),
        admin.list_offsets(dict.fromkeys(led, LATEST), isolation_level="read_committed"),
    )
    found = {tp: LogEnds(starts[tp].offset, stable[tp].offset, ends[tp].offset) for tp in led}
    lost = {tp for tp in wanted if leaders.get(tp) == -1}
    return found | dict.fromkeys(lost, LogEnds(0, 0, 0, has_leader=False))


class LagSampler:
    """Samples for each principal that looks at groups."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._samples: OrderedDict[Login, GroupSamples] = OrderedDict()
        self._tasks: dict[Login, asyncio.Task[None]] = {}

    async def of(self, login: Login, *, wait_s: float = WAIT_S) -> GroupSamples:
        """What is sampled for a principal; sampling goes on. A first look waits for the first
        round, but no longer than `wait_s`: `has_round` tells whether it has come.

        Raises KafkaError if the first round fails.
        """
        now_s = self._services.clock.monotonic()
        samples = self._samples.get(login)
        if samples is None or now_s - samples.looked_s > IDLE_S:
            self.forget(login)
            self._make_room()
            samples = self._samples[login] = GroupSamples()
            task = asyncio.create_task(self._run(login, samples), name="console-lag-sampler")
            self._tasks[login] = task
        samples.looked_s = now_s
        if not samples.has_round:
            await self._first_round(login, samples, wait_s)
        return samples

    async def _first_round(self, login: Login, samples: GroupSamples, wait_s: float) -> None:
        try:
            await asyncio.wait_for(samples.first.wait(), wait_s)
        except TimeoutError:
            return
        if samples.error is not None and not samples.has_round:
            self.forget(login)
            raise samples.error

    def forget(self, login: Login) -> None:
        """End the sampling for a principal: it has logged out."""
        self._samples.pop(login, None)
        task = self._tasks.pop(login, None)
        if task is not None:
            task.cancel()

    def _make_room(self) -> None:
        while len(self._samples) > LOGINS_MAX:
            self.forget(next(iter(self._samples)))

    async def _run(self, login: Login, samples: GroupSamples) -> None:
        clock = self._services.clock
        try:
            while clock.monotonic() - samples.looked_s <= IDLE_S or not samples.first.is_set():
                await self._round(login, samples)
                await asyncio.sleep(SAMPLE_S)
        finally:
            if self._samples.get(login) is samples:
                del self._samples[login]
                self._tasks.pop(login, None)

    async def _round(self, login: Login, samples: GroupSamples) -> None:
        clock = self._services.clock
        try:
            async with self._services.clients.lease(login) as clients:
                await samples.take(clients.admin, clock.monotonic(), clock.now_ms() / 1000)
            samples.error = None
        except HeadwaterError as error:
            samples.error = error
            log.info("samples of groups: %s", error)
        finally:
            samples.first.set()

    async def close(self) -> None:
        """End all sampling."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
