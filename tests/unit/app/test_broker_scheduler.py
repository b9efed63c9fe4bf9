"""Which of a broker's periodic work an operator's intervals may put off, and which not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

from headwater_broker.app.lifecycle import Life
from headwater_broker.app.wiring import Node

NEVER_MS = 2**63 - 1
"""Kafka's default of log.flush.scheduler.interval.ms."""


def repeated(node: Any) -> dict[str, tuple[float, Any]]:
    """(seconds, work) by the name of what `Life` repeats."""
    found: dict[str, tuple[float, Any]] = {}

    async def start() -> None:
        life = Life(cast(Node, node), lambda told: None)

        def every(name: str, seconds: float, work: Any, **_: object) -> None:
            found[name] = seconds, work

        life._ticks = cast(Any, SimpleNamespace(every=every))
        life._start_ticks()

    asyncio.run(start())
    return found


def test_disk_errors_met_off_the_loop_do_not_wait_for_a_flush_that_never_comes() -> None:
    node = MagicMock()
    node.config.values.integer.return_value = NEVER_MS
    ticks = repeated(node)
    assert ticks["flush"][0] > 10**12
    assert ticks["files"] == (1, node.logs.maintain_files)
