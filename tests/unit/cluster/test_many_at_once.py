"""A request of many topics costs in proportion: the controller's loop stood still for a session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from headwater.errors import ErrorCode
from headwater_broker.cluster.controller.events import CreateTopics, DeleteTopics, NewTopic
from headwater_broker.cluster.znodes import NO_DIRECTORY
from unit.cluster.machine_world import World

TOKEN = 4711


def calls_of(work: Callable[[], None]) -> int:
    """How many Python functions it called: no clock, no luck."""
    count = 0

    def see(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


class CountedName(str):
    """Comparing two is a call."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)


def test_a_request_of_many_topics_costs_in_proportion() -> None:
    def cost(count: int) -> tuple[int, int]:
        world = World()
        world.up(1)
        names = [CountedName(f"topic-{number}") for number in range(count)]
        specs = tuple(NewTopic(name=name, assignments={0: (1,)}) for name in names)
        rows = tuple((name, NO_DIRECTORY) for name in names)
        machine = world.machine
        made = calls_of(lambda: machine.handle(CreateTopics(TOKEN, specs, False)))
        world.settle()
        assert {row.error for row in world.replies.pop(TOKEN)} == {ErrorCode.NONE}
        gone = calls_of(lambda: machine.handle(DeleteTopics(TOKEN, rows)))
        world.settle()
        assert not machine.state.topics
        world.close()
        return made, gone

    few, many = cost(100), cost(400)
    assert many[0] < 5 * few[0], "made"
    assert many[1] < 5 * few[1], "deleted"
