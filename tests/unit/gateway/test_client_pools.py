"""Clients per principal: shared, bounded, checked again, closed when idle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_gateway.app.client_pools import ClientPools
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.app.login import Login, password_login
from unit.gateway.gateways import PASSWORD, FakeConnector

ALICE, BOB = password_login("alice", PASSWORD), password_login("bob", PASSWORD)


class Pools:
    """Pools with their doubles."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.connector = FakeConnector()
        self.pools = ClientPools(self.connector, self.clock, SeededEntropy(), **options)

    async def ask(self, login: Login) -> Any:
        """Log in for a moment."""
        async with self.pools.lease(login) as clients:
            assert self.pools.of(login) is clients
            return clients


def run(work: Callable[[Pools], Awaitable[Any]], **options: Any) -> Any:
    async def body() -> Any:
        return await work(Pools(**options))

    return asyncio.run(body())


def test_one_login_has_one_set_of_clients() -> None:
    async def work(pools: Pools) -> None:
        first = await pools.ask(ALICE)
        assert await pools.ask(ALICE) is first
        assert await pools.ask(BOB) is not first
        assert [c.login.name for c in pools.connector.opened] == ["alice", "bob"]

    run(work)


def test_requests_that_come_at_once_log_in_once() -> None:
    async def work(pools: Pools) -> None:
        await asyncio.gather(*(pools.ask(ALICE) for _ in range(20)))
        assert len(pools.connector.opened) == 1

    run(work)


def test_another_password_is_another_login() -> None:
    async def work(pools: Pools) -> None:
        await pools.ask(ALICE)
        with pytest.raises(GatewayError) as refused:
            await pools.ask(password_login("alice", "guess"))
        assert refused.value.status == 401
        with pytest.raises(GatewayError):
            pools.pools.of(password_login("alice", "guess"))

    run(work)


def test_a_password_is_checked_again_after_five_minutes() -> None:
    async def work(pools: Pools) -> None:
        clients = await pools.ask(ALICE)
        pools.clock.advance(300_000)
        assert await pools.ask(ALICE) is clients
        assert pools.connector.checks == 1
        pools.connector.password = "changed"
        pools.clock.advance(300_000)
        with pytest.raises(GatewayError) as refused:
            await pools.ask(ALICE)
        assert refused.value.status == 401
        assert not clients.is_open

    run(work)


def test_idle_clients_are_closed_and_busy_ones_are_not() -> None:
    async def work(pools: Pools) -> None:
        idle = await pools.ask(ALICE)
        async with pools.pools.lease(BOB) as busy:
            pools.clock.advance(299_000)
            await pools.pools.close_idle()
            assert idle.is_open
            pools.clock.advance(1_000)
            await pools.pools.close_idle()
            assert [idle.is_open, busy.is_open] == [False, True]
        await pools.pools.close()
        assert not busy.is_open

    run(work)


def test_the_number_of_principals_is_bounded() -> None:
    async def work(pools: Pools) -> None:
        first = await pools.ask(ALICE)
        carol = password_login("carol", PASSWORD)
        async with pools.pools.lease(BOB), pools.pools.lease(carol):
            assert not first.is_open
            with pytest.raises(GatewayError) as full:
                await pools.ask(ALICE)
            assert full.value.status == 429

    run(work, principals_max=2)
