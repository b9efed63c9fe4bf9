"""Requests of an operator to the broker as a whole: its status, its table of a topic, its end.

Keys 10009, 10011 and 10012. The status document is made of the services that handlers use, so these
actions are no part of them: a listener is given both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID


async def _no_status() -> str:
    return "{}"


async def _no_table(_topic: str, _topic_id: UUID) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerControls:
    """The actions; those that are left out do nothing (a data plane without a broker around it)."""

    status: Callable[[], Awaitable[str]] = _no_status
    """The status document."""
    is_ready: Callable[[], bool] = bool
    """True while the broker serves clients."""
    read_table: Callable[[str, UUID], Awaitable[bool]] = _no_table
    """(topic, topic id) -> read the end of its Delta table now; False when it cannot be read."""
    stop: Callable[[str], None] = lambda _reason: None
    """Begin a controlled shutdown, for this reason."""


NO_CONTROLS = BrokerControls()
