"""Recognises a transactional call of librdkafka that does not return although brokers owe nothing.

`send_offsets_to_transaction(timeout)` can wait for ever: a broker that metadata no longer names is
decommissioned, and stays the cached group coordinator. The request waits for its connection, which
the ended thread never makes (confluentinc/librdkafka#5511), and nothing checks the timeout (#5456);
2.16.0 has both bugs. The evidence is in librdkafka's statistics: after the timeout of the call, no
request waits for a response.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

STATISTICS_MS = 500
GRACE_S = 15.0
"""A call may exceed its timeout by this much."""
POLL_S = 0.2


class OverdueError(Exception):
    """A call exceeds its timeout, and no request waits for a broker: librdkafka's own fault."""


class UnansweredError(Exception):
    """A call exceeds its timeout, and requests wait for brokers."""


class Statistics:
    """The requests of one client that wait for their responses, as its statistics say."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._idle_at = float("-inf")
        self.waiting: dict[str, int] = {}
        """By broker, as of the latest statistics."""

    @property
    def settings(self) -> dict[str, Any]:
        """For the client that is watched; its `poll` has to be called."""
        return {"statistics.interval.ms": STATISTICS_MS, "stats_cb": self.took}

    def took(self, text: str) -> None:
        """The statistics of now."""
        brokers = json.loads(text)["brokers"]
        self.waiting = {name: n for name, b in brokers.items() if (n := b["waitresp_cnt"])}
        if not self.waiting:
            self._idle_at = self.clock()

    def was_idle_since(self, at: float) -> bool:
        """Whether no request waited for a response, at some time after `at`."""
        return self._idle_at > at


def in_time(
    call: Callable[[], object],
    timeout_s: float,
    statistics: Statistics,
    poll: Callable[[], object],
    *,
    poll_s: float = POLL_S,
) -> None:
    """Make a call that has to return within `timeout_s`. `poll` serves the statistics.

    Raises what the call raises, OverdueError, UnansweredError; a call that does not return keeps
    its thread.
    """
    result: Future[object] = Future()
    late = statistics.clock() + timeout_s
    threading.Thread(target=_make, args=(call, result), name="call", daemon=True).start()
    while statistics.clock() < late + GRACE_S:
        if wait((result,), poll_s).done:
            result.result()
            return
        poll()
    if statistics.was_idle_since(late):
        raise OverdueError(
            f"a call with a timeout of {timeout_s:.0f} s does not return in "
            f"{timeout_s + GRACE_S:.0f} s, and no request waits for a response (its issue 5511)"
        )
    raise UnansweredError(f"requests without a response: {statistics.waiting}")


def _make(call: Callable[[], object], result: Future[object]) -> None:
    try:
        result.set_result(call())
    except BaseException as error:  # noqa: BLE001 - for the thread that waits
        result.set_exception(error)
