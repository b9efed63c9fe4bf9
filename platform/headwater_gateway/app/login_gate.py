"""Which login the brokers are asked about now: slots by client address, and what is known already.

Brokers answer a failed login late, by the address that fails: to them that is the gateway's. A
stranger who tries passwords would so hold every slot. Here an address has some slots, the one with
the fewest goes first, what the brokers took before is checked in slots of its own, and what they
refused a moment ago is refused without them.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from headwater.clock import Clock
from headwater_gateway.app.errors import GatewayError, overloaded, unauthorized

LOGINS_AT_ONCE = 16
LOGINS_OF_ADDRESS = 4
WAITING_OF_ADDRESS = 32
"""More of an address are refused at once."""
WAIT_S = 20.0
CHECKS_AT_ONCE = 8
"""Of logins that the brokers took before."""
REFUSED_S = 5.0
"""For so long a refused login is refused again without asking."""
REMEMBERED_MAX = 2_000
IPV6_PREFIX = 64
"""Who has one address of IPv6 has all of its network."""


class LoginGate:
    """Lets logins through to the brokers. Of one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots = LoginSlots()
        self._checks = asyncio.Semaphore(CHECKS_AT_ONCE)
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._refused: OrderedDict[bytes, float] = OrderedDict()

    @property
    def in_use(self) -> int:
        """Slots in which the brokers are asked about a login they do not know."""
        return self._slots.in_use

    @property
    def waiting(self) -> int:
        """Logins that wait for such a slot."""
        return self._slots.waiting

    @asynccontextmanager
    async def turn(self, digest: bytes, host: str) -> AsyncIterator[None]:
        """The block asks the brokers about the login that `digest` names, for a client at `host`;
        it raises GatewayError (401) when they refuse it.

        Raises GatewayError: 401 for what they refused just now, 429 when too many wait.
        """
        self._check_refused(digest)
        async with self._place(digest, host):
            self._check_refused(digest)
            try:
                yield
            except GatewayError as error:
                if error.status == 401:
                    self._known.pop(digest, None)
                    self._refused[digest] = self._clock.monotonic() + REFUSED_S
                    _cut(self._refused)
                raise
            self._known[digest] = None
            self._known.move_to_end(digest)
            _cut(self._known)

    def _place(self, digest: bytes, host: str) -> AbstractAsyncContextManager[None]:
        if digest in self._known:
            return self._checks
        return self._slots.of(address_of(host))

    def _check_refused(self, digest: bytes) -> None:
        now = self._clock.monotonic()
        if now < self._refused.get(digest, now):
            raise unauthorized("the brokers refused this login just now")


class LoginSlots:
    """The slots, shared between addresses. Of one event loop."""

    def __init__(self, at_once: int = LOGINS_AT_ONCE, of_address: int = LOGINS_OF_ADDRESS) -> None:
        self._at_once = at_once
        self._of_address = of_address
        self._running: Counter[str] = Counter()
        self._queue: OrderedDict[asyncio.Future[None], str] = OrderedDict()

    @property
    def in_use(self) -> int:
        """Slots that are taken."""
        return self._running.total()

    @property
    def waiting(self) -> int:
        """Who waits for one."""
        return len(self._queue)

    @asynccontextmanager
    async def of(self, address: str) -> AsyncIterator[None]:
        """Take a slot for the block. Raises GatewayError (429) when too many of this address wait,
        or after `WAIT_S`."""
        await self._taken(address)
        try:
            yield
        finally:
            self._give_back(address)

    async def _taken(self, address: str) -> None:
        if self.in_use < self._at_once and self._running[address] < self._of_address:
            self._running[address] += 1
            return
        if sum(one == address for one in self._queue.values()) >= WAITING_OF_ADDRESS:
            raise _too_many()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[turn] = address
        try:
            async with asyncio.timeout(WAIT_S):
                await turn
        except BaseException as error:
            if self._queue.pop(turn, None) is None:  # the slot came at the same moment
                self._give_back(address)
            if isinstance(error, TimeoutError):
                raise _too_many() from None
            raise

    def _give_back(self, address: str) -> None:
        self._running[address] -= 1
        if not self._running[address]:
            del self._running[address]
        while self.in_use < self._at_once:
            fitting = [
                turn
                for turn, one in self._queue.items()
                if self._running[one] < self._of_address and not turn.done()
            ]
            if not fitting:
                return
            # The first of equals, as min takes it, has waited longest.
            turn = min(fitting, key=lambda turn: self._running[self._queue[turn]])
            self._running[self._queue.pop(turn)] += 1
            turn.set_result(None)


def address_of(host: str) -> str:
    """What stands for a client: its address, or the network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))


def _too_many() -> GatewayError:
    return overloaded("too many logins of your address wait for the brokers: ask again later")


def _cut(remembered: OrderedDict[bytes, float] | OrderedDict[bytes, None]) -> None:
    if len(remembered) > REMEMBERED_MAX:
        remembered.popitem(last=False)
