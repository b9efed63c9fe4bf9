"""The lettered table of `leader_and_isr`, over all inputs."""

from __future__ import annotations

from itertools import product

import pytest

from headwater_broker.replica.leader_and_isr import HostedReplica, RoleTransition, decide

HOSTED = [
    None,
    *(HostedReplica(5, 5, stopped, failed) for stopped, failed in product((False, True), repeat=2)),
]


@pytest.mark.parametrize(
    ("hosted", "epoch", "partition_epoch", "is_replica", "leads", "has_changes"),
    list(product(HOSTED, (4, 5, 6), (4, 5, 6), *[(True, False)] * 3)),
)
def test_every_case_has_its_decision(
    hosted: HostedReplica | None,
    epoch: int,
    partition_epoch: int,
    is_replica: bool,
    leads: bool,
    has_changes: bool,
) -> None:
    found = decide(
        hosted,
        epoch,
        partition_epoch,
        is_replica=is_replica,
        leads_here=leads,
        has_changes=has_changes,
    )
    role = RoleTransition.LEAD if leads else RoleTransition.FOLLOW
    if not is_replica:
        expected = RoleTransition.NOT_ASSIGNED
    elif hosted is None:
        expected = role
    elif hosted.is_failed:
        expected = RoleTransition.FAILED
    elif epoch == 4:
        expected = RoleTransition.STALE
    elif epoch == 6 or hosted.is_stopped:
        expected = role
    else:
        is_news = partition_epoch == 6 or (partition_epoch == 5 and has_changes)
        expected = RoleTransition.UPDATE if is_news else RoleTransition.SAME
    assert found is expected


def test_the_same_epoch_never_changes_a_role() -> None:
    for partition_epoch in range(10):
        found = decide(
            HostedReplica(5, 5),
            5,
            partition_epoch,
            is_replica=True,
            leads_here=True,
            has_changes=True,
        )
        assert found in (RoleTransition.UPDATE, RoleTransition.SAME)
