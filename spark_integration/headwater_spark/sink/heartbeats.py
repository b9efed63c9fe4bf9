"""Heartbeats of an epoch, from a thread of each task that writes it.

The epoch's deadline counts from the last activity of any participant. A task may compute for
minutes between two rows, or before its first one while the other tasks have finished. So every
running task sends heartbeats, from the start of its work.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType

from headwater.client.blocking.epoch_client import EpochClient, EpochWriter
from headwater.client.epoch_errors import EpochAbortedError
from headwater.errors import HeadwaterError
from headwater.wire.epoch_values import EpochStatus

logger = logging.getLogger(__name__)

FIRST_INTERVAL_S = 1.0
"""Until a join has told the brokers' interval: a third of the least epoch.timeout.ms."""


class Heartbeats:
    """Sends heartbeats while its `with` block runs; `check` raises once the epoch is lost."""

    def __init__(
        self,
        writer: EpochWriter,
        connect: Callable[[], EpochClient],
        *,
        first_interval_s: float = FIRST_INTERVAL_S,
    ) -> None:
        """`connect` opens the thread's own client, before its first heartbeat. `first_interval_s`:
        until this task has joined."""
        self._writer = writer
        self._connect = connect
        self._interval_s = first_interval_s
        self._stopped = threading.Event()
        self._changed = threading.Event()
        """Ends a wait: the interval is another one, or nothing is to be sent any more."""
        self._has_joined = False
        self._lost: EpochStatus | None = None
        self._thread = threading.Thread(target=self._run, name="headwater-epoch", daemon=True)

    def __enter__(self) -> Heartbeats:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._changed.set()

    def joined(self, interval_s: float) -> None:
        """The task has a participant: from now on the epoch must stay open."""
        self._has_joined = True
        if interval_s != self._interval_s:
            self._interval_s = interval_s
            self._changed.set()

    def check(self) -> None:
        """Raise EpochAbortedError if a heartbeat found the epoch no longer open."""
        if self._lost is not None:
            raise EpochAbortedError(
                self._writer.sink,
                self._writer.epoch,
                f"epoch {self._writer.epoch} of sink {self._writer.sink} is {self._lost.name} while"
                " a task still writes it: the batch must be written again",
            )

    def _run(self) -> None:
        client: EpochClient | None = None
        try:
            while self._is_due():
                client = client or self._connect()
                self.beat(client)
        finally:
            if client is not None:
                client.close()

    def _is_due(self) -> bool:
        """Wait for an interval, from its last change on; False: nothing is to be sent any more."""
        while self._changed.wait(self._interval_s):
            self._changed.clear()
            if self._stopped.is_set():
                return False
        return not self._stopped.is_set()

    def beat(self, client: EpochClient) -> None:
        """Send one heartbeat. Without a participant its answer says nothing about this task."""
        has_joined = self._has_joined
        try:
            status = client.heartbeat(self._writer)
        except (OSError, HeadwaterError) as error:
            # The commit decides; a heartbeat that did not arrive only brings the deadline nearer.
            logger.warning("heartbeat of sink %s failed: %s", self._writer.sink, error)
            return
        if has_joined and status not in (EpochStatus.OPEN, EpochStatus.BUSY):
            self._lost = status
            self._stopped.set()
            self._changed.set()
