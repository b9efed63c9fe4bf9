"""The offsets of groups: what is written to the target was stored before."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from headwater.client.admin.groups import GroupCalls
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.mirror.config import parse_config
from headwater.mirror.core.group_offset_writes import GroupPlan, Translate, plan
from headwater.mirror.core.state import GroupOffset, MirrorState, StateRecord
from headwater.mirror.group_sync import GroupSync

TP = TopicPartition("t", 0)
CONFIG = parse_config({"source.bootstrap.servers": "a:1", "target.bootstrap.servers": "b:2"})
Offsets = dict[TopicPartition, OffsetAndMetadata]


class GivenBucket:
    """A bucket whose transactions end as it is told."""

    number = era = 0

    def __init__(self, *commits: bool) -> None:
        self.copies = {TP: None}
        self.state = MirrorState()
        self._commits = list(commits)

    def translate(self, _tp: TopicPartition, offset: int) -> int:
        return offset + 100

    async def append(self, _records: list[StateRecord]) -> bool:
        return self._commits.pop(0)


class OneGroup(GroupSync):
    """Of a group that has not moved at the source, and has nothing in the target."""

    async def groups(self) -> list[str]:
        return ["g"]

    async def source_offsets(self, group: str) -> Offsets:
        return {TP: OffsetAndMetadata(5, "")}

    async def plan(
        self,
        group: str,
        offsets: Offsets,
        known: Mapping[TopicPartition, GroupOffset],
        translate: Translate,
        era: int,
    ) -> GroupPlan:
        return plan(offsets, {}, known, translate, is_empty=True)


def test_what_no_transaction_has_stored_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the mirror takes it for a commit of somebody else when it begins again."""
    written: list[Offsets] = []

    async def alter(_calls: GroupCalls, _group: str, offsets: Offsets) -> None:
        written.append(offsets)

    monkeypatch.setattr(GroupCalls, "alter_offsets", alter)
    nothing: Any = None
    bucket: Any = GivenBucket(False, False, True)
    sync = OneGroup(nothing, nothing, CONFIG)
    for count in (0, 0, 1):
        asyncio.run(sync.sync({0: bucket}))
        assert len(written) == count
    assert written == [{TP: OffsetAndMetadata(105, "")}]
