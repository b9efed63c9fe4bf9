"""Control requests are fenced by controller epoch, request number and broker epoch."""

from __future__ import annotations

import pytest

from headwater.errors import ErrorCode
from headwater.wire.control import NOT_NUMBERED, LeaderAndIsrRequest, StopReplicaRequest
from headwater_broker.replica.control_fence import ControlFence

UNREGISTERED = -1


@pytest.mark.parametrize(
    ("controller_epoch", "sent_epoch", "own_epoch", "answer"),
    [
        (5, 7, 7, ErrorCode.NONE),
        (6, 8, 7, ErrorCode.NONE),
        (4, 7, 7, ErrorCode.STALE_CONTROLLER_EPOCH),
        (5, 6, 7, ErrorCode.STALE_BROKER_EPOCH),
        # The store still holds the registration of a former life, whose page cache may be gone.
        (5, 6, UNREGISTERED, ErrorCode.STALE_BROKER_EPOCH),
        (5, -1, UNREGISTERED, ErrorCode.NONE),
    ],
)
def test_what_is_obeyed(
    controller_epoch: int, sent_epoch: int, own_epoch: int, answer: ErrorCode
) -> None:
    fence = after(own_epoch, 5, NOT_NUMBERED)
    request = LeaderAndIsrRequest(controller_epoch=controller_epoch, broker_epoch=sent_epoch)
    assert fence.check(request) is answer


@pytest.mark.parametrize(
    ("controller_epoch", "sequence", "answer"),
    [
        (5, 10, ErrorCode.NONE),
        # Given up by its controller, which has repeated it since, with what it decided then.
        (5, 8, ErrorCode.STALE_CONTROLLER_EPOCH),
        (5, 9, ErrorCode.STALE_CONTROLLER_EPOCH),
        (6, 1, ErrorCode.NONE),  # each term begins anew
        (5, NOT_NUMBERED, ErrorCode.NONE),  # of a release that does not number
    ],
)
@pytest.mark.parametrize("kind", [LeaderAndIsrRequest, StopReplicaRequest])
def test_what_was_overtaken_counts_no_more(
    kind: type[LeaderAndIsrRequest | StopReplicaRequest],
    controller_epoch: int,
    sequence: int,
    answer: ErrorCode,
) -> None:
    fence = after(7, 5, 9)
    request = kind(controller_epoch=controller_epoch, broker_epoch=7, sequence=sequence)
    assert fence.check(request) is answer


def after(own_epoch: int, controller_epoch: int, sequence: int) -> ControlFence:
    """The fence of a broker that has applied one request, of this number."""
    epochs = [0]
    fence = ControlFence(lambda: epochs[0])
    first = LeaderAndIsrRequest(
        controller_epoch=controller_epoch, broker_epoch=0, sequence=sequence
    )
    assert fence.check(first) is ErrorCode.NONE
    epochs[0] = own_epoch
    return fence
