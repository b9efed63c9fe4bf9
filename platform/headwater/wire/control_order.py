"""Which of a controller's requests count: those that are newer than all that was taken.

A call that its controller has given up (no answer in time, a connection that broke) may still be on
its way, in a socket of a process that stood still. It is repeated over another connection, with
what was decided since, and that may be read first: then the old one must change nothing any more,
though controller, broker and most partitions still have the epochs that it names.
"""

from __future__ import annotations

from headwater.wire.control import NOT_NUMBERED


class ControllerOrder:
    """The newest request taken: the controller's epoch, and its number in that term.

    `controller_epoch` is -1 before the first.
    """

    def __init__(self) -> None:
        self.controller_epoch = -1
        self._sequence = NOT_NUMBERED

    def is_old(self, controller_epoch: int, sequence: int) -> bool:
        """Of a deposed controller, or overtaken by a later request of the same term."""
        if controller_epoch != self.controller_epoch:
            return controller_epoch < self.controller_epoch
        return sequence != NOT_NUMBERED and sequence <= self._sequence

    def take(self, controller_epoch: int, sequence: int) -> None:
        """This request is carried out: what is older counts no more."""
        self.controller_epoch = controller_epoch
        self._sequence = sequence
