"""Which control requests a broker obeys: by controller epoch and by its own broker epoch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.errors import ErrorCode
from headwater_broker.replication.replica_manager import ReplicaManager

UNREGISTERED = -1


@pytest.mark.parametrize(
    ("controller_epoch", "told_epoch", "own_epoch", "answer"),
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
    controller_epoch: int, told_epoch: int, own_epoch: int, answer: ErrorCode
) -> None:
    ports = SimpleNamespace(broker_epoch=lambda: own_epoch)
    manager = cast(Any, SimpleNamespace(controller_epoch=5, _ports=ports))
    assert ReplicaManager._fence(manager, controller_epoch, told_epoch) is answer
