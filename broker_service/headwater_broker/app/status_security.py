"""The guard of the status port: loopback, mTLS or a bearer token; the Host header always.

TLS comes from `listener.name.status.ssl.*`; with `ssl.client.auth=required` it is mTLS.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass

from headwater.config.listener_values import listener_values, own_keys
from headwater.errors import UsageError
from headwater.ports.control import plain_address
from headwater.security.bearer_token import TokenFile
from headwater.security.tls_context import server_context
from headwater.sockets import is_loopback
from headwater_broker.app.config import NodeConfig
from headwater_broker.app.exposure import has_authorizer, has_secure_listener
from headwater_broker.app.listener_protocols import STATUS_LISTENER
from headwater_broker.network.http_guard import HttpGuard

TOKEN_FILE = "status.bearer.token.file"
KEY_STORES = ("ssl.keystore.location", "ssl.keystore.key")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StatusSecurity:
    """The guard of the status port, and its TLS or None."""

    guard: HttpGuard
    tls: ssl.SSLContext | None


def status_security(config: NodeConfig) -> StatusSecurity:
    """Raises UsageError when a secure cluster would show its status to everybody."""
    values = listener_values(config.properties, STATUS_LISTENER)
    has_tls = not own_keys(config.properties, STATUS_LISTENER).keys().isdisjoint(KEY_STORES)
    tls = server_context(values) if has_tls else None
    path = config.values.string(TOKEN_FILE)
    token = TokenFile(TOKEN_FILE, path) if path else None
    is_mutual = tls is not None and tls.verify_mode is ssl.CERT_REQUIRED
    if config.status is not None and not is_mutual and token is None:
        _check_loopback(config, config.status.host)
    hosts = [*(a.host for a in config.advertised), *config.values.strings("status.allowed.hosts")]
    hosts.append(plain_address(config.control_advertised).rpartition(":")[0])
    if config.status is not None:
        hosts.append(config.status.host)
    return StatusSecurity(HttpGuard(hosts, token), tls)


def _check_loopback(config: NodeConfig, host: str) -> None:
    if is_loopback(host):
        return
    text = (
        f"config status.listener: everybody who reaches {host or 'any address of this host'} sees "
        f"topics, groups and lags: listen on 127.0.0.1, set {TOKEN_FILE}, or "
        "listener.name.status.ssl.* with ssl.client.auth=required"
    )
    if has_authorizer(config) or has_secure_listener(config):
        raise UsageError(text)
    logger.warning(text)
