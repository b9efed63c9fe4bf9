"""API keys whose handlers refuse every request: clients that do not find them in ApiVersions hang.

A key that is not registered (`headwater_broker.api.registry`) closes its connection, as in Kafka.
"""

from __future__ import annotations

ADVERTISED_REFUSALS: tuple[int, ...] = ()
"""None is left since consumer groups and share groups are served."""
