"""Planted bugs of share groups, each with the invariants that detect it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.share_state.service import ShareStateService
from headwater_broker.coordinator.share_state.stored_state import StoredState
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.share.led_partition import LedSharePartition
from headwater_broker.replica.share.ports import SharePartitionKey, ShareState
from headwater_broker.replica.share.runs import Change, RecordState
from headwater_broker.replica.share.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    Limits,
    SharePartition,
)
from headwater_broker.replica.share.share_partition_manager import ShareManager
from sim.planted import Planted

ENDED = frozenset({"WhatIsEndedIsNotDelivered", "NoRecordIsEndedTwice"})


def confirm_late_accepts(patch: pytest.MonkeyPatch) -> None:
    """An acknowledgement of records that the member holds no more is answered without an error."""
    acknowledge = SharePartition.acknowledge

    def confirm(self: SharePartition, *args: Any, **named: Any) -> Change | None:
        try:
            return acknowledge(self, *args, **named)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_RECORD_STATE:
                raise
            return None

    patch.setattr(SharePartition, "acknowledge", confirm)


def confirm_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """An acknowledgement is answered while its write is under way."""
    acknowledge = LedSharePartition.acknowledge

    def at_once(
        self: LedSharePartition, member: str, acknowledgements: Iterable[Acknowledgement]
    ) -> None:
        done = acknowledge(self, member, acknowledgements)
        if done is not None:
            done.add_done_callback(lambda ended: ended.exception())

    patch.setattr(LedSharePartition, "acknowledge", at_once)


def keep_what_an_earlier_leadership_knew(patch: pytest.MonkeyPatch) -> None:
    """A broker that leads again goes on with what it knew when it led before."""
    find = ShareManager.find

    def keep(self: ShareManager, group_id: str, partition: Partition) -> LedSharePartition:
        key = SharePartitionKey(group_id, partition.topic_id, partition.partition)
        known = (led for led in self if led.key == key and not led.is_stale)
        return next(known, None) or find(self, group_id, partition)

    patch.setattr(ShareManager, "find", keep)
    patch.setattr(ShareManager, "leadership_changed", lambda *_: None)


def deliver_without_end(patch: pytest.MonkeyPatch) -> None:
    """The limit of deliveries is not looked at."""
    endless = property(lambda self: Limits(deliveries=1_000))
    patch.setattr(LedSharePartition, "limits", endless)


def start_behind_what_is_acknowledged(patch: pytest.MonkeyPatch) -> None:
    """The durable start offset is the one behind the last acknowledged record."""
    write = ShareStateService.write

    async def behind(self: ShareStateService, key: SharePartitionKey, state: ShareState) -> None:
        if state.batches:
            end = state.batches[-1].last_offset + 1
            state = replace(state, start_offset=max(end, state.start_offset), batches=())
        await write(self, key, state)

    patch.setattr(ShareStateService, "write", behind)


def forget_delivery_counts(patch: pytest.MonkeyPatch) -> None:
    """A new leader takes released records for records that were never delivered."""
    read = StoredState.as_read

    def uncounted(self: StoredState, leader_epoch: int) -> ShareState:
        found = read(self, leader_epoch)
        available = RecordState.AVAILABLE
        rows = (
            replace(row, delivery_count=0) if row.delivery_state == available else row
            for row in found.batches
        )
        return replace(found, batches=tuple(rows))

    patch.setattr(StoredState, "as_read", uncounted)


def take_a_reject_for_a_release(patch: pytest.MonkeyPatch) -> None:
    """A rejected record is delivered again."""
    acknowledge = LedSharePartition.acknowledge

    def release(
        self: LedSharePartition, member: str, acknowledgements: Iterable[Acknowledgement]
    ) -> Any:
        rows = []
        for first, last, types in acknowledgements:
            kept = [
                AcknowledgeType.RELEASE if kind == AcknowledgeType.REJECT else kind
                for kind in types
            ]
            rows.append(Acknowledgement(first, last, kept))
        return acknowledge(self, member, rows)

    patch.setattr(LedSharePartition, "acknowledge", release)


PLANTED_SHARES = tuple(
    Planted(name, plant, seen_by, faults, share_members=3, topics={})
    for name, plant, seen_by, faults in (
        ("confirm late accepts", confirm_late_accepts, ENDED, {"slow": 1.0}),
        (
            "confirm before it is durable",
            confirm_before_it_is_durable,
            ENDED | {"DeliveryCountRises"},
            {"kill": 1.0},
        ),
        (
            "keep what an earlier leadership knew",
            keep_what_an_earlier_leadership_knew,
            ENDED | {"DeliveryCountRises"},
            {"expire": 1.0, "slow": 0.5},
        ),
        (
            "deliver without end",
            deliver_without_end,
            frozenset({"DeliveryLimitHolds"}),
            {"slow": 1.0},
        ),
        (
            "start behind what is acknowledged",
            start_behind_what_is_acknowledged,
            frozenset({"NoSharedRecordIsLost", "NothingIsDeliveredBelowTheStart"}),
            {"kill": 1.0},
        ),
        (
            "forget delivery counts",
            forget_delivery_counts,
            frozenset({"DeliveryCountRises"}),
            {"kill": 1.0},
        ),
        ("take a reject for a release", take_a_reject_for_a_release, ENDED, {"slow": 1.0}),
    )
)
