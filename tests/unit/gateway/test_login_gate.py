"""Who tries passwords holds slots of its own address, and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_gateway.app.client_pools import CHECKED_S, IDLE_S, ClientPools
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.app.login import Login, password_login
from headwater_gateway.app.login_gate import (
    LOGINS_AT_ONCE,
    LOGINS_OF_ADDRESS,
    REFUSED_S,
    WAITING_OF_ADDRESS,
    LoginSlots,
    address_of,
)
from unit.gateway.gateways import PASSWORD, FakeClients, FakeConnector

ALICE, BOB = password_login("alice", PASSWORD), password_login("bob", PASSWORD)
STRANGER, HOME = "203.0.113.7", "198.51.100.1"


class SlowToRefuse(FakeConnector):
    """Brokers that answer a bad login only when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.tried = 0
        self.answer = asyncio.Event()

    async def connect(self, login: Login) -> FakeClients:
        self.tried += 1
        if login.secret != self.password:
            await self.answer.wait()
        return await super().connect(login)


class Gate:
    """Pools before such brokers."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.connector = SlowToRefuse()
        self.refused: list[tuple[str, str]] = []
        self.pools = ClientPools(
            self.connector,
            self.clock,
            SeededEntropy(),
            on_refused=lambda login, host: self.refused.append((login.name, host)),
        )

    async def ask(self, login: Login, host: str) -> int:
        """The status of a request."""
        try:
            async with asyncio.timeout(30), self.pools.lease(login, host):
                return 200
        except GatewayError as error:
            return error.status

    async def tries(self, count: int, host: str) -> list[asyncio.Task[int]]:
        """So many passwords are tried from an address, and hang at the brokers."""
        guesses = [password_login("alice", f"guess {n} of {host}") for n in range(count)]
        tasks = [asyncio.create_task(self.ask(guess, host)) for guess in guesses]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return tasks


def run(work: Callable[[Gate], Awaitable[Any]]) -> Any:
    async def body() -> Any:
        return await work(Gate())

    return asyncio.run(body())


def test_who_tries_passwords_keeps_nobody_else_out() -> None:
    async def work(gate: Gate) -> list[int]:
        tasks = await gate.tries(100, STRANGER)
        assert gate.connector.tried == LOGINS_OF_ADDRESS == gate.pools.gate.in_use
        assert gate.pools.gate.waiting == WAITING_OF_ADDRESS
        assert await gate.ask(BOB, HOME) == 200
        gate.connector.answer.set()
        return await asyncio.gather(*tasks)

    found = run(work)
    assert set(found) == {401, 429}
    assert found.count(401) == LOGINS_OF_ADDRESS + WAITING_OF_ADDRESS


def test_many_addresses_together_do_not_keep_a_known_user_out() -> None:
    async def work(gate: Gate) -> None:
        assert await gate.ask(BOB, STRANGER) == 200
        tasks: list[asyncio.Task[int]] = []
        for n in range(8):
            tasks += await gate.tries(10, f"203.0.113.{n}")
        assert gate.pools.gate.in_use == LOGINS_AT_ONCE
        gate.clock.advance(CHECKED_S * 1000)
        assert await gate.ask(BOB, "203.0.113.1") == 200
        assert gate.connector.checks == 1
        gate.clock.advance(IDLE_S * 1000)
        await gate.pools.close_idle()
        assert gate.pools.open == 0
        assert await gate.ask(BOB, "203.0.113.1") == 200, "known, though its clients were closed"
        gate.connector.answer.set()
        await asyncio.gather(*tasks)

    run(work)


def test_a_refused_login_is_asked_again_after_a_while_only() -> None:
    async def work(gate: Gate) -> None:
        gate.connector.answer.set()
        guess = password_login("alice", "guess")
        assert [await gate.ask(guess, HOME) for _ in range(5)] == [401] * 5
        assert gate.connector.tried == 1
        assert gate.refused == [("alice", HOME)] * 5 and gate.pools.refused == 5
        assert await gate.ask(ALICE, HOME) == 200, "another password is another login"
        gate.connector.password = "guess"
        gate.clock.advance(REFUSED_S * 1000)
        assert await gate.ask(guess, HOME) == 200

    run(work)


def test_requests_with_one_bad_login_ask_the_brokers_once() -> None:
    async def work(gate: Gate) -> None:
        guess = password_login("alice", "guess")
        tasks = [asyncio.create_task(gate.ask(guess, HOME)) for _ in range(20)]
        await asyncio.sleep(0)
        gate.connector.answer.set()
        assert await asyncio.gather(*tasks) == [401] * 20
        assert gate.connector.tried == 1

    run(work)


def test_brokers_that_do_not_answer_refuse_nobody() -> None:
    async def work(gate: Gate) -> None:
        gate.connector.is_down = True
        assert await gate.ask(ALICE, HOME) == 503
        gate.connector.is_down = False
        assert await gate.ask(ALICE, HOME) == 200
        assert gate.refused == []

    run(work)


def test_a_slot_that_comes_free_goes_to_the_address_with_the_fewest() -> None:
    async def work(_gate: Gate) -> list[str]:
        slots = LoginSlots(at_once=3, of_address=2)
        order: list[str] = []
        ends = {name: asyncio.Event() for name in ("a1", "a2", "b1", "a3", "b2", "c1")}

        async def one(name: str) -> None:
            async with slots.of(name[0]):
                order.append(name)
                await ends[name].wait()

        tasks = {}
        for name in ends:
            tasks[name] = asyncio.create_task(one(name))
            await asyncio.sleep(0)
        assert (order, slots.waiting) == (["a1", "a2", "b1"], 3)
        for name in ("a1", "a2", "b1", "c1", "a3", "b2"):
            ends[name].set()
            await tasks[name]
            await asyncio.sleep(0)
        assert slots.in_use == slots.waiting == 0
        return order

    assert run(work)[3:] == ["c1", "a3", "b2"]


def test_who_gives_up_waiting_leaves_the_slot_to_others() -> None:
    async def work(_gate: Gate) -> None:
        slots, end = LoginSlots(at_once=1, of_address=1), asyncio.Event()

        async def one(address: str) -> None:
            async with slots.of(address):
                await end.wait()

        first, gone, last = (asyncio.create_task(one(name)) for name in "abc")
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert slots.waiting == 1
        late = asyncio.create_task(one("d"))
        await asyncio.sleep(0)
        end.set()
        await first
        late.cancel()  # as its turn may come
        await asyncio.gather(last, late, return_exceptions=True)
        assert slots.in_use == slots.waiting == 0

    run(work)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("", ""),
        ("no address", "no address"),
    ],
)
def test_what_stands_for_a_client(host: str, address: str) -> None:
    assert address_of(host) == address
