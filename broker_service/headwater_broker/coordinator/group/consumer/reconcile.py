"""A member on its way to the target assignment (KIP-848): Kafka's CurrentAssignmentBuilder. Pure.

A partition never has two owners: a member first gives up what the target takes from it and says so,
and takes from the target only what no member holds.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from headwater_broker.coordinator.group.consumer.member import (
    NOTHING,
    ConsumerMember,
    Named,
    Owned,
)
from headwater_broker.coordinator.group.consumer.states import STEPS, MemberState, Situation, Step

IsHeld = Callable[[UUID, int], bool]
"""(topic id, partition): whether any member holds the partition, also one that gives it up."""


def reconcile(
    member: ConsumerMember, target_epoch: int, target: Named, owned: Named | None, is_held: IsHeld
) -> ConsumerMember:
    """The member after its heartbeat; the same object when nothing changes.

    `owned`: what the member says that it owns; None: it did not say.
    """
    if member.epoch == target_epoch and member.state is MemberState.STABLE:
        return member  # nearly every heartbeat
    step = STEPS[member.state, _situation(member, target_epoch, owned)]
    if step is Step.KEEP:
        return member
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED:
        # What it commits from now on in its older epoch is checked by the assignment epochs, and
        # the partitions that it gave up have none.
        epoch += 1
    return _towards_target(member, epoch, target_epoch, target, owned, is_held)


def _situation(member: ConsumerMember, target_epoch: int, owned: Named | None) -> Situation:
    if member.state is MemberState.UNREVOKED and _owns_any(owned, member.revoking):
        return Situation.OWNS_REVOKED
    if member.epoch == target_epoch:
        return Situation.AT_TARGET
    return Situation.NEWER_TARGET


def _owns_any(owned: Named | None, held: Owned) -> bool:
    if owned is None:
        return True  # unchanged: it still owns what it owned
    return any(
        not held[topic_id].keys().isdisjoint(partitions)
        for topic_id, partitions in owned.items()
        if topic_id in held
    )


def _towards_target(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Named,
    owned: Named | None,
    is_held: IsHeld,
) -> ConsumerMember:
    kept: dict[UUID, dict[int, int]] = {}
    surplus: dict[UUID, dict[int, int]] = {}
    for topic_id, partitions in member.assigned.items():
        wanted = target.get(topic_id, frozenset())
        keep = {p: since for p, since in partitions.items() if p in wanted}
        drop = {p: since for p, since in partitions.items() if p not in wanted}
        if keep:
            kept[topic_id] = keep
        if drop:
            surplus[topic_id] = drop
    if surplus and _owns_any(owned, surplus):
        return member.moved(epoch, MemberState.UNREVOKED, kept, surplus)
    is_waiting = False
    for topic_id, wanted in target.items():
        rows = kept.get(topic_id, {})
        for partition in sorted(wanted - rows.keys()):
            if is_held(topic_id, partition):
                is_waiting = True
            else:
                rows[partition] = target_epoch
        if rows:
            kept[topic_id] = rows
    state = MemberState.UNRELEASED if is_waiting else MemberState.STABLE
    if (
        member.epoch == target_epoch
        and member.state is state
        and kept == member.assigned
        and not member.revoking
    ):
        return member
    return member.moved(target_epoch, state, kept, NOTHING)
