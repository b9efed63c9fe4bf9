"""The cost of a request grows linearly with its topics: quadratic cost blocked the controller's
loop for longer than a session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from headwater.config.keys import topic_key
from headwater.errors import ErrorCode
from headwater_broker.controller.decisions.config_changes import APPEND, SUBTRACT, edited
from headwater_broker.controller.events import (
    ConfigEdit,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    ResourceKind,
)
from headwater_broker.metadata.znodes import NO_DIRECTORY
from unit.controller.machine_world import World

TOKEN = 4711


def calls_of(work: Callable[[], None]) -> int:
    """The number of Python function calls, which does not depend on the machine."""
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
    """A name that counts comparisons."""

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


class CountedList(str):
    """A config value with items of class `CountedName`."""

    __slots__ = ()

    def split(self, *_: Any) -> list[str]:  # type: ignore[override]
        return [_CountedItem(item) for item in str.split(self, ",")]


class _CountedItem(CountedName):
    __slots__ = ()

    def strip(self, *_: Any) -> str:  # type: ignore[override]
        return self


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_a_long_list_is_edited_in_proportion(operation: int) -> None:
    """A list of throttled replicas of half the allowed size took a minute."""
    key = "leader.replication.throttled.replicas"

    def cost(count: int) -> int:
        now = CountedList(",".join(f"{i}:1" for i in range(count)))
        more = CountedList(",".join(f"{i}:2" for i in range(count)))
        edit = ConfigEdit(ResourceKind.TOPIC, "t", False, ((key, operation, more),))
        return calls_of(lambda: edited({key: now}, edit, topic_key))

    assert cost(400) < 5 * cost(100)
