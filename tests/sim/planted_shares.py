"""Planted bugs of share groups, each with the invariants that detect it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from headwater_broker.replica.partition import Partition
from headwater_broker.replica.share import machine
from headwater_broker.replica.share.led_partition import LedSharePartition
from headwater_broker.replica.share.machine import Acknowledgement, AcknowledgeType, SharePartition
from headwater_broker.replica.share.manager import ShareManager
from headwater_broker.replica.share.ports import ShareState, StateBatch
from headwater_broker.replica.share.runs import RecordState
from sim.planted import Planted

ENDED = frozenset({"WhatIsEndedIsNotDelivered", "NoRecordIsEndedTwice"})


def confirm_late_accepts(patch: pytest.MonkeyPatch) -> None:
    """Whoever acknowledges an offset that was delivered is taken to hold it."""
    patch.setattr(SharePartition, "_check", lambda *_: None)


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
        led = self._led.get((partition.topic_id, partition.partition), {}).get(group_id)
        return led if led is not None and not led.is_stale else find(self, group_id, partition)

    patch.setattr(ShareManager, "find", keep)
    patch.setattr(ShareManager, "leadership_changed", lambda *_: None)


def deliver_without_end(patch: pytest.MonkeyPatch) -> None:
    """The limit of deliveries is not looked at."""
    answered = machine._answered

    def without_end(count: int, kind: int, limits: machine.Limits) -> Any:
        return answered(count, kind, limits._replace(deliveries=count + 1))

    patch.setattr(machine, "_answered", without_end)


def start_behind_what_is_in_flight(patch: pytest.MonkeyPatch) -> None:
    """The durable start offset is that of the first record nobody was given."""
    after = LedSharePartition._state_after

    def behind(self: LedSharePartition, writes: Any) -> ShareState:
        state = after(self, writes)
        return ShareState(
            state.state_epoch, state.leader_epoch, self.loaded().end_offset, (),
            state.delivery_complete_count,
        )  # fmt: skip

    patch.setattr(LedSharePartition, "_state_after", behind)


def count_no_release(patch: pytest.MonkeyPatch) -> None:
    """A released record is durable with a delivery less than it had."""
    load = SharePartition._load

    def less(self: SharePartition, batch: StateBatch) -> None:
        if batch.delivery_state == RecordState.AVAILABLE:
            batch = StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, 0)
        load(self, batch)

    patch.setattr(SharePartition, "_load", less)


def take_every_acknowledgement_for_a_release(patch: pytest.MonkeyPatch) -> None:
    """A reject gives the record back."""
    answered = machine._answered

    def release(count: int, kind: int, limits: machine.Limits) -> Any:
        is_reject = kind == AcknowledgeType.REJECT
        return answered(count, AcknowledgeType.RELEASE if is_reject else kind, limits)

    patch.setattr(machine, "_answered", release)


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
            ENDED,
            {"expire": 1.0, "slow": 0.5},
        ),
        (
            "deliver without end",
            deliver_without_end,
            frozenset({"DeliveryLimitHolds"}),
            {"slow": 1.0},
        ),
        (
            "start behind what is in flight",
            start_behind_what_is_in_flight,
            frozenset({"NoSharedRecordIsLost", "NothingIsDeliveredBelowTheStart"}),
            {"kill": 1.0},
        ),
        ("count no release", count_no_release, frozenset({"DeliveryCountRises"}), {"kill": 1.0}),
        (
            "take a reject for a release",
            take_every_acknowledgement_for_a_release,
            frozenset({"WhatIsEndedIsNotDelivered", "NoRecordIsEndedTwice"}),
            {"slow": 1.0},
        ),
    )
)
