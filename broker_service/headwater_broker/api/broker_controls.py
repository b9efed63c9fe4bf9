"""Requests of an operator to the broker itself. Wired late: the status needs the services.

The requests (keys 10009, 10011, 10012) were calls of the control plane, which serves brokers only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID


async def _no_status() -> str:
    return "{}"


async def _no_table(_topic: str, _topic_id: UUID) -> bool:
    return False


@dataclass(slots=True)
class BrokerControls:
    """The actions; those of a broker without parts do nothing."""

    status: Callable[[], Awaitable[str]] = _no_status
    """The status document."""
    is_ready: Callable[[], bool] = bool
    """True while the broker serves clients."""
    read_table: Callable[[str, UUID], Awaitable[bool]] = _no_table
    """(topic, topic id) -> read the end of its Delta table now; False when it cannot be read."""
    stop: Callable[[str], None] = lambda _reason: None
    """Begin a controlled shutdown, for this reason."""
