"""Results of `Admin` about share groups, as tuples."""

from __future__ import annotations

from typing import NamedTuple

from headwater.client.values import TopicPartition


class ShareMemberDescription(NamedTuple):
    """A member of a share group and its assignment. Several members may have one partition."""

    member_id: str
    member_epoch: int
    client_id: str
    host: str
    rack: str | None
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


class ShareGroupDescription(NamedTuple):
    """A share group with its state ("Stable", "Empty", "Dead") and members."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ShareMemberDescription, ...]


class SharePartitionOffset(NamedTuple):
    """Where a share group begins in a partition (its SPSO): every record before is settled.

    `lag`: records that are not settled yet; None when the broker does not know it.
    """

    start_offset: int
    leader_epoch: int
    lag: int | None
