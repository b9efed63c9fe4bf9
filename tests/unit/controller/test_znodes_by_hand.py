"""Topics and configs that tools wrote into ZooKeeper: invalid ones affect nothing else."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from headwater.errors import ErrorCode
from headwater.ids import id_text
from headwater.ports.metadata_store import Create, Delete, Operation, Set
from headwater_broker.controller.events import (
    AlterConfigs,
    ConfigEdit,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    ResourceKind,
)
from headwater_broker.controller.zk.reader import read_found_topics
from headwater_broker.metadata import znodes
from unit.controller.brokers_in_memory import Cluster, until
from unit.controller.machine_world import World
from unit.controller.test_controller import create, leader
from unit.controller.test_store_requests import is_gone, play, until_gone

TIERED = {"remote.storage.enable": "true"}


def put(world: World, *operations: Operation) -> None:
    world.run(world.store.multi(list(operations)))


def assignment(*replicas: int, topic_id: UUID = znodes.NO_DIRECTORY) -> bytes:
    return znodes.TopicAssignment(topic_id=topic_id, partitions={0: replicas}).encode()


def overrides(**configs: str) -> bytes:
    return znodes.encode_overrides({k.replace("_", "."): v for k, v in configs.items()})


def find(world: World, *names: str) -> list[str]:
    """Have the controller read new topics; its log lines about them."""
    said: list[str] = []
    owners = world.machine.state.topic_id_owners()
    world.handle(world.run(read_found_topics(world.store, names, said.append, owners)))
    return said


@pytest.mark.parametrize(
    ("data", "left"),
    [
        (b"{oops", {}),
        (b'{"version":1,"config":[]}', {}),
        (overrides(min_insync_replicas="two"), {}),
        (overrides(no_such="1", retention_ms="5"), {"retention.ms": "5"}),
    ],
)
def test_a_bad_config_is_left_out_by_the_next_controller(
    world: World, data: bytes, left: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    world.create("t", (1, 2))
    put(world, Set(znodes.topic_config_path("t"), data))
    world.fail_over()
    assert world.machine.state.topics["t"].configs == left
    assert len(caplog.records) == 1 and "/config/topics/t" in caplog.text
    world.down(1)
    assert world.partition("t").leader == 2, "elections go on"
    edit = ConfigEdit(ResourceKind.TOPIC, "t", False, (("segment.bytes", 0, "9999"),))
    [result] = world.ask(lambda token: AlterConfigs(token, (edit,), False))
    assert result.error is ErrorCode.NONE
    caplog.clear()
    world.fail_over()
    assert world.machine.state.topics["t"].configs == {**left, "segment.bytes": "9999"}
    assert not caplog.records, "the change has mended the node"


@pytest.mark.parametrize("name", ["", "2"])
def test_a_bad_config_of_brokers_is_left_out_by_the_next_controller(
    world: World, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.create("t", (1, 2))
    put(world, Create(znodes.broker_config_path(name), b"{oops"))
    put(world, Create(znodes.broker_config_path("3"), overrides(min_insync_replicas="\u00b2")))
    world.fail_over()
    assert world.machine.state.broker_configs[name] == {}
    assert len(caplog.records) == 1 and "/config/brokers/" in caplog.text
    world.down(1)
    assert world.partition("t").leader == 2


BAD_TOPICS = [
    ("t", b"{oops", "not JSON"),
    ("t", b"{}", "not an assignment"),
    ("t", assignment(1, 1), "duplicates"),
    ("t", assignment(), "empty"),
    ("t", assignment(-1), "negative"),
    ("t", b'{"version":3,"partitions":{}}', "without gaps"),
    ("t", b'{"version":3,"partitions":{"1":[1]}}', "without gaps"),
    ("t", b'{"version":3,"partitions":{"0":[1]},"adding_replicas":{"0":[2]}}', "lacks some"),
    ("t", b'{"version":3,"partitions":{"0":[1]},"removing_replicas":{"0":[1]}}', "all removed"),
    ("t", b'{"version":3,"partitions":{"0":[1]},"adding_replicas":{"7":[]}}', "unknown"),
    ("a b", assignment(1), "only ASCII"),
]


@pytest.mark.parametrize(("name", "data", "words"), BAD_TOPICS)
def test_a_bad_topic_is_left_alone(
    world: World, name: str, data: bytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.create("good", (1, 2))
    put(world, Create(znodes.topic_path(name), data))
    [line] = find(world, name)
    assert words in line and znodes.topic_path(name) in line
    assert set(world.machine.state.topics) == {"good"}
    world.fail_over()
    assert len(caplog.records) == 1 and words in caplog.text
    assert set(world.machine.state.topics) == {"good"}
    world.down(1)
    assert world.partition("good").leader == 2
    if name == "t":
        refused = world.create("t", (2,))
        assert refused.error is ErrorCode.TOPIC_ALREADY_EXISTS
        assert words in (refused.message or "")


def test_a_newer_versions_topic_is_no_bad_topic(world: World) -> None:
    """A broker that cannot read it must not be the controller."""
    put(world, Create(znodes.topic_path("t"), b'{"version":99,"partitions":{"0":[1]}}'))
    with pytest.raises(znodes.NewerVersionError):
        find(world, "t")
    with pytest.raises(znodes.NewerVersionError):
        world.fail_over()


def test_a_topic_whose_partition_has_a_bad_record_is_left_alone_with_its_data(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.create("t", (1, 2))
    good = world.run(world.store.get(znodes.state_path("t", 0))).data
    put(world, Set(znodes.state_path("t", 0), b"{oops"))
    world.fail_over()
    assert world.machine.state.topics == {} and "/partitions/0/state" in caplog.text
    assert not [s for u in world.updates for s in u.stops if s.delete]
    put(world, Set(znodes.state_path("t", 0), good))
    world.fail_over()
    assert world.partition("t").leader == 1


def test_a_topic_found_with_a_bad_config_is_taken_without_it(world: World) -> None:
    put(world, Create(znodes.topic_path("t"), assignment(2, 1)))
    data = overrides(min_insync_replicas="two", retention_ms="5")
    put(world, Create(znodes.topic_config_path("t"), data))
    [line] = find(world, "t")
    assert "min.insync.replicas" in line
    assert world.partition("t").leader == 2
    assert world.machine.state.topics["t"].configs == {"retention.ms": "5"}


def test_tiering_taken_away_by_hand_stays_on_at_the_next_controller(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.create("born", (1,), remote_storage_enable="true")
    world.create("turned", (1,))
    edit = ConfigEdit(ResourceKind.TOPIC, "turned", False, (("remote.storage.enable", 0, "true"),))
    world.ask(lambda token: AlterConfigs(token, (edit,), False))
    put(world, Create(znodes.topic_path("found"), assignment(1)))
    put(world, Create(znodes.topic_config_path("found"), znodes.encode_overrides(TIERED)))
    find(world, "found")
    for name in ("born", "turned", "found"):
        put(world, Set(znodes.topic_config_path(name), overrides()))
    world.fail_over()
    assert [t.configs for t in world.machine.state.topics.values()] == [TIERED] * 3
    assert len([r for r in caplog.records if "cannot be switched off" in r.message]) == 3


def test_tiering_missing_in_the_topic_node_is_added_by_the_next_controller(world: World) -> None:
    topic_id = world.create("t", (1,), remote_storage_enable="true").topic_id
    old = znodes.TopicAssignment(topic_id=topic_id, partitions={0: (1,)})
    put(world, Set(znodes.topic_path("t"), old.encode()))
    world.fail_over()
    put(world, Set(znodes.topic_config_path("t"), overrides()))
    world.fail_over()
    assert world.machine.state.topics["t"].configs == TIERED


@pytest.mark.parametrize("bad", [b"{oops", overrides(retention_ms="soon"), overrides()])
def test_a_bad_edit_is_taken_back_by_the_controller_that_sees_it(bad: bytes) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1, 2, 3))
        path, note = znodes.topic_config_path("t"), f"{znodes.CONFIG_CHANGES}/config_change_"
        good = znodes.encode_overrides({**TIERED, "retention.ms": "5"})
        for number, data in enumerate((good, bad)):
            await one.store.multi([Set(path, data), Create(f"{note}{number}", b'"t"')])
            await until_gone(one, f"{note}{number}")
        assert (await one.store.get(path)).data == good
        assert one.view.topics["t"].configs == {**TIERED, "retention.ms": "5"}
        assert max(b.controller.controller_epoch for b in cluster.all()) == 1, "one term"

    play(story)


def test_a_bad_topic_in_the_store_deposes_nobody_and_is_used_once_it_is_mended() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        epoch = max(b.controller.controller_epoch for b in cluster.all())
        await one.store.multi([Create(znodes.topic_path("t"), b"{oops")])
        assert await create(one, "u", (1, 2, 3)) is ErrorCode.NONE
        assert await create(one, "t", (1,)) is ErrorCode.TOPIC_ALREADY_EXISTS
        assert max(b.controller.controller_epoch for b in cluster.all()) == epoch
        await cluster.kill(cluster.controller().broker_id)
        left = cluster.all()[0]
        await until(lambda: any(b.controller.is_active for b in cluster.all()))
        await left.store.multi([Set(znodes.topic_path("t"), assignment(left.broker_id))])
        await until(lambda: leader(left, "t") == left.broker_id)
        assert not await is_gone(left, znodes.state_path("t", 0))

    play(story)


SAME = UUID(int=77)


def test_of_two_topics_with_one_id_made_by_hand_one_is_taken(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("b", "a"):
        put(world, Create(znodes.topic_path(name), assignment(1, 2, topic_id=SAME)))
    [line] = find(world, "a", "b")
    assert znodes.topic_path("b") in line and id_text(SAME) in line
    for _ in range(2):
        assert set(world.machine.state.topics) == {"a"}, "it has a record now, the older node none"
        refused = world.create("b", (2,))
        assert refused.error is ErrorCode.TOPIC_ALREADY_EXISTS
        assert "belongs to topic 'a'" in (refused.message or "")
        caplog.clear()
        world.fail_over()
        assert len(caplog.records) == 1 and "is ignored until its node" in caplog.text
    world.down(1)
    assert world.partition("a").leader == 2


def test_of_two_topics_with_one_id_met_by_a_new_controller_the_older_is_taken(
    world: World,
) -> None:
    for name in ("b", "a"):
        put(world, Create(znodes.topic_path(name), assignment(1, 2, topic_id=SAME)))
    for _ in range(2):
        world.fail_over()
        assert set(world.machine.state.topics) == {"b"} and "a" in world.machine.state.unusable
    world.down(1)
    assert world.partition("b").leader == 2


def test_a_copy_of_a_topic_outlives_its_deletion_and_is_used_then(world: World) -> None:
    """Otherwise the new controller would take the copy for the rest of the deletion."""
    topic_id = world.create("t", (1, 2)).topic_id
    put(world, Create(znodes.topic_path("copy"), assignment(3, topic_id=topic_id)))
    find(world, "copy")
    world.down(2)
    world.ask(lambda token: DeleteTopics(token, (("t", znodes.NO_DIRECTORY),)))
    assert find(world, "copy"), "broker 2 has not confirmed"
    world.fail_over()
    assert world.machine.state.topics == {} and "copy" in world.machine.state.unusable
    world.up(2)
    assert not find(world, "copy")
    world.fail_over()
    assert world.partition("copy").leader == 3


def test_two_topics_with_one_id_depose_the_controller_once_when_the_first_goes() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        for name in ("a", "b"):
            await one.store.multi(
                [Create(znodes.topic_path(name), assignment(1, 2, 3, topic_id=SAME))]
            )
        await until(lambda: leader(one, "a") == 1)
        assert await create(one, "u", (1, 2, 3)) is ErrorCode.NONE
        await cluster.kill(cluster.controller().broker_id)
        await until(lambda: any(b.controller.is_active for b in cluster.all()))
        left = cluster.all()[0]
        assert await create(left, "v", (left.broker_id,)) is ErrorCode.NONE
        assert max(b.controller.controller_epoch for b in cluster.all()) == 2
        assert "b" not in left.view.topics

    play(story)


def registration(**changed: object) -> bytes:
    row = {"cluster_id": "c", "endpoints": [], "control_address": "a", "directory_ids": []}
    return json.dumps({**row, "boot_id": "b", "clean_shutdown_epoch": -1, **changed}).encode()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("7", b"{oops"),
        ("7", b"{}"),
        ("7", b""),
        ("7", b'["x"]'),
        ("7", registration()),
        ("7", registration(format=1, endpoints=[5])),
        ("7", registration(format=1, endpoints=["P://h:99999999999"])),
        ("7", registration(format=1, directory_ids=[7])),
        ("\u00b2", registration(format=1)),
        ("02", registration(format=1)),
        ("99999999999", registration(format=1)),
        ("2147483648", registration(format=1)),
        ("x", b""),
    ],
)
def test_an_invalid_registration_does_not_depose_the_controller(
    name: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        path = f"{znodes.BROKERS}/{name}"
        await one.store.multi([Create(path, data)])
        assert await create(one, "t", (1, 2, 3)) is ErrorCode.NONE
        assert max(b.controller.controller_epoch for b in cluster.all()) == 1
        await cluster.kill(cluster.controller().broker_id)
        await until(lambda: any(b.controller.is_active for b in cluster.all()))
        left = cluster.all()[0]
        await until(lambda: leader(left, "t") in cluster.brokers)
        assert await create(left, "u", (left.broker_id,)) is ErrorCode.NONE
        assert max(b.controller.controller_epoch for b in cluster.all()) == 2
        assert set(left.view.brokers) == set(cluster.brokers)

    play(story)
    told = [r for r in caplog.records if "a registration is ignored" in r.message]
    assert len(told) == 2 and all(f"{znodes.BROKERS}/{name}:" in r.message for r in told)


def test_a_newer_versions_broker_is_no_bad_broker(world: World) -> None:
    put(world, Create(znodes.broker_path(7), b'{"version":99}'))
    with pytest.raises(znodes.NewerVersionError):
        world.fail_over()


@pytest.mark.parametrize("data", [b"", b"{oops", overrides(remote_storage_enable="true")])
def test_a_config_without_a_topic_is_written_over_when_the_topic_is_made(
    world: World, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    put(world, Create(znodes.topic_config_path("t"), data))
    put(world, Create(znodes.topic_config_path("left"), data))
    world.fail_over()
    assert world.machine.state.stray_configs == {"t", "left"}
    spec = NewTopic(name="t", assignments={0: (1,)})
    [planned] = world.ask(lambda token: CreateTopics(token, (spec,), True))
    assert planned.error is ErrorCode.NONE and "t" in world.machine.state.stray_configs
    for _ in range(2):
        assert world.create("t", (1,), retention_ms="5").error is ErrorCode.NONE
        assert world.machine.state.topics["t"].configs == {"retention.ms": "5"}
        assert world.machine.state.stray_configs == {"left"}
        node = world.run(world.store.get(znodes.topic_config_path("t")))
        assert node.data == overrides(retention_ms="5")
        world.ask(lambda token: DeleteTopics(token, (("t", znodes.NO_DIRECTORY),)))
    assert world.run(world.store.children(znodes.TOPIC_CONFIGS)) == ["left"]
    assert not caplog.records


def test_a_config_of_an_unusable_topic_is_written_over_once_that_is_gone(world: World) -> None:
    put(world, Create(znodes.topic_path("t"), b"{oops"))
    put(world, Create(znodes.topic_config_path("t"), b"{oops"))
    world.fail_over()
    put(world, Delete(znodes.topic_path("t")))
    find(world)
    assert world.create("t", (1,)).error is ErrorCode.NONE
