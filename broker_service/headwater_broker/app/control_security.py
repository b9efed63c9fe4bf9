"""TLS of the control plane: keys of the inter-broker listener, and `listener.name.control.ssl.*`.

Both sides show a certificate. Without TLS between brokers there is none here either.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.config.keys import LISTENER_PREFIX, Values
from headwater.config.listener_values import listener_values, split_override
from headwater.errors import UsageError
from headwater.security.principal import principal_mapper
from headwater.security.tls_stores import read_key_store, read_trust_store
from headwater_broker.app.config import NodeConfig
from headwater_broker.security.control_admission import ControlAdmission

CONTROL_LISTENER = "control"
KEY_STORES = ("ssl.keystore.location", "ssl.keystore.key")


@dataclass(frozen=True, slots=True)
class ControlTls:
    """Key, chain and trusted authorities in PEM."""

    key: bytes = field(repr=False)
    chain: bytes
    trusted: bytes


@dataclass(frozen=True, slots=True)
class ControlSecurity:
    """What a control port with mTLS needs."""

    tls: ControlTls
    admission: ControlAdmission


def control_security(config: NodeConfig) -> ControlSecurity | None:
    """None for a control plane without TLS. Raises UsageError with key and remedy."""
    has_own = any(
        (found := split_override(name)) is not None
        and found[0] == CONTROL_LISTENER
        and found[2] in KEY_STORES
        for name in config.properties
    )
    if not has_own and not config.protocols[config.inter_broker_listener].uses_tls:
        return None
    values = _values(config, config.inter_broker_listener)
    store, trusted = read_key_store(values), read_trust_store(values)
    if store is None:
        raise UsageError(
            "config ssl.keystore.location: not set; the control plane of a cluster with TLS "
            "between brokers needs the file of this broker's key and certificate chain"
        )
    if not trusted:
        raise UsageError(
            "config ssl.truststore.location: not set; the control plane lets in brokers whose "
            "certificates these authorities have signed: name the file of your own authority"
        )
    if store.password:
        raise UsageError(
            f"{store.where}: the control plane needs a private key without a password in PEM, or "
            "PKCS12: set listener.name.control.ssl.keystore.location to one that only the broker "
            "may read"
        )
    tls = ControlTls(store.key.encode(), "".join(store.chain).encode(), "".join(trusted).encode())
    mapper = principal_mapper(values.string("ssl.principal.mapping.rules"))
    return ControlSecurity(tls, ControlAdmission(mapper))


def _values(config: NodeConfig, listener: str) -> Values:
    """The inter-broker listener's values, with those of the control listener over them."""
    properties = dict(config.properties)
    for name, text in config.properties.items():
        found = split_override(name)
        if found is not None and found[:2] == (listener.lower(), ""):
            properties.setdefault(f"{LISTENER_PREFIX}{CONTROL_LISTENER}.{found[2]}", text)
    return listener_values(properties, CONTROL_LISTENER)
