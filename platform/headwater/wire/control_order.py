"""The order of a controller's requests: a broker ignores a request older than one it has applied.

A call that the controller has given up (no reply in time, a broken connection) may still be on its
way, in a socket of a process that stood still. The controller repeats it over another connection,
with later decisions, and the broker may read that one first. Then the old request must change
nothing, though its controller epoch, broker epoch and most leader epochs are still current.
"""

from __future__ import annotations

from headwater.wire.control import NOT_NUMBERED


class ControllerOrder:
    """The latest request applied: its controller epoch (-1 before the first) and its sequence."""

    def __init__(self) -> None:
        self.controller_epoch = -1
        self._sequence = NOT_NUMBERED

    def is_old(self, controller_epoch: int, sequence: int) -> bool:
        """Whether the request is of a deposed controller, or a later one was applied before."""
        if controller_epoch != self.controller_epoch:
            return controller_epoch < self.controller_epoch
        return sequence != NOT_NUMBERED and sequence <= self._sequence

    def advance(self, controller_epoch: int, sequence: int) -> None:
        """Record that this request is applied: older ones are ignored from now on."""
        self.controller_epoch = controller_epoch
        self._sequence = sequence
