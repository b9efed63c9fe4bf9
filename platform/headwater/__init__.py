"""Headwater: a Kafka-compatible log whose brokers run inside Spark and whose history is Delta."""

from __future__ import annotations

import importlib
from typing import Any

from headwater.exports import EXPORTS

__version__ = "0.1.0"
__all__ = [*EXPORTS, "__version__"]  # noqa: PLE0604 - names of the client, loaded lazily


def __getattr__(name: str) -> Any:
    """Load a name of the client on first use (PEP 562).

    A broker imports this package too, and must not load the client for it.
    """
    if name not in EXPORTS:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    return getattr(importlib.import_module(EXPORTS[name]), name)


def __dir__() -> list[str]:
    """The names that can be imported, for completion in an interactive shell."""
    return sorted({*globals(), *EXPORTS})
