"""The consumers that clients of v2 have made in this process: found by name, ended when idle.

A restart ends them all: their clients get 40403 and make new ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from headwater.aio import AsyncConsumer
from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater_gateway.app.errors import GatewayError, overloaded
from headwater_gateway.app.login import Login
from headwater_gateway.rest.consumer_instance import ConsumerInstance, InstanceSettings
from headwater_gateway.rest.kafka_errors import ALREADY_EXISTS, INSTANCE_NOT_FOUND

SWEEP_S = 1.0
CONSUMERS_MAX = 2_000
"""Of all principals."""

log = logging.getLogger(__name__)
Key = tuple[Login, str, str]
Open = Callable[[], Awaitable[AsyncConsumer]]
"""Starts an AsyncConsumer."""


class Consumers:
    """All consumers. One principal does not see those of another."""

    def __init__(self, clock: Clock, *, per_login: int, idle_s: float) -> None:
        self._clock = clock
        self._per_login = per_login
        self._idle_s = idle_s
        self._instances: dict[Key, ConsumerInstance | None] = {}
        """None: one is being made."""
        self._sweeper: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to end those that are idle."""
        self._sweeper = asyncio.create_task(self._sweep(), name="gateway-idle-consumers")

    async def close(self) -> None:
        """End all: each leaves its group."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        found, self._instances = list(self._instances.values()), {}
        await asyncio.gather(*(_closed(i) for i in found if i is not None), *self._closing)

    async def make(self, login: Login, settings: InstanceSettings, open_one: Open) -> None:
        """Make a consumer. Raises GatewayError: 40902 for a name that is taken, 429 for too many;
        KafkaError, UsageError."""
        key = (login, settings.group, settings.name)
        if key in self._instances:
            raise GatewayError(
                409,
                ALREADY_EXISTS,
                "Consumer with specified consumer ID already exists in the specified consumer "
                "group.",
            )
        own = sum(1 for known in self._instances if known[0] == login)
        if own >= self._per_login:
            raise overloaded(f"{own} consumers are open: delete one")
        if len(self._instances) >= CONSUMERS_MAX:
            raise overloaded(f"{CONSUMERS_MAX} consumers are open in this process")
        self._instances[key] = None
        try:
            consumer = await open_one()
        except BaseException:
            del self._instances[key]
            raise
        self._instances[key] = ConsumerInstance(login, settings, consumer, self._clock)

    @asynccontextmanager
    async def use(self, login: Login, group: str, name: str) -> AsyncIterator[ConsumerInstance]:
        """The consumer, for one request at a time. Raises GatewayError (404, 40403)."""
        instance = self._find(login, group, name)
        async with instance.lock:
            if self._instances.get((login, group, name)) is not instance:  # ended meanwhile
                raise not_found()
            try:
                yield instance
            finally:
                instance.used_s = self._clock.monotonic()

    async def end(self, login: Login, group: str, name: str) -> None:
        """End a consumer: it leaves its group. Raises GatewayError (404, 40403)."""
        instance = self._find(login, group, name)
        async with instance.lock:
            if self._instances.pop((login, group, name), None) is None:
                raise not_found()
        await _closed(instance)

    def _find(self, login: Login, group: str, name: str) -> ConsumerInstance:
        instance = self._instances.get((login, group, name))
        if instance is None:
            raise not_found()
        return instance

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.end_idle()

    def end_idle(self) -> None:
        """End the consumers without a request for the time that was set."""
        now = self._clock.monotonic()
        for key, instance in list(self._instances.items()):
            if instance is None or instance.is_busy or now - instance.used_s < self._idle_s:
                continue
            log.info("consumer %s of group %s is idle: it leaves", key[2], key[1])
            del self._instances[key]
            task = asyncio.create_task(_closed(instance))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


async def _closed(instance: ConsumerInstance) -> None:
    try:
        await instance.close()
    except (HeadwaterError, OSError) as error:
        log.warning("closing a consumer: %s", error)


def not_found() -> GatewayError:
    """There is no such consumer here."""
    return GatewayError(404, INSTANCE_NOT_FOUND, "Consumer instance not found.")
