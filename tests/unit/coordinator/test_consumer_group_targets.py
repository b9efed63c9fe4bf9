"""Consumer groups of KIP-848: large targets, and whatever happens."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.consumer.records import target_epoch_record
from headwater_broker.coordinator.group.consumer.target import LARGE
from unit.coordinator.consumer_group_machine import (
    GROUP,
    INTERVAL_MS,
    SESSION_MS,
    A,
    Client,
    ConsumerMachine,
    World,
    settle,
)


def large() -> tuple[ConsumerMachine, Client, Client]:
    m = ConsumerMachine(World(a=LARGE + 1))
    one, two = Client(m, "one"), Client(m, "two")
    one.beat()
    two.beat()
    m.pass_ms(INTERVAL_MS)
    assert len(m.jobs) == 1 and m.group.state.value == "Assigning"
    return m, one, two


def test_a_large_target_is_computed_beside_the_loop() -> None:
    m, one, two = large()
    m.pass_ms(INTERVAL_MS)
    assert len(m.jobs) == 1, "one at a time"
    m.compute()
    settle(m, (one, two))
    assert abs(len(one.owned[A]) - len(two.owned[A])) == 1


def test_a_target_of_a_coordinator_whose_clock_was_ahead_holds_up_no_other() -> None:
    m = ConsumerMachine(World(a=2))
    one, two = Client(m, "one"), Client(m, "two")
    one.beat()
    record = target_epoch_record(GROUP, m.group.target_epoch, m.now.wall_ms + 3_600_000)
    m.shard.replay(len(m.records), -1, -1, *record)
    m.records.append(record)
    m.restart()
    two.beat()
    settle(m, (one, two))
    assert {len(client.owned[A]) for client in (one, two)} == {1}


def test_a_late_target_does_not_replace_a_newer_one() -> None:
    m, one, _ = large()
    [job] = m.jobs
    m.heartbeat("two", -1)
    m.compute()
    assert m.group.target_epoch == job.epoch and "two" not in m.group.targets
    m.pass_ms(INTERVAL_MS)
    m.compute()
    newest = m.group.target_epoch
    assert newest == m.group.epoch
    m.bring(job)
    assert m.group.target_epoch == newest
    settle(m, (one,))
    assert len(one.owned[A]) == LARGE + 1


def test_a_late_target_reaches_a_static_member_under_its_new_id() -> None:
    m = ConsumerMachine(World(a=LARGE + 1))
    one, two = Client(m, "one"), Client(m, "two", instance_id="i2")
    one.beat()
    two.beat()
    m.pass_ms(INTERVAL_MS)
    m.heartbeat("two", -2, instance_id="i2")
    back = Client(m, "back", instance_id="i2")
    back.beat()
    m.compute()
    settle(m, (one, back))
    assert len(back.owned[A]) >= LARGE // 2


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("jbblksrtw"), st.integers(0, 4)), max_size=40))
def test_no_partition_has_two_holders_and_every_group_settles(
    events: list[tuple[str, int]],
) -> None:
    m = ConsumerMachine(World(a=5, b=2))
    names = [frozenset({"a"}), frozenset({"a", "b"}), frozenset({"b"})]
    clients = [
        Client(m, f"m{n}", topics=names[n % 3], instance_id=f"i{n}" if n == 4 else None)
        for n in range(5)
    ]
    joined: set[int] = set()
    for event, number in events:
        client = clients[number]
        if event == "j":
            clients[number] = client = client.again()
            client.beat()
            joined.add(number)
        elif event == "b" and number in joined:
            client.beat()
        elif event == "l" and number in joined:
            m.heartbeat(client.member_id, -1, instance_id=client.instance_id)
            joined.discard(number)
        elif event == "k":
            m.pass_ms(20_000)
        elif event == "s":
            m.topic_changed("a", 3 + number)
        elif event == "r":
            m.restart()
        elif event == "t":
            m.pass_ms(400)
        elif event == "w" and 4 in joined:
            m.heartbeat(clients[4].member_id, -2, instance_id="i4")
            joined.discard(4)
    m.restart()
    if not m.shard.groups or not isinstance(m.shard.groups[GROUP], ConsumerGroup):
        return
    m.pass_ms(SESSION_MS)
    survivors = [clients[number].again() for number in joined]
    for client in survivors:
        client.beat()
    if not survivors:
        return
    settle(m, survivors)
    for name, topic_id in (("a", A), ("b", World(b=1).topics["b"].topic_id)):
        wanted = any(name in c.topics for c in survivors)
        held = sorted(p for c in survivors for p in c.owned.get(topic_id, ()))
        assert held == (list(range(m.world.topics[name].partitions)) if wanted else [])
    m.restart()
