"""Fences control requests of deposed controllers, and of former lives of this broker (KIP-380)."""

from __future__ import annotations

from collections.abc import Callable

from headwater.errors import ErrorCode
from headwater.wire.control import LeaderAndIsrRequest, StopReplicaRequest
from headwater.wire.control_order import ControllerOrder

NOT_REGISTERED = -1


class ControlFence:
    """Remembers the newest controller epoch and request number of this broker."""

    def __init__(self, broker_epoch: Callable[[], int]) -> None:
        """`broker_epoch()`: this broker's epoch; -1 while it is not registered."""
        self._broker_epoch = broker_epoch
        self._order = ControllerOrder()

    @property
    def controller_epoch(self) -> int:
        """The newest controller epoch seen; -1: none."""
        return self._order.controller_epoch

    def check(self, request: LeaderAndIsrRequest | StopReplicaRequest) -> ErrorCode:
        """NONE when the request is to be applied."""
        if self._order.is_old(request.controller_epoch, request.sequence):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        own = self._broker_epoch()
        if request.broker_epoch > NOT_REGISTERED and (
            own == NOT_REGISTERED or request.broker_epoch < own
        ):
            # Not registered yet: the request is for the registration of a former life that the
            # store still holds. The records of that life may be lost with its power.
            return ErrorCode.STALE_BROKER_EPOCH
        self._order.advance(request.controller_epoch, request.sequence)
        return ErrorCode.NONE
