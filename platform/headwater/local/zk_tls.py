"""TLS towards ZooKeeper out of a broker's settings (`zookeeper.ssl.*`, Kafka's `ZkConfigs`).

Brokers use it, and the supervisor that closes the session of a dead broker.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from headwater.config.keys import Values, broker_values
from headwater.config.placeholders import resolve_placeholders
from headwater.security.tls_context import client_context

PREFIX = "zookeeper."
TLS_KEYS = "zookeeper.ssl."
"""With what all of these keys begin."""
ENABLE = "zookeeper.ssl.client.enable"
NAMED = "zookeeper.ssl.endpoint.identification.algorithm"
KEYS = (
    "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.truststore.password",
    "zookeeper.ssl.truststore.type",
    NAMED,
)
"""Behind `zookeeper.` those of any other client."""


def zookeeper_tls(values: Values) -> ssl.SSLContext | None:
    """None where it is not enabled. Raises UsageError with key and remedy."""
    if not values.boolean(ENABLE):
        return None
    rows = {key: values.string(key) for key in KEYS}
    return client_context(
        {key.removeprefix(PREFIX): text for key, text in rows.items() if text or key == NAMED}
    )


def zookeeper_tls_of(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """The same from the properties of all brokers of a cluster. Raises UsageError."""
    return zookeeper_tls(broker_values(resolve_placeholders(tls_rows(properties))))


def tls_rows(properties: Mapping[str, str]) -> dict[str, str]:
    """Those of the properties that are about TLS towards ZooKeeper."""
    return {key: text for key, text in properties.items() if key.startswith(TLS_KEYS)}
