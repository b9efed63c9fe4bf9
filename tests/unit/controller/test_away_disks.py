"""Deletion of replicas on a failed disk: repeated when the broker is back, not before."""

from __future__ import annotations

from uuid import UUID

from headwater.errors import ErrorCode
from headwater.wire.control import PartitionError, StopReplicaReply
from headwater_broker.controller.broker_channel import PendingUpdate
from headwater_broker.controller.decisions.config_changes import SET
from headwater_broker.controller.events import (
    AlterConfigs,
    BrokerChange,
    ConfigEdit,
    DeleteTopics,
    RegisteredBroker,
    ResourceKind,
    StopReplicaResponseReceived,
    Tick,
)
from unit.controller.machine_world import World


def test_what_is_on_a_disk_that_is_away_is_deleted_when_its_broker_is_back(world: World) -> None:
    """Until then StopReplica is not repeated every second; after other errors it is."""
    topic_id = world.create("t", (1, 2)).topic_id
    world.away = {2}
    world.ask(lambda token: DeleteTopics(token, (("t", UUID(int=0)),)))
    assert set(world.machine.state.pending_deletions) == {topic_id}
    world.updates.clear()
    world.handle(Tick())
    assert not [u for u in world.updates if u.stops]
    world.fail_over()
    assert world.machine.state.pending_deletions[topic_id].waiting() == {0: (2,)}
    world.away = set()
    world.down(2)
    world.up(2)
    assert world.machine.state.pending_deletions == {}


def test_a_broker_that_died_before_its_answer_is_asked_again_when_it_is_back(world: World) -> None:
    topic_id = world.create("t", (2,)).topic_id
    world.machine.handle(DeleteTopics(4711, (("t", UUID(int=0)),)))
    lost = world.machine.take_ready()
    assert [u.broker_id for u in lost.updates if u.stops] == [2]
    for group in lost.writes:
        world.run(world.store.multi(group))
    world.down(2)
    world.handle(Tick())
    assert world.machine.state.pending_deletions[topic_id].waiting() == {0: (2,)}
    world.up(2)
    assert world.machine.state.pending_deletions == {}


def test_an_answer_of_an_earlier_registration_does_not_stop_the_retries(world: World) -> None:
    topic_id = world.create("t", (1, 2)).topic_id
    world.away = {2}
    world.ask(lambda token: DeleteTopics(token, (("t", UUID(int=0)),)))
    former = world.registered[2]
    world.down(2)
    world.registered[2] = RegisteredBroker(former.epoch + 1, former.registration)
    world.machine.handle(BrokerChange(dict(world.registered)))
    [asked] = [u.stops for u in world.machine.take_ready().updates if u.broker_id == 2]
    row = PartitionError(
        topic_id=topic_id,
        partition=0,
        error_code=ErrorCode.KAFKA_STORAGE_ERROR,
        directory_id=UUID(int=0),
    )
    late = StopReplicaReply(error_code=0, partitions=(row,))
    world.machine.handle(StopReplicaResponseReceived(2, former.epoch, asked, late))
    world.away = set()
    world.handle(Tick())
    assert world.machine.state.pending_deletions == {}


def test_metadata_is_sent_along_with_a_repeated_deletion(
    world: World,
) -> None:
    """Broker configs and live brokers are part of the metadata. An update without partitions was
    dropped as if it held only the deletion."""
    topic_id = world.create("t", (1, 2)).topic_id
    world.away = {2}
    world.ask(lambda token: DeleteTopics(token, (("t", UUID(int=0)),)))
    [removal] = world.machine.state.pending_deletions.values()
    removal.on_failed_disks.clear()  # as if the answer came from an earlier registration
    world.away = set()
    edit = ConfigEdit(ResourceKind.BROKER, "", False, (("log.retention.ms", SET, "5000"),))
    world.machine.handle(AlterConfigs(1, (edit,), False))
    world.machine.handle(Tick())
    ready = world.machine.take_ready()
    pending: dict[int, PendingUpdate] = {}
    for update in ready.updates:
        pending[update.broker_id] = PendingUpdate()
        pending[update.broker_id].add(update)
    assert [stop.topic_id for stop in pending[2].stops.values()] == [topic_id]
    assert all(waiting.has_metadata for waiting in pending.values())
    assert all(waiting.broker_configs for waiting in pending.values())


def test_a_deletion_tried_again_is_no_news_for_metadata(world: World) -> None:
    world.create("t", (1, 2))
    world.away = {2}
    world.ask(lambda token: DeleteTopics(token, (("t", UUID(int=0)),)))
    [removal] = world.machine.state.pending_deletions.values()
    removal.on_failed_disks.clear()
    world.machine.handle(Tick())
    [update] = world.machine.take_ready().updates
    waiting = PendingUpdate()
    waiting.add(update)
    assert waiting.stops and not waiting.has_metadata
