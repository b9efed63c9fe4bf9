"""A broker's registration over the ends of its metadata session."""

from __future__ import annotations

import asyncio

import pytest

from headwater.ports.metadata_store import SessionExpiredError
from headwater.testing.memory_store import MemoryTree
from headwater.wire.control import BrokerEndpoint
from headwater_broker.cluster import znodes
from headwater_broker.cluster.membership import Membership, ensure_cluster
from unit.cluster.brokers_in_memory import CountingEntropy, FakeClock, until


def test_a_broker_without_a_session_for_a_moment_registers_again() -> None:
    """A registration names its session: right after an expiry describing it raises (seen with a
    ZooKeeper that was away for longer than the session: no broker ever came back)."""

    async def story() -> None:
        store = MemoryTree().connect()
        cluster_id = await ensure_cluster(store, CountingEntropy(), None)
        refusals = 0

        def describe() -> znodes.BrokerRegistration:
            nonlocal refusals
            if refusals:
                refusals -= 1
                raise SessionExpiredError("there is no session")
            return znodes.BrokerRegistration(
                broker_id=7,
                cluster_id=cluster_id,
                endpoints=(BrokerEndpoint(host="host", port=9000),),
                control_address="host:9100",
                directory_ids=(),
                session_password=store.session().password.hex(),
            )

        membership = Membership(store, FakeClock(), describe, session_timeout_ms=1000)
        first = await membership.start()
        refusals = 2
        store.expire()
        await until(lambda: membership.broker_epoch not in (-1, first))
        node = await store.get(znodes.broker_path(7))
        assert node.czxid == membership.broker_epoch
        assert node.ephemeral_owner == store.session().session_id
        await membership.stop()

    asyncio.run(story())


class HastyClock(FakeClock):
    """Every look is minutes after the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks * 300.0


def test_a_store_that_is_away_is_no_other_broker(caplog: pytest.LogCaptureFixture) -> None:
    """However long it is away: the broker registers as soon as it is back."""

    async def story() -> None:
        store, clock = MemoryTree().connect(), HastyClock()
        cluster_id = await ensure_cluster(store, CountingEntropy(), None)

        def describe() -> znodes.BrokerRegistration:
            return znodes.BrokerRegistration(
                broker_id=7,
                cluster_id=cluster_id,
                endpoints=(BrokerEndpoint(host="host", port=9000),),
                control_address="host:9100",
            )

        membership = Membership(store, clock, describe, session_timeout_ms=1000)
        first = await membership.start()
        store.expire()
        store.suspend()
        looks = clock.looks
        await until(lambda: clock.looks > looks + 2)
        store.resume()
        await until(lambda: membership.broker_epoch not in (-1, first))
        await membership.stop()

    asyncio.run(story())
    assert "another broker" not in caplog.text
