"""A real broker in the process of a test: `InProcessBroker`, and fixtures for pytest.

Loaded on first use: pytest imports this package in every run (entry point `pytest11`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater_broker.testing.broker import BrokerFailedError, InProcessBroker

__all__ = ["BrokerFailedError", "InProcessBroker"]


def __getattr__(name: str) -> Any:
    """Load the broker on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'headwater_broker.testing' has no attribute {name!r}")
    from headwater_broker.testing import broker  # noqa: PLC0415 - loads the whole broker

    return getattr(broker, name)
