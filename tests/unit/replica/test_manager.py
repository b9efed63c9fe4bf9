"""What LeaderAndIsr and StopReplica do to the replicas of a broker and to their logs on disk."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.records.builder import build_batch
from headwater.wire.control import (
    AlterPartitionResult,
    LeaderAndIsrReply,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaPartition,
    StopReplicaReply,
    StopReplicaRequest,
    TopicState,
)
from headwater_broker.replica.loop_steps import LoopSteps, run_now
from solo_broker import BROKER_EPOCH, SoloBroker

A, B = UUID(int=1), UUID(int=2)
NAMES = {A: "a", B: "b"}
Story = Callable[[SoloBroker], Awaitable[None]]


def play(folder: Path, story: Story) -> None:
    async def run() -> None:
        async with SoloBroker(folder) as broker:
            await story(broker)

    asyncio.run(run())


def state(topic_id: UUID = A, partition: int = 0, **more: Any) -> PartitionState:
    defaults = {"leader_id": 1, "leader_epoch": 1, "partition_epoch": 1, "is_new": True}
    values = {"isr": (1, 2), "replicas": (1, 2), **defaults, **more}
    return PartitionState(topic=NAMES[topic_id], topic_id=topic_id, partition=partition, **values)


def tell(
    broker: SoloBroker,
    *states: PartitionState,
    controller_epoch: int = 5,
    full: bool = False,
    topics: tuple[TopicState, ...] = (),
) -> LeaderAndIsrReply:
    return broker.replicas.apply_leader_and_isr(
        LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=controller_epoch,
            broker_epoch=BROKER_EPOCH,
            full=full,
            partitions=states,
            topics=topics,
        )
    )


def codes(reply: LeaderAndIsrReply | StopReplicaReply) -> list[ErrorCode]:
    return [ErrorCode(row.error_code) for row in reply.partitions]


def stop(
    broker: SoloBroker,
    topic_id: UUID = A,
    *,
    delete: bool,
    leader_epoch: int = -1,
    controller_epoch: int = 5,
    partitions: int = 1,
) -> StopReplicaReply:
    rows = tuple(
        StopReplicaPartition(
            topic=NAMES[topic_id],
            topic_id=topic_id,
            partition=index,
            leader_epoch=leader_epoch,
            delete=delete,
        )
        for index in range(partitions)
    )
    return broker.replicas.stop_replica(
        StopReplicaRequest(
            controller_id=1,
            controller_epoch=controller_epoch,
            broker_epoch=BROKER_EPOCH,
            partitions=rows,
        )
    )


def fill(broker: SoloBroker, topic: str = "a") -> None:
    data = memoryview(bytearray(build_batch([(1, None, b"x", ())])))
    broker.replicas.lookup(topic, 0).append(data, 1, 0)


def on_disk(broker: SoloBroker, topic: str = "a") -> bool:
    return broker.logs.get(topic, 0) is not None


def test_a_deposed_controller_is_told_so_and_nothing_else(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        tell(broker, state())
        late = tell(broker, state(B), controller_epoch=4)
        assert (late.error_code, late.partitions) == (ErrorCode.STALE_CONTROLLER_EPOCH, ())
        stale = stop(broker, delete=True, controller_epoch=4)
        assert (stale.error_code, stale.partitions) == (ErrorCode.STALE_CONTROLLER_EPOCH, ())
        assert on_disk(broker) and not on_disk(broker, "b")
        tell(broker, controller_epoch=9)
        assert tell(broker, state(B), controller_epoch=8).error_code != 0, "the newer is adopted"

    play(tmp_path, story)


def test_an_older_leader_epoch_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        tell(broker, state(leader_epoch=3))
        reply = tell(broker, state(leader_epoch=2, leader_id=2), state(B))
        assert codes(reply) == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE]
        assert broker.replicas.lookup("a", 0).is_leader
        assert broker.replicas.lookup("b", 0).is_leader

    play(tmp_path, story)


def test_the_same_again_changes_nothing(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        tell(broker, state())
        fill(broker)
        told: list[str] = []
        broker.replicas.leadership_listeners.append(lambda p: told.append(p.topic))
        assert codes(tell(broker, state())) == [ErrorCode.NONE]
        partition = broker.replicas.lookup("a", 0)
        assert (told, partition.log.log_end_offset, partition.leader_epoch) == ([], 1, 1)

    play(tmp_path, story)


def test_a_move_that_shares_its_epoch_with_an_answer_is_taken(tmp_path: Path) -> None:
    """The answer to AlterPartition tells epoch and ISR of a write that has new replicas, too."""

    async def story(broker: SoloBroker) -> None:
        tell(broker, state(replicas=(1, 2, 3)))
        partition = broker.replicas.lookup("a", 0)
        partition.update_follower(3, 1, 0, 0.0)
        item = partition.alter_partition_item(BROKER_EPOCH)
        assert item is not None
        answer = AlterPartitionResult(
            topic_id=A, partition=0, error_code=ErrorCode.NONE, leader_id=1, leader_epoch=1,
            partition_epoch=2, isr=(1, 2, 3),
        )  # fmt: skip
        partition.on_isr_result(item, answer, 0.0)
        more = {"partition_epoch": 2, "isr": (1, 2, 3), "is_new": False}
        tell(broker, state(replicas=(1, 2, 3, 4), adding_replicas=(4,), **more))
        assert (partition.replicas, partition.adding_replicas) == ((1, 2, 3, 4), (4,))
        partition.update_follower(4, 1, 0, 0.0)
        tell(broker, state(replicas=(1, 2, 3), **more))
        with pytest.raises(KafkaError, match="not among the replicas"):
            partition.update_follower(4, 1, 0, 0.0)

    play(tmp_path, story)


def test_a_partition_that_is_not_assigned_here_is_left_alone(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        assert codes(tell(broker, state(replicas=(2, 3), isr=(2, 3), leader_id=2))) == [0]
        assert ("a", 0) not in broker.replicas.partitions and not on_disk(broker)

    play(tmp_path, story)


def test_only_a_new_leader_moves_the_fetching_and_the_log_stays_whole(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        tell(broker, state(leader_epoch=1))
        fill(broker)
        told: list[int] = []
        broker.replicas.leadership_listeners.append(lambda p: told.append(p.leader_id))
        tell(broker, state(leader_epoch=2, leader_id=2, is_new=False))
        partition = broker.replicas.lookup("a", 0)
        assert (partition.is_leader, partition.leader_id, told) == (False, 2, [2])
        assert partition.log.log_end_offset == 1, "only the new leader says where logs part"
        (row,) = broker.replicas.describe_fetching()["fetchers"]
        assert (row["leader"], row["partitions"]) == (2, 1)
        tell(broker, state(leader_epoch=2, leader_id=2, partition_epoch=7, isr=(2,), is_new=False))
        assert (told, partition.partition_epoch, partition.isr) == ([2], 7, (2,))
        tell(broker, state(leader_epoch=3, leader_id=1, partition_epoch=8, is_new=False))
        assert partition.is_leader
        assert broker.replicas.describe_fetching()["fetchers"] == [], "nothing to follow"

    play(tmp_path, story)


@pytest.mark.parametrize(("isr", "followed"), [((2,), []), ((1, 2), [2])])
def test_a_broker_that_drains_does_not_fetch_what_it_has_handed_over(
    tmp_path: Path, isr: tuple[int, ...], followed: list[int]
) -> None:
    async def story(broker: SoloBroker) -> None:
        tell(broker, state(leader_epoch=1))
        broker.replicas.begin_controlled_shutdown()
        tell(broker, state(leader_epoch=2, leader_id=2, isr=isr, is_new=False))
        rows = broker.replicas.describe_fetching()["fetchers"]
        assert [row["leader"] for row in rows] == followed

    play(tmp_path, story)


def test_stopping_keeps_the_data_and_deleting_takes_it(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        tell(broker, state())
        fill(broker)
        assert codes(stop(broker, delete=False)) == [ErrorCode.NONE]
        partition = broker.replicas.lookup("a", 0)
        assert not partition.is_leader and partition.offline_reason
        assert on_disk(broker)
        tell(broker, state(leader_epoch=2, is_new=False))
        assert broker.replicas.lookup("a", 0).log.log_end_offset == 1
        assert codes(stop(broker, delete=True, leader_epoch=1)) == [ErrorCode.FENCED_LEADER_EPOCH]
        assert on_disk(broker)
        assert codes(stop(broker, delete=True, leader_epoch=2)) == [ErrorCode.NONE]
        assert ("a", 0) not in broker.replicas.partitions and not on_disk(broker)

    play(tmp_path, story)


@pytest.mark.parametrize(("topic_id", "is_gone"), [(A, True), (B, False)])
def test_what_is_only_on_disk_is_deleted_by_its_topic_id(
    tmp_path: Path, topic_id: UUID, is_gone: bool
) -> None:
    async def story(broker: SoloBroker) -> None:
        tell(broker, state())

    async def later(broker: SoloBroker) -> None:
        assert on_disk(broker) and not broker.replicas.partitions
        row = StopReplicaPartition(
            topic="a", topic_id=topic_id, partition=0, leader_epoch=-1, delete=True
        )
        reply = broker.replicas.stop_replica(
            StopReplicaRequest(
                controller_id=1, controller_epoch=5, broker_epoch=BROKER_EPOCH, partitions=(row,)
            )
        )
        assert codes(reply) == [ErrorCode.NONE]
        assert on_disk(broker) is not is_gone

    play(tmp_path, story)
    play(tmp_path, later)


@pytest.mark.parametrize("how", ["its folder has failed", "the rename fails"])
def test_the_log_of_a_deleted_topic_goes_when_its_disk_is_back(tmp_path: Path, how: str) -> None:
    folders = {"log_dirs": f"{tmp_path}/a,{tmp_path}/b"}

    async def story() -> None:
        async with SoloBroker(tmp_path, **folders) as broker:
            broker.logs.on_offline.append(broker.replicas.directory_failed)
            tell(broker, state())
            fill(broker)
            log = broker.logs.get("a", 0)
            assert log is not None
            held = Path(log.path)
            if how == "the rename fails":
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(broker.files, "rename", _fails)
                    assert codes(stop(broker, delete=True)) == [ErrorCode.KAFKA_STORAGE_ERROR]
            else:
                log.storage_error(OSError(errno.EIO, "input/output error"))
                assert codes(stop(broker, delete=True)) == [ErrorCode.KAFKA_STORAGE_ERROR]
            assert codes(stop(broker, delete=True)) == [ErrorCode.KAFKA_STORAGE_ERROR], "again"
            assert codes(stop(broker, B, delete=True)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert held.exists()
        async with SoloBroker(tmp_path, **folders) as broker:
            assert codes(stop(broker, delete=True)) == [ErrorCode.NONE]
            assert not held.exists()

    asyncio.run(story())


def test_an_older_copy_on_a_disk_that_is_away_is_deleted_when_it_is_back(tmp_path: Path) -> None:
    """Nobody knew yet that the first one was made: the replica was new once more."""
    folders = {"log_dirs": f"{tmp_path}/a,{tmp_path}/b"}

    async def story() -> None:
        async with SoloBroker(tmp_path, **folders) as broker:
            tell(broker, state())
            log = broker.logs.get("a", 0)
            assert log is not None
            held = Path(log.path)
        away = held.parent.with_name("away")
        held.parent.rename(away)
        held.parent.write_text("no folder")
        async with SoloBroker(tmp_path, **folders) as broker:
            assert broker.logs.offline_directories == [str(held.parent)]
            tell(broker, state(leader_epoch=1))
            other = broker.logs.get("a", 0)
            assert other is not None
            assert codes(stop(broker, delete=True)) == [ErrorCode.KAFKA_STORAGE_ERROR]
            assert not Path(other.path).exists()
        held.parent.unlink()
        away.rename(held.parent)
        async with SoloBroker(tmp_path, **folders) as broker:
            assert held.exists()
            assert codes(stop(broker, delete=True)) == [ErrorCode.NONE]
            assert not held.exists()

    asyncio.run(story())


@pytest.mark.parametrize("delete", [False, True])
def test_a_deletion_is_confirmed_when_a_power_loss_cannot_undo_it(
    tmp_path: Path, delete: bool
) -> None:
    async def scenario(broker: SoloBroker) -> None:
        waiting, synced = asyncio.Event(), asyncio.Event()

        async def durable() -> None:
            waiting.set()
            await synced.wait()

        replicas = broker.replicas
        broker.durable = durable
        tell(broker, state())
        row = StopReplicaPartition(
            topic="a", topic_id=A, partition=0, leader_epoch=-1, delete=delete
        )
        request = StopReplicaRequest(
            controller_id=1, controller_epoch=5, broker_epoch=BROKER_EPOCH, partitions=(row,)
        )
        stopping = asyncio.ensure_future(replicas.handle_stop_replica(request))
        if delete:
            await waiting.wait()
            assert broker.logs.get("a", 0) is None
            assert codes(tell(broker, state(B))) == [ErrorCode.NONE], "others do not wait"
            assert not stopping.done()
            synced.set()
        assert codes(await stopping) == [ErrorCode.NONE]
        assert waiting.is_set() == delete

    play(tmp_path, scenario)


def _fails(old: str, new: str) -> None:
    raise OSError(errno.EIO, "input/output error")


def test_a_log_of_an_older_topic_of_that_name_is_none_to_lead_with(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        tell(broker, state())

    async def later(broker: SoloBroker) -> None:
        values = {"leader_id": 1, "leader_epoch": 4, "partition_epoch": 9, "is_new": False}
        again = PartitionState(
            topic="a", topic_id=B, partition=0, isr=(1, 2), replicas=(1, 2), **values
        )
        assert codes(tell(broker, again)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert not broker.replicas.partitions and on_disk(broker)

    play(tmp_path, story)
    play(tmp_path, later)


def test_a_full_request_stops_what_it_does_not_name_but_keeps_its_data(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        tell(broker, state(), state(B))
        tell(broker, state(), full=True)
        assert broker.replicas.lookup("a", 0).is_leader
        assert broker.replicas.lookup("b", 0).offline_reason
        assert on_disk(broker, "b")

    play(tmp_path, story)


def test_a_replica_without_its_log_never_leads(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        reply = tell(broker, state(leader_epoch=4, is_new=False))
        assert codes(reply) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert not broker.replicas.partitions

    play(tmp_path, story)


def test_the_high_watermark_is_kept_over_a_restart(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        tell(broker, state(isr=(1,), replicas=(1,)))
        for _ in range(3):
            fill(broker)
        broker.logs.checkpoint_high_watermarks()

    async def later(broker: SoloBroker) -> None:
        broker.logs.checkpoint_high_watermarks()  # before the controller's first word
        tell(broker, state(leader_epoch=2, leader_id=2, is_new=False))
        assert broker.replicas.lookup("a", 0).high_watermark == 3

    play(tmp_path, story)
    play(tmp_path, later)


def tell_while_the_disk_fails(broker: SoloBroker, new: PartitionState) -> LeaderAndIsrReply:
    """The folder fails, under a log that is there, while a thread writes what `new` asks for."""
    broker.logs.on_offline.append(broker.replicas.directory_failed)
    request = LeaderAndIsrRequest(
        controller_id=1, controller_epoch=5, broker_epoch=BROKER_EPOCH, partitions=(new,)
    )
    there = broker.logs.get("a", 0)
    assert there is not None

    def steps() -> LoopSteps[LeaderAndIsrReply]:
        inner = broker.replicas.leader_and_isr_steps(request)
        while True:
            try:
                job = next(inner)
            except StopIteration as end:
                return cast(LeaderAndIsrReply, end.value)
            yield job
            if job is not None:
                there.storage_error(OSError(errno.EIO, "input/output error"))

    return run_now(steps())


def test_a_log_made_in_a_folder_that_failed_meanwhile_is_not_used(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        tell(broker, state())
        reply = tell_while_the_disk_fails(broker, state(B))
        assert codes(reply) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert not on_disk(broker, "b") and (B, 0) not in broker.replicas.by_id

    play(tmp_path, story)


def test_nobody_begins_to_lead_on_a_disk_that_failed_meanwhile(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        tell(broker, state(leader_id=2))
        reply = tell_while_the_disk_fails(broker, state(leader_epoch=2))
        assert codes(reply) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert not broker.replicas.lookup("a", 0).is_leader

    play(tmp_path, story)


@pytest.mark.parametrize("asked", ["the new one leads", "the old one is deleted"])
@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_a_folder_back_with_a_deleted_topics_log_of_that_name(
    tmp_path: Path, asked: str, first: str, second: str
) -> None:
    """Whatever is first in log.dirs: the id that the controller names tells which log is meant."""

    async def old(broker: SoloBroker) -> None:
        tell(broker, state(leader_epoch=6))
        fill(broker)

    async def new(broker: SoloBroker) -> None:
        tell(broker, anew())
        fill(broker)
        fill(broker)

    async def both(broker: SoloBroker) -> None:
        if asked == "the old one is deleted":
            assert codes(stop(broker, delete=True)) == [ErrorCode.NONE]
            assert [path.name[-7:] for path in (tmp_path / "a").glob("a-0*")] == ["-delete"]
        again = anew(leader_epoch=2, partition_epoch=3, is_new=False)
        assert codes(tell(broker, again)) == [ErrorCode.NONE]
        leader = broker.replicas.lookup("a", 0)
        assert leader.is_leader and leader.log.log_end_offset == 2
        assert leader.topic_id == B

    async def days() -> None:
        for folders, story in (
            (f"{tmp_path}/a", old),
            (f"{tmp_path}/b", new),
            (f"{tmp_path}/{first},{tmp_path}/{second}", both),
        ):
            async with SoloBroker(tmp_path, log_dirs=folders) as broker:
                await story(broker)

    asyncio.run(days())


def anew(**more: Any) -> PartitionState:
    """Of topic B, which has the name that A had."""
    values = {"leader_id": 1, "leader_epoch": 1, "partition_epoch": 1, "is_new": True, **more}
    return PartitionState(topic="a", topic_id=B, partition=0, isr=(1, 2), replicas=(1, 2), **values)
