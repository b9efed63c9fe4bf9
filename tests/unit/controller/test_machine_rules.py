"""Rules of the state machine: fencing of ISR proposals, returning disks, reassignment, deletion."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from headwater.errors import ErrorCode
from headwater_broker.controller.events import (
    AlterConfigs,
    ConfigEdit,
    ControlledShutdown,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    PartitionGrowth,
    ResourceKind,
)
from unit.controller.machine_world import World


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"broker_epoch": 0}, ErrorCode.STALE_BROKER_EPOCH),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"member_epoch": 99}, ErrorCode.INELIGIBLE_REPLICA),
        ({"leader": 2}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_isr_proposals_are_fenced(world: World, wrong: dict[str, int], code: ErrorCode) -> None:
    world.create("t", (1, 2, 3))
    assert world.alter_isr(world.partition("t"), (1, 3), **wrong) == code
    assert world.partition("t").isr == ((1, 3) if code is ErrorCode.NONE else (1, 2, 3))


def test_an_isr_change_keeps_the_leader_epoch(world: World) -> None:
    world.create("t", (1, 2, 3))
    world.down(3)
    partition = world.partition("t")
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, (1, 2))
    world.down(1)
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 1, (2,))


def test_power_loss_leaves_the_isr_unless_clean_or_last(world: World) -> None:
    world.create("t", (1, 2, 3))
    world.up(2, power_loss=True)
    assert world.partition("t").isr == (1, 3)
    world.down(3)
    world.up(1, power_loss=True)
    assert (world.partition("t").leader, world.partition("t").isr) == (1, (1,))


def test_unclean_election_is_the_topics_choice() -> None:
    world = World()
    for broker_id in (1, 2):
        world.up(broker_id)
    world.create("careful", (1, 2))
    world.create("loose", (1, 2), unclean_leader_election_enable="true")
    world.down(2)
    world.up(2)
    world.down(1)
    assert world.partition("careful").leader == -1
    assert "broker 1 is not running" in world.partition("careful").offline_reason
    assert (world.partition("loose").leader, world.partition("loose").isr) == (2, (2,))
    edit = ConfigEdit(
        ResourceKind.TOPIC, "careful", False, (("unclean.leader.election.enable", 0, "true"),)
    )
    assert world.machine.state.unclean_elections == 1, "of the loose one"
    world.ask(lambda token: AlterConfigs(token, (edit,), False))
    assert world.partition("careful").leader == 2
    assert world.machine.state.unclean_elections == 2
    told = [text.split(": ")[:2] for text in world.warnings]
    assert told == [["loose-0", "unclean election"], ["careful-0", "unclean election"]]
    world.close()


def test_controlled_shutdown_hands_over(world: World) -> None:
    world.create("t", (1, 2), (2, 1))
    world.create("single", (1,))
    epoch = world.registered[1].epoch
    for broker_id, told in ((1, epoch - 1), (9, epoch)):
        refused = world.ask(lambda token, b=broker_id, e=told: ControlledShutdown(token, b, e))
        assert refused.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert [world.partition("t", i).leader for i in (0, 1)] == [1, 2]
    world.updates.clear()
    reply = world.ask(lambda token: ControlledShutdown(token, 1, epoch))
    assert (reply.error_code, reply.remaining) == (0, 0)
    told = {row.topic for update in world.updates for row in (*update.replicas, *update.metadata)}
    assert told == {"t"}, "nothing of partitions with one replica"
    stops = [(update.broker_id, row.delete) for update in world.updates for row in update.stops]
    assert stops == [(1, False)], "it only follows in one"
    assert [world.partition("t", i).leader for i in (0, 1)] == [2, 2]
    assert world.partition("single").leader == 1
    assert world.partition("t", 1).isr == (2,)
    assert world.alter_isr(world.partition("t"), (2, 1)) == ErrorCode.INELIGIBLE_REPLICA


def test_a_controlled_shutdown_tried_again_stops_nothing_twice(world: World) -> None:
    world.create("t", (2, 1), (1, 2))
    for broker_id in (2, 1):  # 2, which is also shutting down, gets nothing from 1
        epoch = world.registered[broker_id].epoch
        world.ask(lambda token, b=broker_id, e=epoch: ControlledShutdown(token, b, e))
    assert world.partition("t").isr == (1,)
    world.updates.clear()
    epoch = world.registered[2].epoch
    reply = world.ask(lambda token: ControlledShutdown(token, 2, epoch))
    assert reply.remaining == 0
    told = {(u.broker_id, s.partition) for u in world.updates for s in u.stops}
    world.updates.clear()
    world.ask(lambda token: ControlledShutdown(token, 2, epoch))
    assert told == {(2, 0)}
    assert [s for u in world.updates for s in u.stops] == []
    assert [p for u in world.updates for p in u.metadata] == []


def test_the_last_brokers_do_not_wait_for_somebody_to_lead_in_their_place(world: World) -> None:
    world.create("t", (1, 2), (2, 3), (3, 1))
    events = [
        ControlledShutdown(100 + b, b, found.epoch) for b, found in sorted(world.registered.items())
    ]
    before = {i: world.partition("t", i).leader_epoch for i in range(3)}
    for event in events:
        world.machine.mark_shutting_down(event.broker_id, event.broker_epoch)
    for event in events:
        world.machine.handle(event)
    ready = world.machine.take_ready()
    assert [r.value.remaining for r in ready.replies] == [0, 0, 0]
    assert ready.writes == ()
    assert {i: world.partition("t", i).leader_epoch for i in range(3)} == before
    assert [world.partition("t", i).isr for i in range(3)] == [(1, 2), (2, 3), (3, 1)]


def test_a_broker_whose_leaderships_cannot_move_yet_has_to_wait(world: World) -> None:
    world.create("t", (1, 2))
    world.alter_isr(world.partition("t"), (1,))
    epoch = world.registered[1].epoch
    assert world.ask(lambda token: ControlledShutdown(token, 1, epoch)).remaining == 1
    world.down(2)
    assert world.ask(lambda token: ControlledShutdown(token, 1, epoch)).remaining == 0


def test_a_shutdown_of_an_earlier_registration_is_ignored(world: World) -> None:
    world.create("t", (1, 2))
    epoch = world.registered[1].epoch
    world.machine.mark_shutting_down(1, epoch - 1)
    assert world.machine.state.shutting_down == set()


def test_growth_and_its_refusals(world: World) -> None:
    world.create("t", (1, 2))

    def grow(count: int, assignments: tuple[tuple[int, ...], ...] | None = None) -> ErrorCode:
        row = PartitionGrowth("t", count, assignments)
        [result] = world.ask(lambda token: CreatePartitions(token, (row,), False))
        return ErrorCode(result.error)

    assert grow(1) is ErrorCode.INVALID_PARTITIONS
    assert grow(2, ((1,),)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(2, ((3, 1),)) is ErrorCode.NONE
    assert grow(4) is ErrorCode.NONE
    assert world.partition("t", 1).leader == 3
    assert all(world.partition("t", i).leader > 0 for i in range(4))


@pytest.mark.parametrize(
    ("name", "configs", "code"),
    [
        ("", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a_b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a.b", {}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("ok", {"retention_ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ("ok", {"retention_ms": "5"}, ErrorCode.NONE),
        (
            "ok",
            {"min_compaction_lag_ms": "6", "max_compaction_lag_ms": "5"},
            ErrorCode.INVALID_CONFIG,
        ),
    ],
)
def test_topic_checks(world: World, name: str, configs: dict[str, str], code: ErrorCode) -> None:
    world.create("a.b", (1,))
    assert world.create(name, (1,), **configs).error is code


@pytest.mark.parametrize(
    ("replace", "operation", "refused"),
    [
        (False, ("remote.storage.enable", 0, "false"), True),
        (False, ("remote.storage.enable", 1, None), True),
        (True, ("retention.ms", 0, "5"), True),
        (True, ("remote.storage.enable", 0, "TRUE"), False),
        (False, ("retention.ms", 0, "5"), False),
    ],
)
def test_tiering_is_not_switched_off(
    world: World, replace: bool, operation: tuple[str, int, str | None], refused: bool
) -> None:
    world.create("t", (1,), remote_storage_enable="true")
    edit = ConfigEdit(ResourceKind.TOPIC, "t", replace, (operation,))
    [result] = world.ask(lambda token: AlterConfigs(token, (edit,), False))
    assert result.error is (ErrorCode.INVALID_CONFIG if refused else ErrorCode.NONE)
    assert ("stop `headwater tier run`" in (result.message or "")) is refused
    world.fail_over()
    assert world.machine.state.topics["t"].configs["remote.storage.enable"].lower() == "true"


ID, NONE = UUID(int=0), ErrorCode.NONE


@pytest.mark.parametrize(
    ("rows", "words", "left"),
    [
        ([("t", ID), ("t", ID)], "Duplicate topic name.", {"t", "u"}),
        ([(None, "t"), (None, "t")], "Duplicate topic id.", {"t", "u"}),
        ([("t", ID), (None, "t")], "maps to an ID that was already supplied", {"t", "u"}),
        ([(None, ID)], "Neither topic name nor id", {"t", "u"}),
        ([("t", ID), ("u", ID), ("t", ID)], "Duplicate topic name.", {"t"}),
    ],
)
def test_a_deletion_that_contradicts_itself_deletes_nothing(
    world: World, rows: list[tuple[str | None, UUID | str]], words: str, left: set[str]
) -> None:
    ids = {name: world.create(name, (1, 2)).topic_id for name in ("t", "u")}
    asked = tuple((name, ids[key] if isinstance(key, str) else key) for name, key in rows)
    results = world.ask(lambda token: DeleteTopics(token, asked))
    for (name, _), result in zip(asked, results, strict=True):
        assert result.error is (NONE if name == "u" else ErrorCode.INVALID_REQUEST)
        assert name == "u" or words in result.message
    assert set(world.machine.state.topics) == left


@pytest.mark.parametrize("how", ["down", "shutting down"])
def test_nothing_is_made_where_no_broker_is_usable(world: World, how: str) -> None:
    world.create("t", (1,))
    if how == "down":
        world.down(2, 3)
    else:
        for broker_id in (2, 3):
            epoch = world.registered[broker_id].epoch
            world.ask(lambda token, b=broker_id, e=epoch: ControlledShutdown(token, b, e))
    made = world.create("made", (1, 2), (2, 3))
    assert made.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "partition 1 are fenced or in controlled shutdown" in made.message
    growth = (PartitionGrowth("t", 2, ((3,),)),)
    [grown] = world.ask(lambda token: CreatePartitions(token, growth, False))
    assert grown.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "partition 1 are fenced" in grown.message
    assert world.create("half", (1, 2)).error is NONE
    assert (world.partition("half").leader, world.partition("half").isr) == (1, (1,))


@pytest.mark.parametrize("how", ["down", "shutting down"])
def test_a_broker_that_is_away_does_not_count_as_a_place_for_a_replica(
    world: World, how: str
) -> None:
    if how == "down":
        world.down(3)
    else:
        epoch = world.registered[3].epoch
        world.ask(lambda token: ControlledShutdown(token, 3, epoch))
    [too_many, fits] = world.ask(
        lambda token: CreateTopics(token, tuple(
            NewTopic(name=f"of-{n}", num_partitions=4, replication_factor=n) for n in (3, 2)
        ), False)
    )  # fmt: skip
    assert too_many.error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "3 larger than available brokers: 2" in too_many.message
    assert fits.error is NONE
    assert {b for i in range(4) for b in world.partition("of-2", i).replicas} == {1, 2}


@pytest.mark.parametrize(
    ("spec", "code", "words"),
    [
        ({"assignments": {0: (1, 1)}}, "INVALID_REPLICA_ASSIGNMENT", "duplicate replicas"),
        ({"assignments": {0: ()}}, "INVALID_REPLICA_ASSIGNMENT", "no numbers of replicas"),
        ({"assignments": {0: (1,), 1: (1, 2)}}, "INVALID_REPLICA_ASSIGNMENT", "different"),
        ({"assignments": {0: (1,), 2: (1,)}}, "INVALID_REPLICA_ASSIGNMENT", "without gaps"),
        ({"assignments": {1: (1,)}}, "INVALID_REPLICA_ASSIGNMENT", "without gaps"),
        ({"assignments": {0: (9,)}}, "INVALID_REPLICA_ASSIGNMENT", "unknown brokers [9]"),
        ({"assignments": {0: (1,)}, "repeated": (0,)}, "INVALID_REPLICA_ASSIGNMENT", "once: [0]"),
        ({"assignments": {0: (1,)}, "num_partitions": 1}, "INVALID_REQUEST", "both manual"),
        ({"assignments": {0: (1,)}, "replication_factor": 1}, "INVALID_REQUEST", "both manual"),
    ],
)
def test_manual_assignments_that_are_refused(
    world: World, spec: dict[str, Any], code: str, words: str
) -> None:
    topic = NewTopic(name="t", **spec)
    [result] = world.ask(lambda token: CreateTopics(token, (topic,), False))
    assert result.error is ErrorCode[code] and words in result.message
    assert "t" not in world.machine.state.topics


@pytest.mark.parametrize("validate_only", [False, True])
def test_the_metadata_topic_of_kraft_cannot_be_created(world: World, validate_only: bool) -> None:
    topic = NewTopic(name="__cluster_metadata", num_partitions=1, replication_factor=1)
    [result] = world.ask(lambda token: CreateTopics(token, (topic,), validate_only))
    assert result.error is ErrorCode.INVALID_REQUEST and "prohibited" in result.message
    assert not world.machine.state.topics


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("007", NONE),
        ("8", NONE),
        ("99", ErrorCode.BROKER_ID_NOT_REGISTERED),
        ("\u00b2", ErrorCode.INVALID_REQUEST),
        ("-1", ErrorCode.INVALID_REQUEST),
        (" 7", ErrorCode.INVALID_REQUEST),
    ],
)
def test_configs_are_of_brokers_that_were_here_once(
    world: World, name: str, code: ErrorCode
) -> None:
    world.up(7)
    world.up(8)
    world.down(8)
    world.fail_over()
    edit = ConfigEdit(ResourceKind.BROKER, name, False, (("num.partitions", 0, "2"),))
    [result] = world.ask(lambda token: AlterConfigs(token, (edit,), False))
    assert (result.error, result.name) == (code, name)
    world.fail_over()
    known = {str(int(name)): {"num.partitions": "2"}} if code is NONE else {}
    assert world.machine.state.broker_configs == known


def test_a_name_is_free_at_once_after_deletion(world: World) -> None:
    first = world.create("t", (1, 2)).topic_id
    world.down(2)
    world.ask(lambda token: DeleteTopics(token, (("t", UUID(int=0)),)))
    second = world.create("t", (1,)).topic_id
    assert first != second
    world.fail_over()
    assert set(world.machine.state.pending_deletions) == {first}
    world.up(2)
    assert world.machine.state.pending_deletions == {}
    assert world.partition("t").topic_id == second


def test_a_trial_says_what_would_be_and_changes_nothing(world: World) -> None:
    world.create("t", (1, 2), retention_ms="5")
    before = len(world.updates)

    def tried(value: str) -> ErrorCode:
        change = (("retention.ms", 0, value), ("unclean.leader.election.enable", 0, "true"))
        edit = ConfigEdit(ResourceKind.TOPIC, "t", False, change)
        [result] = world.ask(lambda token: AlterConfigs(token, (edit,), True))
        return ErrorCode(result.error)

    assert (tried("6"), tried("soon")) == (NONE, ErrorCode.INVALID_CONFIG)
    grown = (PartitionGrowth("t", 3, None), PartitionGrowth("u", 3, None))
    rows = world.ask(lambda token: CreatePartitions(token, grown, True))
    assert [row.error for row in rows] == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    topics = (NewTopic(name="u", num_partitions=2), NewTopic(name="t", num_partitions=2))
    rows = world.ask(lambda token: CreateTopics(token, topics, True))
    assert [row.error for row in rows] == [NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert len(world.updates) == before
    world.fail_over()
    [topic] = world.machine.state.topics.values()
    assert (topic.configs, len(topic.partitions)) == ({"retention.ms": "5"}, 1)
