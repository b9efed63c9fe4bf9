"""Whether a port without credentials is open to other machines, in a cluster that is not open."""

from __future__ import annotations

from headwater.security.protocol import SecurityProtocol
from headwater_broker.app.config import NodeConfig

AUTHORIZER_KEY = "authorizer.class.name"


def has_authorizer(config: NodeConfig) -> bool:
    """Whether rights are checked."""
    return bool(config.values.string(AUTHORIZER_KEY))


def has_secure_listener(config: NodeConfig) -> bool:
    """Whether some listener is not PLAINTEXT."""
    return any(config.protocols[a.name] is not SecurityProtocol.PLAINTEXT for a in config.listeners)
