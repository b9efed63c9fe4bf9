"""Deletion of what is on a disk that is away: asked for when its broker is back, not before."""

from __future__ import annotations

from uuid import UUID

from headwater.errors import ErrorCode
from headwater.wire.control import PartitionError, StopReplicaReply
from headwater_broker.cluster.controller.events import (
    BrokersFound,
    DeleteTopics,
    Registered,
    StopReplicaAnswered,
    Tick,
)
from unit.cluster.machine_world import World


def test_what_is_on_a_disk_that_is_away_is_deleted_when_its_broker_is_back(world: World) -> None:
    """Until then it is not asked for every second; another answer's error is tried again."""
    topic_id = world.create("t", (1, 2)).topic_id
    world.away = {2}
    world.ask(lambda token: DeleteTopics(token, (("t", UUID(int=0)),)))
    assert set(world.machine.state.removals) == {topic_id}
    world.updates.clear()
    world.handle(Tick())
    assert not [u for u in world.updates if u.stops]
    world.fail_over()
    assert world.machine.state.removals[topic_id].waiting() == {0: (2,)}
    world.away = set()
    world.down(2)
    world.up(2)
    assert world.machine.state.removals == {}


def test_an_answer_of_a_former_life_does_not_stop_the_asking(world: World) -> None:
    topic_id = world.create("t", (1, 2)).topic_id
    world.away = {2}
    world.ask(lambda token: DeleteTopics(token, (("t", UUID(int=0)),)))
    former = world.registered[2]
    world.down(2)
    world.registered[2] = Registered(former.epoch + 1, former.registration)
    world.machine.handle(BrokersFound(dict(world.registered)))
    [asked] = [u.stops for u in world.machine.take().updates if u.broker_id == 2]
    row = PartitionError(
        topic_id=topic_id,
        partition=0,
        error_code=ErrorCode.KAFKA_STORAGE_ERROR,
        directory_id=UUID(int=0),
    )
    late = StopReplicaReply(error_code=0, partitions=(row,))
    world.machine.handle(StopReplicaAnswered(2, former.epoch, asked, late))
    world.away = set()
    world.handle(Tick())
    assert world.machine.state.removals == {}
