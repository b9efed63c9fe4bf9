"""TLS of a broker's listeners: made from the configuration, renewed while the broker runs.

A key store or trust store is read again when its file's time or its config has changed, in
a thread, and counts for new connections. A bad one changes nothing, nor does a certificate with
another name (KIP-978).
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from headwater.clock import Clock
from headwater.config.keys import LISTENER_PREFIX, Values
from headwater.config.listener_values import listener_values
from headwater.errors import UsageError
from headwater.security.principal import PrincipalMapper, principal_mapper
from headwater.security.protocol import SecurityProtocol
from headwater.security.tls_context import server_context
from headwater.security.tls_stores import read_key_store, store_files
from headwater.security.x509 import Certificate
from headwater_broker.app.certificate_files import Stamp, stamp
from headwater_broker.app.config import NodeConfig
from headwater_broker.app.dynamic_config import DynamicConfigs
from headwater_broker.network.connection import Connection
from headwater_broker.network.handshake_threads import HandshakeThreads
from headwater_broker.network.listener import MakeConnection
from headwater_broker.network.tls_connection import TlsConnection
from headwater_broker.network.tls_endpoint import TlsEndpoint

RENEWAL_CHECK_S = 10.0
"""Interval of the checks whether a store's file has changed."""
CLIENT_AUTH = "ssl.client.auth"
MS_PER_S = 1000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """One listener's TLS, as its configuration and its files say now."""

    context: ssl.SSLContext
    mapper: PrincipalMapper
    certificate: Certificate
    allows_other_subject: bool
    allows_fewer_names: bool


def tls_values(properties: Mapping[str, str], name: str, protocol: SecurityProtocol) -> Values:
    """The values of one listener. Raises UsageError.

    With SASL clients need no certificate, unless the listener's own key asks for it (KIP-684).
    """
    if protocol.uses_sasl:
        properties = {key: text for key, text in properties.items() if key != CLIENT_AUTH}
    return listener_values(properties, name)


def tls_settings(values: Values, name: str, now_ms: int) -> TlsSettings:
    """TLS from a listener's values and its files. Raises UsageError with key and remedy."""
    try:
        context = server_context(values)
        store = read_key_store(values)
        assert store is not None  # or there were no context
        mapper = principal_mapper(values.string("ssl.principal.mapping.rules"))
    except UsageError as error:
        raise UsageError(f"listener {name}: {error}") from None
    certificate = store.certificate
    now = datetime.fromtimestamp(now_ms / MS_PER_S, UTC)
    if now >= certificate.not_after:
        raise UsageError(
            f"listener {name}: {store.where}: the certificate of {certificate.subject} expired at "
            f"{certificate.not_after:%Y-%m-%d %H:%M:%S} UTC; issue a new one"
        )
    if now < certificate.not_before:
        raise UsageError(
            f"listener {name}: {store.where}: the certificate of {certificate.subject} is not "
            f"valid before {certificate.not_before:%Y-%m-%d %H:%M:%S} UTC; check the clock"
        )
    _warn_of_readers(values, name)
    return TlsSettings(
        context,
        mapper,
        certificate,
        values.boolean("ssl.allow.dn.changes"),
        values.boolean("ssl.allow.san.changes"),
    )


def _warn_of_readers(values: Values, name: str) -> None:
    """Kafka starts with a key store that everybody can read, and so does this broker."""
    path = values.string("ssl.keystore.location")
    try:
        is_open = bool(path) and bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return  # replaced in this moment; the next renewal looks again
    if is_open:
        logger.warning("listener %s: every user of this machine can read the key store %s, which "
                       "a password alone can protect: chmod o-r", name, path)  # fmt: skip


class _ListenerTls:
    """The TLS of one listener, and when to renew it."""

    def __init__(
        self, name: str, protocol: SecurityProtocol, config: NodeConfig, clock: Clock,
        flights: HandshakeThreads,
    ) -> None:  # fmt: skip
        """Raises UsageError."""
        self.name = name
        self._protocol = protocol
        self._clock = clock
        self._values = tls_values(config.properties, name, protocol)
        self._stamps = _stamps(self._values)
        settings = tls_settings(self._values, name, clock.now_ms())
        self._certificate = settings.certificate
        self.endpoint = TlsEndpoint(settings.context, settings.mapper, flights, clock)

    def renew(self, properties: Mapping[str, str], *, is_changed: bool) -> None:
        """Read the stores again when a file or, if `is_changed`, the configuration is another one.

        In a thread. An error is logged, and the present TLS stays.
        """
        try:
            values = tls_values(properties, self.name, self._protocol)
            stamps = _stamps(values)
            if stamps == self._stamps and not is_changed:
                return
            self._stamps = stamps  # a bad file is not read again until it changes
            settings = tls_settings(values, self.name, self._clock.now_ms())
            self._check_names(settings)
        except UsageError as error:
            logger.error("the certificate stays as it was: %s", error)
            return
        self.endpoint.context, self.endpoint.mapper = settings.context, settings.mapper
        if settings.certificate != self._certificate:
            until = settings.certificate.not_after
            logger.info("listener %s has a new certificate, valid until %s", self.name, until)
        self._certificate = settings.certificate

    def _check_names(self, settings: TlsSettings) -> None:
        before, after = self._certificate, settings.certificate
        if before.subject != after.subject and not settings.allows_other_subject:
            raise UsageError(
                f"listener {self.name}: the new certificate is of {after.subject}, not of "
                f"{before.subject}; set ssl.allow.dn.changes=true to allow that"
            )
        lost = before.alternative_names - after.alternative_names
        if lost and not settings.allows_fewer_names:
            raise UsageError(
                f"listener {self.name}: the new certificate lacks {len(lost)} subject alternative "
                "names of the present one; set ssl.allow.san.changes=true to allow that"
            )


def _stamps(values: Values) -> list[Stamp]:
    """Raises UsageError when a file is missing."""
    try:
        return [stamp(path) for path in store_files(values)]
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}; name a file that exists") from None


class TlsListeners:
    """The TLS of all listeners that have it."""

    def __init__(self, dynamic: DynamicConfigs, clock: Clock) -> None:
        """Raises UsageError with listener, key and remedy."""
        config = dynamic.config
        secure = [name for name, protocol in config.protocols.items() if protocol.uses_tls]
        self._dynamic = dynamic
        self._flights = HandshakeThreads()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tls-renewal")
        self._listeners = {
            name: _ListenerTls(name, config.protocols[name], config, clock, self._flights)
            for name in secure
        }
        self._renewal: asyncio.Future[None] | None = None
        self._tls_properties = _tls_properties(config)
        if secure:
            dynamic.on_change.append(self._config_changed)

    def make_connection(self, name: str) -> MakeConnection:
        """Makes the connections of the listener `name`."""
        found = self._listeners.get(name)
        if found is None:
            return Connection
        return partial(TlsConnection, endpoint=found.endpoint)

    def check_files(self) -> None:
        """Renew the TLS of listeners whose files have changed."""
        if self._listeners and (self._renewal is None or self._renewal.done()):
            self._renew(is_changed=False)

    async def renewed(self) -> None:
        """Return when the renewal that runs is over."""
        if self._renewal is not None:
            await self._renewal

    async def close(self) -> None:
        """End the threads."""
        self._flights.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _config_changed(self, config: NodeConfig) -> None:
        properties = _tls_properties(config)
        if properties != self._tls_properties:
            self._tls_properties = properties
            self._renew(is_changed=True)

    def _renew(self, *, is_changed: bool) -> None:
        properties = dict(self._dynamic.config.properties)
        work = partial(self._renew_all, properties, is_changed=is_changed)
        self._renewal = asyncio.get_running_loop().run_in_executor(self._pool, work)
        self._renewal.add_done_callback(_log_failure)

    def _renew_all(self, properties: Mapping[str, str], *, is_changed: bool) -> None:
        for listener in self._listeners.values():
            listener.renew(properties, is_changed=is_changed)


def _tls_properties(config: NodeConfig) -> dict[str, str]:
    return {
        key: text
        for key, text in config.properties.items()
        if key.startswith(("ssl.", LISTENER_PREFIX))
    }


def _log_failure(renewal: asyncio.Future[None]) -> None:
    error = None if renewal.cancelled() else renewal.exception()
    if error is not None:
        logger.error("renewal of certificates failed", exc_info=error)
