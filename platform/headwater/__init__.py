"""Headwater: a Kafka-compatible log whose brokers run inside Spark and whose history is Delta."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = ["Admin", "Consumer", "NewTopic", "Producer", "TopicPartition", "__version__"]

# What type checkers see of these is in __init__.pyi; here they load only when asked for, as a
# broker imports this package and must not pay for the client.
_LAZY = {
    "Admin": "headwater.client.admin.client",
    "Consumer": "headwater.client.consumer",
    "NewTopic": "headwater.client.values",
    "Producer": "headwater.client.producer",
    "TopicPartition": "headwater.client.values",
}


def __getattr__(name: str) -> Any:
    """Load the client's classes on first use (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
