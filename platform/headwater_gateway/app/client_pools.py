"""Clients of the brokers per principal: opened at a login, bounded in number, closed when idle.

The gateway has no rights of its own: what a request asks of the brokers it asks by its user's own
connections, and the brokers' ACLs decide.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from headwater.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import ErrorCode, HeadwaterError, KafkaError, UsageError
from headwater_gateway.app.errors import GatewayError, overloaded, unauthorized, unavailable
from headwater_gateway.app.login import Login
from headwater_gateway.app.login_gate import LoginGate

PRINCIPALS_MAX = 200
IDLE_S = 300.0
CHECKED_S = 300.0
"""After this time the brokers check a login again."""
SWEEP_S = 15.0
REFUSALS = (
    ErrorCode.SASL_AUTHENTICATION_FAILED,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    ErrorCode.ILLEGAL_SASL_STATE,
)

OnRefused = Callable[[Login, str], None]
"""Told of a login that the brokers refuse, and of the client's address."""

log = logging.getLogger(__name__)


class Clients(Protocol):
    """The clients of one principal."""

    @property
    def admin(self) -> AsyncAdmin:
        """The admin client, connected."""
        ...

    @property
    def servers(self) -> str:
        """Bootstrap servers."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """The security keywords of this principal's clients; they hold its secret."""
        ...

    async def producer(self) -> AsyncProducer:
        """The producer, shared by all requests of this principal."""
        ...

    def consumer(self, *topics: str, **options: Any) -> AsyncConsumer:
        """A new consumer, not yet started: `async with` it."""
        ...

    async def close(self) -> None:
        """End the connections of `admin` and `producer`."""
        ...


class Connector(Protocol):
    """Logs in at the brokers."""

    async def connect(self, login: Login) -> Clients:
        """Clients that have logged in. Raises KafkaError, UsageError."""
        ...

    async def check(self, login: Login) -> None:
        """Log in, and no more. Raises KafkaError, UsageError."""
        ...


@dataclass(slots=True)
class _Entry:
    clients: Clients
    checked_s: float
    used_s: float
    users: int = 0


class ClientPools:
    """The clients of all principals. Of one event loop."""

    def __init__(
        self,
        connector: Connector,
        clock: Clock,
        entropy: Entropy,
        *,
        principals_max: int = PRINCIPALS_MAX,
        on_refused: OnRefused = lambda _login, _host: None,
    ) -> None:
        self._connector = connector
        self._clock = clock
        self._salt = entropy.randbytes(32)
        self._principals_max = principals_max
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._locks: dict[bytes, tuple[asyncio.Lock, int]] = {}
        self._on_refused = on_refused
        self.gate = LoginGate(clock)
        """Which logins the brokers are asked about."""
        self.refused = 0
        """Logins that were refused, since the beginning."""
        self._sweeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to close what is idle."""
        self._sweeper = asyncio.create_task(self._sweep(), name="gateway-idle-clients")

    async def close(self) -> None:
        """Close all."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        entries, self._entries = list(self._entries.values()), OrderedDict()
        for entry in entries:
            await _closed(entry.clients)

    @property
    def open(self) -> int:
        """Users whose clients are open."""
        return len(self._entries)

    def of(self, login: Login) -> Clients:
        """The clients of a principal that is logged in: within its request, or a `lease`.

        Raises GatewayError (401) otherwise.
        """
        entry = self._entries.get(login.digest(self._salt))
        if entry is None:
            raise unauthorized()
        entry.used_s = self._clock.monotonic()
        return entry.clients

    @asynccontextmanager
    async def lease(self, login: Login, host: str = "") -> AsyncIterator[Clients]:
        """Log in, and keep the clients open for the block. `host`: the address of whose request it
        is; empty: it is the gateway's own work for a user who has logged in.

        Raises GatewayError: 401 when the brokers refuse the login, 503 when they do not answer,
        429 with too many principals, or with too many logins of this address.
        """
        try:
            entry = await self._entered(login, host)
        except GatewayError as error:
            if error.status == 401:
                self.refused += 1
                self._on_refused(login, host)
            raise
        entry.users += 1
        try:
            yield entry.clients
        finally:
            entry.users -= 1
            entry.used_s = self._clock.monotonic()

    async def _entered(self, login: Login, host: str) -> _Entry:
        digest = login.digest(self._salt)
        found = self._fresh(digest)
        if found is not None:
            return found
        lock, waiters = self._locks.get(digest, (asyncio.Lock(), 0))
        self._locks[digest] = (lock, waiters + 1)
        try:
            async with lock:
                return self._fresh(digest) or await self._logged_in(login, digest, host)
        finally:
            lock, waiters = self._locks.pop(digest)
            if waiters > 1:
                self._locks[digest] = (lock, waiters - 1)

    def _fresh(self, digest: bytes) -> _Entry | None:
        entry = self._entries.get(digest)
        if entry is None or self._clock.monotonic() - entry.checked_s >= CHECKED_S:
            return None
        self._entries.move_to_end(digest)
        return entry

    async def _logged_in(self, login: Login, digest: bytes, host: str) -> _Entry:
        async with self.gate.turn(digest, host):
            old = self._entries.get(digest)
            try:
                return await self._asked(login, digest, old)
            except HeadwaterError as error:
                refused = refusal(error)
                if refused.status == 401 and old is not None:
                    self._entries.pop(digest, None)
                    await _closed(old.clients)
                raise refused from error

    async def _asked(self, login: Login, digest: bytes, old: _Entry | None) -> _Entry:
        if old is not None:
            await self._connector.check(login)
            old.checked_s = self._clock.monotonic()
            return old
        await self._make_room()
        clients = await self._connector.connect(login)
        now = self._clock.monotonic()
        entry = self._entries[digest] = _Entry(clients, now, now)
        return entry

    async def _make_room(self) -> None:
        if len(self._entries) < self._principals_max:
            return
        idle = next((k for k, entry in self._entries.items() if not entry.users), None)
        if idle is None:
            raise overloaded(f"{self._principals_max} principals are at work: ask again later")
        await _closed(self._entries.pop(idle).clients)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.close_idle()

    async def close_idle(self) -> None:
        """Close the clients that nobody used for `IDLE_S`."""
        now = self._clock.monotonic()
        idle = [k for k, e in self._entries.items() if not e.users and now - e.used_s >= IDLE_S]
        for digest in idle:
            await _closed(self._entries.pop(digest).clients)


def refusal(error: HeadwaterError) -> GatewayError:
    """The reply for a login that did not succeed."""
    if isinstance(error, GatewayError):
        return error
    if isinstance(error, UsageError):
        return unauthorized()
    if isinstance(error, KafkaError) and error.code in REFUSALS:
        return unauthorized("the brokers refuse this login")
    return unavailable(str(error))


async def _closed(clients: Clients) -> None:
    try:
        await clients.close()
    except (HeadwaterError, OSError) as error:
        log.warning("closing idle clients: %s", error)
