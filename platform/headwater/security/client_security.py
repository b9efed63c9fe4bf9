"""`credentials_of`: what a client shows to brokers, from Kafka's client keys.

Secrets are resolved once, here. A `ClientCredentials` has no secret in its repr and is not pickled:
Spark's tasks get a delegation token instead.
"""

from __future__ import annotations

import importlib
import ssl
from collections.abc import Callable, Mapping
from typing import NoReturn

from headwater.errors import UsageError
from headwater.extras import install_hint
from headwater.ports.credentials import NO_CREDENTIALS, Credentials, SaslExchange
from headwater.security.client_keys import BY_NAME, security_properties
from headwater.security.jaas import JaasLogin, LoginModule, parse_jaas
from headwater.security.oauth_token_source import token_source
from headwater.security.oauthbearer import OAUTHBEARER, OAuthBearerExchange
from headwater.security.plain import PlainExchange
from headwater.security.protocol import SecurityProtocol, security_protocol
from headwater.security.scram_exchange import ScramExchange
from headwater.security.secret import resolved
from headwater.security.tls_context import client_context

PROTOCOL = "security.protocol"
MECHANISM = "sasl.mechanism"
JAAS = "sasl.jaas.config"
SERVICE = "sasl.kerberos.service.name"
USERNAME, PASSWORD = "sasl.username", "sasl.password"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES = {
    "PLAIN": LoginModule.PLAIN,
    "SCRAM-SHA-256": LoginModule.SCRAM,
    "SCRAM-SHA-512": LoginModule.SCRAM,
    "OAUTHBEARER": LoginModule.OAUTHBEARER,
    "GSSAPI": LoginModule.KERBEROS,
}

NewExchange = Callable[[str], SaslExchange]
"""The broker's host -> a new exchange for a connection to it."""


class ClientCredentials:
    """The credentials of one client (`headwater.ports.credentials.Credentials`)."""

    def __init__(
        self,
        protocol: SecurityProtocol,
        tls: ssl.SSLContext | None,
        new_exchange: NewExchange | None,
        shown: str,
    ) -> None:
        """`shown`: mechanism and user for `repr`, without any secret."""
        self.protocol = protocol
        self._tls = tls
        self._new_exchange = new_exchange
        self._shown = shown

    def tls(self) -> ssl.SSLContext | None:
        """Settings of the TLS handshake; None: no TLS."""
        return self._tls

    def sasl(self, host: str) -> SaslExchange | None:
        """A new exchange for a connection to the broker at `host`; None: no SASL."""
        return None if self._new_exchange is None else self._new_exchange(host)

    def __repr__(self) -> str:
        return f"<credentials: {self._shown}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("credentials hold secrets and are not pickled: give tasks a token instead")


def credentials_of(properties: Mapping[str, str]) -> Credentials:
    """The credentials of a client with these properties; those that are not about security are not
    looked at. Raises UsageError that names the option and a remedy."""
    found = security_properties(properties)
    protocol = _protocol(found)
    if protocol is SecurityProtocol.PLAINTEXT:
        return NO_CREDENTIALS
    values = {
        name: resolved(name, text) if BY_NAME[name].takes_reference else text
        for name, text in found.items()
    }
    tls = client_context(values) if protocol.uses_tls else None
    if not protocol.uses_sasl:
        return ClientCredentials(protocol, tls, None, protocol.name)
    new_exchange, shown = _login(values)
    return ClientCredentials(protocol, tls, new_exchange, f"{protocol.name}, {shown}")


def _protocol(found: Mapping[str, str]) -> SecurityProtocol:
    given = found.get(PROTOCOL)
    if given is not None:
        return security_protocol(given)
    if found:
        first = min(found)
        fit = "SASL_SSL" if any(name.startswith("sasl.") for name in found) else "SSL"
        raise UsageError(
            f"{first} is set, but {PROTOCOL} is not, which means PLAINTEXT: set {PROTOCOL}={fit}"
        )
    return SecurityProtocol.PLAINTEXT


def _login(values: Mapping[str, str]) -> tuple[NewExchange, str]:
    """A maker of exchanges, and mechanism and user for `repr`."""
    jaas = parse_jaas(values[JAAS]) if values.get(JAAS) else None
    mechanism = _mechanism(values, jaas)
    if jaas is not None and jaas.module is not _MODULES[mechanism]:
        raise UsageError(
            f"{JAAS} names {_short(jaas.module)}, but {MECHANISM} is {mechanism}, which needs "
            f"{_short(_MODULES[mechanism])}"
        )
    if mechanism == "PLAIN" or mechanism in SCRAM_MECHANISMS:
        return _password_login(mechanism, values, jaas)
    if mechanism == OAUTHBEARER:
        options = {} if jaas is None else dict(jaas.options)
        if "clientSecret" in options:
            secret = f"clientSecret of {JAAS}"
            options["clientSecret"] = resolved(secret, options["clientSecret"])
        source = token_source(values, options)
        return lambda _host: OAuthBearerExchange(source), mechanism
    return _kerberos_login(values, jaas), mechanism


def _kerberos_login(values: Mapping[str, str], jaas: JaasLogin | None) -> NewExchange:
    options = {} if jaas is None else jaas.options
    service = values.get(SERVICE) or options.get("serviceName", "")
    if not service:
        raise UsageError(
            f"{SERVICE} is not set: set it to the first part of the brokers' principal"
        )
    try:
        module = importlib.import_module("headwater.security.gssapi_exchange")
    except ImportError:
        raise UsageError(
            f"{MECHANISM} is GSSAPI, which needs gssapi and the system's libkrb5: "
            + install_hint("kerberos")
        ) from None
    new: Callable[..., SaslExchange] = module.GssapiExchange
    return lambda host: new(service, host, options)


def _mechanism(values: Mapping[str, str], jaas: JaasLogin | None) -> str:
    given = values.get(MECHANISM, "").strip().upper()
    if not given:
        if jaas is None and USERNAME not in values:
            raise UsageError(f"{MECHANISM} is not set: set it to one of {', '.join(_MODULES)}")
        fit = "PLAIN" if jaas is not None and jaas.module is LoginModule.PLAIN else "SCRAM-SHA-512"
        raise UsageError(
            f"{MECHANISM} is not set, which means GSSAPI to Kafka's clients: set it to {fit}"
        )
    if given not in _MODULES:
        raise UsageError(f"{MECHANISM} is {values[MECHANISM]!r}: use one of {', '.join(_MODULES)}")
    return given


def _password_login(
    mechanism: str, values: Mapping[str, str], jaas: JaasLogin | None
) -> tuple[NewExchange, str]:
    options = {} if jaas is None else jaas.options
    user = options.get("username", values.get(USERNAME, ""))
    secret = options.get("password", values.get(PASSWORD, ""))
    user, secret = resolved(f"username of {JAAS}", user), resolved(f"password of {JAAS}", secret)
    for what, text in (("username", user), ("password", secret)):
        if not text:
            raise UsageError(f"{mechanism} needs a {what}: set sasl.{what}, or {what} in {JAAS}")
    is_token = options.get("tokenauth", "").lower() == "true"
    shown = f"{mechanism}, {'token' if is_token else 'user'} {user}"
    if mechanism == "PLAIN":
        PlainExchange(user, secret)  # a wrong name is an error at once
        return lambda _host: PlainExchange(user, secret), shown
    ScramExchange(mechanism, user, secret, is_token)
    return lambda _host: ScramExchange(mechanism, user, secret, is_token), shown


def _short(module: LoginModule) -> str:
    return module.value.rpartition(".")[2]
