"""Invalid data in Headwater's own nodes: the controller goes on, and logs what to mend."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise
from uuid import UUID

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.metadata_store import Create, Delete, Operation, Set
from headwater.wire.control import AllocateProducerIdsReply
from headwater_broker.controller.events import (
    AllocateProducerIds,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    PartitionGrowth,
    Reassign,
    TopicResult,
)
from headwater_broker.metadata import znodes
from unit.controller.brokers_in_memory import Cluster, until
from unit.controller.machine_world import World
from unit.controller.test_controller import create, leader
from unit.controller.test_store_requests import play
from unit.controller.test_znodes_by_hand import find, put

NO_ID = UUID(int=0)
GARBAGE = [b"", b"{oops", b"[]", b"{}", b'{"version":1,"broker_epoch":"x","boot_id":""}']


@pytest.mark.parametrize("data", GARBAGE)
def test_a_last_registration_that_cannot_be_read_counts_as_none(
    world: World, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    world.create("t", (1, 2))
    put(world, Set(znodes.last_registration_path(2), data))
    world.fail_over()
    assert len(caplog.records) == 1 and "/headwater/lives/2" in caplog.text
    assert (world.partition("t").leader, world.partition("t").isr) == (1, (1, 2))
    world.down(1)
    assert world.partition("t").leader == 2
    world.up(2)
    caplog.clear()
    world.fail_over()
    assert not caplog.records, "its next life has mended the node"


@pytest.mark.parametrize("name", ["\u00b2", "07", "x", "99999999999"])
def test_a_last_registration_under_no_broker_id_is_ignored(world: World, name: str) -> None:
    put(world, Create(f"{znodes.LAST_REGISTRATIONS}/{name}", b"{}"))
    world.fail_over()
    assert sorted(world.machine.state.brokers) == [1, 2, 3]


@pytest.mark.parametrize(
    "data",
    [
        *GARBAGE,
        znodes.Deletion("t", UUID(int=6), {0: (1,)}, is_topic_deletion=True).encode(),
        znodes.Deletion("t", UUID(int=5), {0: (2**40,)}, is_topic_deletion=True).encode(),
    ],
)
@pytest.mark.parametrize("how", ["moved", "deleted"])
def test_a_pending_deletion_that_cannot_be_read_is_overwritten(
    world: World, data: bytes, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its path is that of the topic's next pending deletion."""
    row = znodes.TopicAssignment(topic_id=UUID(int=5), partitions={0: (1, 2)})
    put(world, Create(znodes.topic_path("t"), row.encode()))
    put(world, Create(znodes.deletion_path(UUID(int=5)), data))
    world.fail_over()
    assert len(caplog.records) == 1 and "/headwater/deletions/" in caplog.text
    assert world.partition("t").leader == 1
    if how == "deleted":
        [result] = world.ask(lambda token: DeleteTopics(token, (("t", NO_ID),)))
        assert result.error is ErrorCode.NONE
    else:
        world.ask(lambda token: Reassign(token, {("t", 0): (1,)}))
        assert world.partition("t").replicas == (1,)
    assert not world.run(world.store.children(znodes.DELETIONS))


def allocate(world: World) -> AllocateProducerIdsReply:
    epoch = world.registered[1].epoch
    found = world.ask(lambda token: AllocateProducerIds(token, 1, epoch))
    assert isinstance(found, AllocateProducerIdsReply)
    return found


@pytest.mark.parametrize(
    "data", [*GARBAGE, znodes.ProducerIdBlock(1, -9, -5).encode(), b'{"version":1,"block_end":"9"}']
)
def test_producer_ids_are_never_given_out_twice(
    world: World, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    given = [allocate(world).start for _ in range(3)]
    for _ in range(2):
        caplog.clear()
        put(world, Set(znodes.PRODUCER_IDS, data))
        world.fail_over()
        assert "/latest_producer_id_block" in caplog.text
        given += [allocate(world).start for _ in range(20)]
    assert all(later - earlier >= 1000 for earlier, later in pairwise(given))
    caplog.clear()
    world.fail_over()
    assert allocate(world).start == given[-1] + 1000
    assert not caplog.records


@pytest.mark.parametrize("data", [b"zz", b"", b"-1", b"1.5", b"99999999999", b"\xff"])
def test_an_invalid_controller_epoch_is_logged_once_and_waited_for(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended the election task on every broker for good."""

    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await one.store.multi([Set(znodes.CONTROLLER_EPOCH, data), Delete(znodes.CONTROLLER)])
        await until(lambda: "/controller_epoch" in caplog.text)
        await asyncio.sleep(0.3)
        told = [r for r in caplog.records if "is not an epoch" in r.getMessage()]
        assert len(told) == 1 and "higher one" in told[0].getMessage()
        await one.store.multi([Set(znodes.CONTROLLER_EPOCH, b"41")])
        await until(lambda: one.controller.is_active)
        assert one.controller.controller_epoch == 42

    play(story, brokers=1)


def test_a_controller_node_created_by_hand_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        made: list[Operation] = [Delete(znodes.CONTROLLER), Create(znodes.CONTROLLER, b"{}")]
        await one.store.multi(made)
        await until(lambda: "was created by hand" in caplog.text)
        with pytest.raises(KafkaError, match="/controller cannot be read"):
            await one.calls.forward(46, 0, b"", timeout_ms=100)
        await one.store.multi([Delete(znodes.CONTROLLER)])
        await until(lambda: one.controller.is_active)

    play(story, brokers=1)


def test_nodes_made_by_hand_below_a_topic_go_with_it() -> None:
    """The deletion failed, and the controller resigned, again and again."""

    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1,))
        controller_loop = one.controller.controller_loop
        strays = (
            znodes.partition_path("t", 7),
            znodes.state_path("t", 7),
            f"{znodes.topic_path('t')}/notes",
            f"{znodes.topic_config_path('t')}/more",
        )
        await one.store.multi([Create(path) for path in strays])
        assert controller_loop is not None
        row = (("t", NO_ID),)
        [result] = await controller_loop.ask(lambda token: DeleteTopics(token, row))
        assert result.error is ErrorCode.NONE
        assert not await one.store.children(znodes.TOPICS)
        assert not await one.store.children(znodes.TOPIC_CONFIGS)
        assert one.controller.controller_loop is controller_loop
        assert await create(one, "t", (1,)) is ErrorCode.NONE
        assert leader(one, "t") == 1

    play(story, brokers=1)


@pytest.mark.parametrize("replica", [2**31, 99_999_999_999])
def test_a_replica_that_is_no_broker_id_spoils_its_topic_only(world: World, replica: int) -> None:
    """A state that cannot be encoded was sent again and again, and brokers got nothing else."""
    row = znodes.TopicAssignment(topic_id=NO_ID, partitions={0: (1, replica)})
    put(world, Create(znodes.topic_path("t"), row.encode()))
    [line] = find(world, "t")
    assert "no broker id" in line and str(replica) in line
    assert not world.machine.state.topics


@pytest.mark.parametrize(
    "record",
    [
        znodes.PartitionRecord(leader=1, leader_epoch=2**31 - 1, isr=(1,), controller_epoch=1),
        znodes.PartitionRecord(leader=1, leader_epoch=-1, isr=(1,), controller_epoch=1),
        znodes.PartitionRecord(leader=2**31, leader_epoch=1, isr=(1,), controller_epoch=1),
        znodes.PartitionRecord(leader=1, leader_epoch=1, isr=(1, 2**31), controller_epoch=1),
    ],
)
def test_a_record_with_numbers_out_of_range_spoils_its_topic_only(
    world: World, record: znodes.PartitionRecord, caplog: pytest.LogCaptureFixture
) -> None:
    world.create("t", (1, 2))
    world.create("good", (1, 2))
    put(world, Set(znodes.state_path("t", 0), record.encode()))
    world.fail_over()
    assert set(world.machine.state.topics) == {"good"}
    assert "numbers out of range" in caplog.text


def test_a_replica_list_edited_by_hand_takes_leader_and_isr_along(world: World) -> None:
    """A leader that is no replica stayed for ever: it got no LeaderAndIsr, and no other one led."""
    world.create("t", (1, 2))
    row = znodes.TopicAssignment(topic_id=world.partition("t").topic_id, partitions={0: (2, 3)})
    put(world, Set(znodes.topic_path("t"), row.encode()))
    world.fail_over()
    assert (world.partition("t").leader, world.partition("t").isr) == (2, (2,))


def test_more_partitions_than_can_be_placed_at_once_are_refused(world: World) -> None:
    """Two billion partitions would have blocked this controller, and the next one, for good."""
    world.create("t", (1, 2))
    world.create("u", (1, 2))

    def grow(*counts: tuple[str, int]) -> list[ErrorCode]:
        rows = tuple(PartitionGrowth(name, count, None) for name, count in counts)
        return codes(world.ask(lambda token: CreatePartitions(token, rows, True)))

    def make(*specs: NewTopic) -> list[ErrorCode]:
        return codes(world.ask(lambda token: CreateTopics(token, specs, True)))

    refused = ErrorCode.POLICY_VIOLATION
    assert grow(("t", 10_002)) == [refused]
    assert grow(("t", 6_000), ("u", 4_003), ("gone", 5)) == [refused, refused, refused]
    assert grow(("t", 6_001), ("gone", 2**31 - 1), ("u", 1)) == [
        ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PARTITIONS
    ]  # fmt: skip
    manual = NewTopic(name="m", assignments=dict.fromkeys(range(9_990), (1,)))
    fine = NewTopic(name="f", num_partitions=8, replication_factor=1)
    standard = [NewTopic(name=name) for name in ("d", "e", "g")]  # one partition each by default
    bad = NewTopic(name="b", num_partitions=-2)
    made = [ErrorCode.NONE] * 4
    assert make(manual, fine, *standard[:2], bad) == [*made, ErrorCode.INVALID_PARTITIONS]
    assert make(manual, fine, *standard) == [refused] * 5
    assert make(*(NewTopic(name=f"n{n}", num_partitions=10_000) for n in range(3))) == [refused] * 3


def codes(results: Iterable[TopicResult]) -> list[ErrorCode]:
    return [result.error for result in results]
