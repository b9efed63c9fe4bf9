"""A broker's registration after its ZooKeeper session has ended."""

from __future__ import annotations

import asyncio

import pytest

from headwater.errors import UsageError
from headwater.ports.metadata_store import Create, Delete, SessionExpiredError, Set
from headwater.testing.memory_store import MemoryTree
from headwater.wire.control import BrokerEndpoint
from headwater_broker.metadata import znodes
from headwater_broker.metadata.registration import RegistrationManager, ensure_cluster_id
from unit.controller.brokers_in_memory import CountingEntropy, FakeClock, until


def test_a_broker_without_a_session_for_a_moment_registers_again() -> None:
    """A registration names its session, and right after an expiry there is none. After ZooKeeper
    had been down for longer than a session, no broker registered again."""

    async def story() -> None:
        store = MemoryTree().connect()
        cluster_id = await ensure_cluster_id(store, CountingEntropy(), None)
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

        registration = RegistrationManager(store, FakeClock(), describe, session_timeout_ms=1000)
        first = await registration.start()
        refusals = 2
        store.expire()
        await until(lambda: registration.broker_epoch not in (-1, first))
        node = await store.get(znodes.broker_path(7))
        assert node.czxid == registration.broker_epoch
        assert node.ephemeral_owner == store.session().session_id
        await registration.stop()

    asyncio.run(story())


def described(host: str, cluster_id: str) -> znodes.BrokerRegistration:
    return znodes.BrokerRegistration(
        broker_id=7,
        cluster_id=cluster_id,
        endpoints=(BrokerEndpoint(host=host, port=9000),),
        control_address=f"{host}:9100",
    )


def test_a_store_that_lost_its_nodes_is_joined_again_once_it_is_mended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker would go on unregistered until its restart."""

    async def story() -> None:
        store = MemoryTree().connect()
        cluster_id = await ensure_cluster_id(store, CountingEntropy(), None)
        registration = RegistrationManager(
            store,
            FakeClock(),
            lambda: described("h", cluster_id),
            session_timeout_ms=1000,
            refused_delay_s=0.01,
        )
        first = await registration.start()
        await store.multi([Delete(znodes.CLUSTER_ID)])
        store.expire()
        await until(lambda: caplog.text.count("until it is mended") > 1)
        assert registration.broker_epoch == -1
        await store.multi([Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))])
        await until(lambda: registration.broker_epoch > first)
        await registration.stop()

    asyncio.run(story())


def test_a_store_of_another_cluster_is_not_joined(caplog: pytest.LogCaptureFixture) -> None:
    """Its controller would have the broker stop all its replicas."""

    async def story() -> None:
        store = MemoryTree().connect()
        own = await ensure_cluster_id(store, CountingEntropy(), None)
        registration = RegistrationManager(
            store,
            FakeClock(),
            lambda: described("h", own),
            session_timeout_ms=1000,
            refused_delay_s=0.01,
        )
        first = await registration.start()
        await store.multi([Set(znodes.CLUSTER_ID, znodes.encode_cluster_id("theirs"))])
        store.expire()
        text = f"now belongs to cluster theirs, this broker to {own}"
        await until(lambda: caplog.text.count(text) > 1)
        assert registration.broker_epoch == -1
        assert await store.children(znodes.BROKERS) == []
        await store.multi([Set(znodes.CLUSTER_ID, znodes.encode_cluster_id(own))])
        await until(lambda: registration.broker_epoch > first)
        await registration.stop()

    asyncio.run(story())


def test_an_id_that_a_live_broker_holds_is_refused() -> None:
    async def story() -> None:
        tree = MemoryTree()
        one, other = tree.connect(), tree.connect()
        cluster_id = await ensure_cluster_id(one, CountingEntropy(), None)
        first = RegistrationManager(
            one, FakeClock(), lambda: described("first", cluster_id), session_timeout_ms=1000
        )
        await first.start()
        second = RegistrationManager(
            other, HastyClock(), lambda: described("second", cluster_id), session_timeout_ms=1000
        )
        with pytest.raises(UsageError, match=r"broker id 7 .*first:9100"):
            await second.start()
        await first.stop()

    asyncio.run(story())


def test_what_an_own_former_session_left_is_waited_for() -> None:
    async def story() -> None:
        tree = MemoryTree()
        former, now = tree.connect(), tree.connect()
        cluster_id = await ensure_cluster_id(now, CountingEntropy(), None)
        await former.multi(
            [Create(znodes.broker_path(7), described("h", cluster_id).encode(), ephemeral=True)]
        )
        registration = RegistrationManager(
            now, FakeClock(), lambda: described("h", cluster_id), session_timeout_ms=1000
        )
        starting = asyncio.create_task(registration.start())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not starting.done()
        former.expire()
        epoch = await asyncio.wait_for(starting, 20)
        node = await now.get(znodes.broker_path(7))
        assert (node.czxid, node.ephemeral_owner) == (epoch, now.session().session_id)
        await registration.stop()

    asyncio.run(story())


class HastyClock(FakeClock):
    """Every reading is minutes after the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks * 300.0


def test_a_store_that_is_away_is_no_other_broker(caplog: pytest.LogCaptureFixture) -> None:
    """However long the store is unreachable, the broker registers as soon as it is back."""

    async def story() -> None:
        store, clock = MemoryTree().connect(), HastyClock()
        cluster_id = await ensure_cluster_id(store, CountingEntropy(), None)

        def describe() -> znodes.BrokerRegistration:
            return znodes.BrokerRegistration(
                broker_id=7,
                cluster_id=cluster_id,
                endpoints=(BrokerEndpoint(host="host", port=9000),),
                control_address="host:9100",
            )

        registration = RegistrationManager(store, clock, describe, session_timeout_ms=1000)
        first = await registration.start()
        store.expire()
        store.suspend()
        looks = clock.looks
        await until(lambda: clock.looks > looks + 2)
        store.resume()
        await until(lambda: registration.broker_epoch not in (-1, first))
        await registration.stop()

    asyncio.run(story())
    assert "another broker" not in caplog.text
