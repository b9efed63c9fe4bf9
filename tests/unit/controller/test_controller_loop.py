"""Controller elections and resignations: nodes of old sessions, session expiry, the timer."""

from __future__ import annotations

import asyncio

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.metadata_store import Create, Delete, NoNodeError
from headwater.testing.memory_store import MemoryTree
from headwater_broker.controller import controller_election
from headwater_broker.controller.broker_channel import BrokerChannel
from headwater_broker.controller.events import (
    AutoPreferredLeaderElection,
    CreateTopics,
    NewTopic,
)
from headwater_broker.controller.state import ControllerConfig
from headwater_broker.controller.timings import BalanceSchedule, ControllerTimings
from headwater_broker.controller.zk import writer
from headwater_broker.metadata import znodes
from headwater_broker.metadata.registration import ensure_cluster_id
from unit.controller.brokers_in_memory import Cluster, CountingEntropy, FakeClock, until
from unit.controller.machine_world import World
from unit.controller.test_controller import create, leader, rejoin
from unit.controller.test_store_requests import led_elsewhere, play

CLAIM = znodes.ControllerClaim(1, 0, "broker1:1").encode()


def test_a_claim_of_ones_own_id_under_another_session_is_waited_for() -> None:
    """The node belongs to the broker's last session and goes with it: it must not be trusted."""

    async def story(cluster: Cluster) -> None:
        before = cluster.tree.connect()
        await before.multi([Create(znodes.CONTROLLER, CLAIM, ephemeral=True)])
        broker = await cluster.add(1)
        assert (
            await controller_election.elect(broker.store, 1, broker.address, FakeClock(), "c")
            is None
        )
        await asyncio.sleep(0.3)
        assert not broker.controller.is_active and broker.controller.controller_epoch == -1
        assert (await broker.store.get(znodes.CONTROLLER)).data == CLAIM
        await before.close()
        await until(lambda: broker.controller.is_active)
        owner = (await broker.store.get(znodes.CONTROLLER)).ephemeral_owner
        assert owner == broker.store.session().session_id

    play(story, brokers=0)


def test_no_controller_is_elected_over_the_brokers_of_another_cluster() -> None:
    async def story() -> None:
        store = MemoryTree().connect()
        await ensure_cluster_id(store, CountingEntropy(), "theirs")
        with pytest.raises(znodes.ZnodeError, match=r"now belongs to cluster theirs, .* to ours"):
            await controller_election.elect(store, 1, "a:1", FakeClock(), "ours")
        with pytest.raises(NoNodeError):
            await store.get(znodes.CONTROLLER)
        assert await controller_election.elect(store, 1, "a:1", FakeClock(), "theirs") is not None

    asyncio.run(story())


@pytest.mark.parametrize("lost", [False, True])
def test_a_claim_whose_reply_was_lost_counts(lost: bool) -> None:
    async def story() -> None:
        tree = MemoryTree()
        store = tree.connect()
        if lost:
            store.lose_next_reply()
        controller_loop = await controller_election.elect(store, 1, "a:1", FakeClock(), "c")
        assert controller_loop is not None and controller_loop.controller_epoch == 1
        assert await controller_election.is_controller(store)
        assert await controller_election.elect(tree.connect(), 2, "b:1", FakeClock(), "c") is None

    asyncio.run(story())


@pytest.mark.parametrize("brokers", [1, 3])
def test_an_expired_session_deposes_the_controller_and_a_disconnect_does_not(brokers: int) -> None:
    async def story(cluster: Cluster) -> None:
        active = cluster.controller()
        first = active.controller.controller_loop
        epoch = active.controller.controller_epoch
        active.store.suspend()
        await asyncio.sleep(0.1)
        active.store.resume()
        assert await create(active, "t", tuple(cluster.brokers)) is ErrorCode.NONE
        assert active.controller.controller_loop is first
        active.store.expire()
        await until(lambda: active.controller.controller_loop is not first)
        await until(lambda: sum(b.controller.is_active for b in cluster.all()) == 1)
        now = cluster.controller()
        assert now.controller.controller_epoch > epoch
        owner = (await now.store.get(znodes.CONTROLLER)).ephemeral_owner
        assert owner == now.store.session().session_id
        assert await create(active, "u", tuple(cluster.brokers)) is ErrorCode.NONE

    play(story, brokers=brokers)


def test_a_second_epoch_of_the_same_process_starts_with_new_state() -> None:
    def channels() -> list[asyncio.Task[None]]:
        return [t for t in asyncio.all_tasks() if t.get_name() == "controller-to-broker-1"]

    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1,))
        first = one.controller.controller_loop
        assert first is not None and first.machine is not None
        first.machine.state.shutting_down.add(1)  # state of the first epoch only
        await until(lambda: len(channels()) == 1)
        (channel,) = channels()
        await one.store.multi([Delete(znodes.CONTROLLER)])
        await until(
            lambda: one.controller.is_active and one.controller.controller_loop is not first
        )
        second = one.controller.controller_loop
        assert second is not None and second.machine is not None
        assert second.machine.state is not first.machine.state
        assert second.machine.state.shutting_down == set()
        await until(lambda: channel.done() and len(channels()) == 1)
        assert await create(one, "u", (1,)) is ErrorCode.NONE
        assert leader(one, "u") == 1

    play(story, brokers=1)


def test_a_write_too_large_for_the_store_deposes_this_controller_and_not_the_next(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """ZooKeeper would close the connection each time it is sent."""

    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        first = one.controller.controller_loop
        assert first is not None
        large = (NewTopic(name="large", num_partitions=9, replication_factor=1),)
        with monkeypatch.context() as smaller:
            smaller.setattr(writer, "REQUEST_BYTES_MAX", 2000)
            with pytest.raises(KafkaError) as refused:
                await first.ask(lambda token: CreateTopics(token, large, False))
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        await until(
            lambda: one.controller.is_active and one.controller.controller_loop is not first
        )
        assert "a write of" in caplog.text
        assert await create(one, "t", (1,)) is ErrorCode.NONE
        assert "large" not in one.view.topics

    play(story, brokers=1)


def test_durable_decisions_are_answered_when_the_controller_resigns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client had to repeat its request, and the next controller answered that the topic
    exists."""

    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        never = asyncio.get_running_loop().create_future()
        with monkeypatch.context() as deaf:
            deaf.setattr(BrokerChannel, "delivered", lambda _channel: never)
            asking = asyncio.create_task(create(one, "t", (1,)))
            await until(lambda: leader(one, "t") == 1)
            assert not asking.done()
            await one.store.multi([Delete(znodes.CONTROLLER)])
            assert await asking is ErrorCode.NONE

    play(story, brokers=1)


def test_a_deposed_controller_refuses_requests_at_once() -> None:
    """A request that came before the service had noticed the end would wait for its timeout."""

    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        ended = one.controller.controller_loop
        assert ended is not None
        await one.store.multi([Delete(znodes.CONTROLLER)])
        await until(
            lambda: one.controller.is_active and one.controller.controller_loop is not ended
        )
        with pytest.raises(KafkaError) as refused:
            await asyncio.wait_for(ended.ask(lambda token: CreateTopics(token, (), False)), 1)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER

    play(story, brokers=1)


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_config_without_a_topic_that_appears_deposes_the_controller_once(brokers: int) -> None:
    """The client repeats its request, and the next controller knows the node."""

    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await one.store.multi([Create(znodes.topic_config_path(t), b"{}") for t in "tu"])
        controller_loop = cluster.controller().controller.controller_loop
        assert controller_loop is not None
        spec = NewTopic(name="t", assignments={0: (1,)})
        with pytest.raises(KafkaError) as refused:
            await controller_loop.ask(lambda token: CreateTopics(token, (spec,), False))
        assert refused.value.code is ErrorCode.NOT_CONTROLLER and refused.value.code.retriable
        for name in "tuv":
            assert await create(one, name, (1,)) is ErrorCode.NONE
        assert max(b.controller.controller_epoch for b in cluster.all()) == 2, "one term ended"
        assert (await one.store.get(znodes.topic_config_path("t"))).version == 1

    play(story, brokers=brokers)


def test_a_config_without_a_topic_that_is_removed_deposes_the_controller_once() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        path = znodes.topic_config_path("t")
        await one.store.multi([Create(path), Delete(znodes.CONTROLLER)])
        await until(lambda: one.controller.is_active and one.controller.controller_epoch == 2)
        await one.store.multi([Delete(path)])
        for name in "tu":
            assert await create(one, name, (1,)) is ErrorCode.NONE
        assert one.controller.controller_epoch == 3

    play(story, brokers=1)


def test_a_config_that_a_vanished_topic_left_behind_is_written_over() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        assert await create(one, "t", (1,)) is ErrorCode.NONE
        state, folder = znodes.state_path("t", 0), znodes.partition_path("t", 0)
        paths = (state, folder, znodes.partitions_path("t"), znodes.topic_path("t"))
        first = one.controller.controller_loop
        await one.store.multi([Delete(path) for path in paths])
        await until(
            lambda: one.controller.is_active and one.controller.controller_loop is not first
        )
        assert await create(one, "t", (1,)) is ErrorCode.NONE
        assert one.controller.controller_epoch == 2

    play(story, brokers=1)


def test_leaders_are_balanced_five_seconds_into_the_epoch_and_then_by_the_interval() -> None:
    schedule = BalanceSchedule(100.0, ControllerTimings().first_balance_s)
    times = (104.9, 105.0, 105.1, 164.9, 165.0, 224.9, 225.0)
    assert [s for s in times if schedule.is_due(s, interval_ms=60_000)] == [105.0, 165.0, 225.0]


def test_a_leader_comes_home_by_itself() -> None:
    async def story(cluster: Cluster) -> None:
        await create(cluster.brokers[1], "t", (2, 1, 3))
        await cluster.kill(2)
        await until(lambda: leader(cluster.all()[0], "t") == 1)
        await cluster.add(2)
        await until(lambda: all(len(b.view.brokers) == 3 for b in cluster.all()))
        await rejoin(cluster, "t", 1)
        await until(lambda: leader(cluster.all()[0], "t") == 2)

    play(
        story,
        config=ControllerConfig(leader_imbalance_check_interval_ms=20),
        timings=ControllerTimings(tick_s=0.01, first_balance_s=0.02),
    )


@pytest.mark.parametrize("enabled", [True, False])
def test_leaders_stay_where_they_are_when_balancing_is_off(enabled: bool) -> None:
    world: World = led_elsewhere(4, 2)
    world.machine.state.config = ControllerConfig(auto_leader_rebalance_enable=enabled)
    world.handle(AutoPreferredLeaderElection())
    assert [world.partition("t", i).leader for i in (0, 1)] == ([1, 1] if enabled else [2, 2])
    world.close()
