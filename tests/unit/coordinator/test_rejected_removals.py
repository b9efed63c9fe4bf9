"""Members that are removed while no record can be appended: they are removed once it can be."""

from __future__ import annotations

from headwater_broker.coordinator.group.consumer.heartbeat_request import Heartbeat
from unit.coordinator.consumer_group_machine import (
    GROUP,
    INTERVAL_MS,
    SESSION_MS,
    A,
    Client,
    ConsumerMachine,
    settle,
)


def pair() -> tuple[ConsumerMachine, Client, Client]:
    m = ConsumerMachine()
    one, two = Client(m, "one"), Client(m, "two")
    one.beat()
    two.beat()
    settle(m, (one, two))
    return m, one, two


def stay(m: ConsumerMachine, client: Client) -> None:
    """One member heartbeats for longer than a session."""
    for _ in range(4):
        client.beat()
        m.pass_ms(SESSION_MS // 3)
    client.beat()


def test_a_dead_member_is_put_out_when_records_are_appended_again() -> None:
    m, one, _two = pair()
    m.is_rejecting = True
    stay(m, one)
    assert set(m.group.members) == {"one", "two"}, "its removal was not appended"
    m.is_rejecting = False
    m.pass_ms(INTERVAL_MS)
    assert set(m.group.members) == {"one"}
    settle(m, (one,))
    assert m.group.members["one"].assigned[A].keys() == {0, 1, 2, 3}


def test_a_member_whose_leave_was_not_appended_is_put_out() -> None:
    m, one, two = pair()
    m.is_rejecting = True
    ask = Heartbeat(group_id=GROUP, member_id=two.member_id, epoch=-1)
    m.run(lambda now, token: m.shard.consumers.heartbeat(ask, now, token))
    m.is_rejecting = False
    assert set(m.group.members) == {"one", "two"}
    m.pass_ms(INTERVAL_MS)
    assert set(m.group.members) == {"one"}
    settle(m, (one,))
    assert m.group.members["one"].assigned[A].keys() == {0, 1, 2, 3}


def test_timers_end_with_the_member() -> None:
    m, one, _two = pair()
    m.heartbeat("two", -1)
    settle(m, (one,))
    stay(m, one)
    assert m.meters.fenced == {} and set(m.group.members) == {"one"}
