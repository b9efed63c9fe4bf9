"""TLS of the control plane: keys of the inter-broker listener, and `listener.name.control.ssl.*`.

Both sides show a certificate. A broker's address says whether its port has TLS (`tls://`), so that
rolling restarts turn it on: first every broker gets keys, then each one its port with TLS.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial

from headwater.config.keys import Values, broker_values
from headwater.config.listener_values import listener_properties, own_keys
from headwater.errors import UsageError
from headwater.security.principal import PrincipalMapper, principal_mapper
from headwater.security.tls_stores import read_key_store, read_trust_store, store_files
from headwater.sockets import is_loopback
from headwater_broker.app.certificate_files import CertificateFiles
from headwater_broker.app.config import NodeConfig
from headwater_broker.app.exposure import has_authorizer, has_secure_listener
from headwater_broker.app.listener_protocols import CONTROL_LISTENER, MAP_KEY

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControlTls:
    """Key, chain and trusted authorities in PEM."""

    key: bytes = field(repr=False)
    chain: bytes
    trusted: bytes


class ControlKeys:
    """The keys, read again when a file has changed: certificates are replaced without a restart."""

    def __init__(self, values: Values) -> None:
        """Raises UsageError with key and remedy."""
        read = partial(_read, values)
        self._files = CertificateFiles("on the control plane", store_files(values), read)

    def now(self) -> ControlTls:
        """The present keys: the same object while no file changes."""
        return self._files.now()


@dataclass(frozen=True, slots=True)
class ControlSecurity:
    """The certificates that a broker shows and asks for on the control plane."""

    keys: ControlKeys
    mapper: PrincipalMapper | None
    """Certificates to principals; None while this broker's own port is without TLS."""


def control_security(config: NodeConfig) -> ControlSecurity | None:
    """None without keys. Raises UsageError with key and remedy, also when a cluster with an
    authorizer would obey everybody who reaches its control port."""
    values = control_values(config)
    if not config.control_tls:
        _check_exposure(config)
        has_keys = read_key_store(values) is not None and bool(read_trust_store(values))
        return ControlSecurity(ControlKeys(values), None) if has_keys else None
    mapper = principal_mapper(values.string("ssl.principal.mapping.rules"))
    return ControlSecurity(ControlKeys(values), mapper)


def _check_exposure(config: NodeConfig) -> None:
    """A port without TLS, off loopback. The rolling move to TLS meets the warning only: its
    authorizer comes last."""
    host = config.control.host
    if is_loopback(host) or not (has_authorizer(config) or has_secure_listener(config)):
        return
    text = (
        f"config control.listener: everybody who reaches {host or 'any address of this host'} acts "
        f"as a broker, past every right: add CONTROL:SSL to {MAP_KEY}, with ssl.keystore.location "
        "and ssl.truststore.location, or listen on 127.0.0.1"
    )
    if has_authorizer(config):
        raise UsageError(text)
    logger.warning(text)


def control_values(config: NodeConfig) -> Values:
    """The inter-broker listener's values, with those of the control listener over them."""
    given = config.properties
    plain = listener_properties(given, config.inter_broker_listener)
    return broker_values({**plain, **own_keys(given, CONTROL_LISTENER)})


def _read(values: Values) -> ControlTls:
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
    return ControlTls(store.key.encode(), "".join(store.chain).encode(), "".join(trusted).encode())
