"""The members of `make bench-groups`: when their group has settled."""

import asyncio
from typing import cast
from uuid import UUID

import pytest
from bench.lean_members import Modern, commit, has_settled

from headwater.client.connection import Connection

TOPIC = UUID(int=1)


def members(*owned: int, epoch: int = 2) -> list[Modern]:
    """So many partitions each, of one topic."""
    made, first = list[Modern](), 0
    for number, count in enumerate(owned):
        parts = frozenset((TOPIC, index) for index in range(first, first + count))
        first += count
        made.append(Modern("g", f"m{number}", "work", epoch, parts, must_tell=False))
    return made


def test_a_group_has_settled_when_each_member_has_a_partition() -> None:
    assert has_settled(members(1, 1, 1))


def test_members_that_wait_for_the_next_target_have_not_settled() -> None:
    # Who joins between two targets gets the epoch of the last one, and no partition.
    assert not has_settled(members(3, 0, 0))


def test_a_member_at_another_epoch_or_with_something_to_tell_has_not_settled() -> None:
    rows = members(1, 1, 1)
    rows[1].must_tell = True
    assert not has_settled(rows)
    rows = members(1, 1, 1)
    rows[1].epoch = 1
    assert not has_settled(rows)
    assert not has_settled(members(1, 1, 1, epoch=0))


def test_a_commit_of_a_member_without_partitions_is_refused() -> None:
    # It would be sent again for ever, as no partition's error code says that it is done.
    (member,) = members(0)
    with pytest.raises(RuntimeError, match="m0 of g owns nothing"):
        asyncio.run(commit(cast(Connection, None), member, "work", 7))
