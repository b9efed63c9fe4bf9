"""Credentials of this broker towards others: the inter-broker listener's keys, as of a client.

Certificates are read again when their files have changed, for new connections: brokers go on
replicating while their certificates and authorities are replaced.
"""

from __future__ import annotations

import ssl
from functools import partial

from headwater.config.listener_values import listener_properties, listener_values
from headwater.errors import UsageError
from headwater.ports.credentials import NO_CREDENTIALS, Credentials, SaslExchange
from headwater.security.client_keys import BY_NAME
from headwater.security.client_security import MECHANISM, PROTOCOL, credentials_of
from headwater.security.protocol import SecurityProtocol
from headwater_broker.app.certificate_files import CertificateFiles
from headwater_broker.app.config import NodeConfig

INTER_BROKER_MECHANISM = "sasl.mechanism.inter.broker.protocol"
FILES = ("ssl.keystore.location", "ssl.truststore.location")


def broker_credentials(config: NodeConfig) -> Credentials:
    """The credentials of connections to other brokers. Raises UsageError."""
    protocol = config.protocols[config.inter_broker_listener]
    if protocol is SecurityProtocol.PLAINTEXT:
        return NO_CREDENTIALS
    return BrokerCredentials(client_keys_of(config, protocol))


def client_keys_of(config: NodeConfig, protocol: SecurityProtocol) -> dict[str, str]:
    """The client's keys for the inter-broker listener, out of a broker's properties."""
    mechanism = config.values.string(INTER_BROKER_MECHANISM)
    if protocol.uses_sasl:
        _check_served(config, mechanism)
    properties = listener_properties(config.properties, config.inter_broker_listener, mechanism)
    found = {name: text for name, text in properties.items() if name in BY_NAME}
    if not protocol.uses_sasl:
        found = {name: text for name, text in found.items() if not name.startswith("sasl.")}
        return {**found, PROTOCOL: protocol.name}
    return {**found, PROTOCOL: protocol.name, MECHANISM: mechanism}


def _check_served(config: NodeConfig, mechanism: str) -> None:
    """Raises UsageError when the inter-broker listener refuses the brokers' own mechanism."""
    listener = config.inter_broker_listener
    served = listener_values(config.properties, listener).strings("sasl.enabled.mechanisms")
    if mechanism not in served:
        raise UsageError(
            f"config {INTER_BROKER_MECHANISM}: {mechanism} is not among sasl.enabled.mechanisms of "
            f"the listener {listener}: use one of {', '.join(served)}, or add {mechanism} there"
        )


class BrokerCredentials:
    """`headwater.ports.credentials.Credentials`, read again when a file has changed."""

    def __init__(self, properties: dict[str, str]) -> None:
        """Raises UsageError for keys or files that are not valid."""
        paths = [properties[key] for key in FILES if properties.get(key)]
        self._files = CertificateFiles(
            "towards brokers",
            paths,
            partial(credentials_of, properties),
        )

    def tls(self) -> ssl.SSLContext | None:
        """Settings of the TLS handshake, out of the files as they are now."""
        return self._files.now().tls()

    def sasl(self, host: str) -> SaslExchange | None:
        """A new exchange for a connection to the broker at `host`."""
        return self._files.now().sasl(host)
