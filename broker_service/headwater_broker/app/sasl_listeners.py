"""The SASL mechanisms of each listener, from a broker's configuration."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headwater.clock import Clock
from headwater.config.keys import Values
from headwater.config.listener_values import listener_values
from headwater.entropy import Entropy
from headwater.errors import UsageError
from headwater.extras import install_hint
from headwater.security.jaas import JaasLogin, LoginModule, parse_jaas
from headwater.security.oauthbearer import OAUTHBEARER
from headwater.security.plain import PLAIN
from headwater.security.protocol import SecurityProtocol
from headwater.security.scram_credential import ScramMechanism
from headwater_broker.app.config import NodeConfig
from headwater_broker.security.mechanism import Mechanism
from headwater_broker.security.plain_mechanism import PlainMechanism
from headwater_broker.security.sasl_server_authenticator import (
    FailureDelay,
    SaslListener,
    no_delay,
)
from headwater_broker.security.scram_credentials import ScramCredentials, UserConfigs
from headwater_broker.security.scram_mechanism import (
    FindToken,
    ScramParts,
    ScramServerMechanism,
    no_tokens,
)
from headwater_broker.security.session import MakeAuthenticator

ENABLED = "sasl.enabled.mechanisms"
JAAS = "sasl.jaas.config"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslParts:
    """The parts of the broker that mechanisms use."""

    users: Callable[[], UserConfigs]
    """The configs of the metadata store's user nodes, as they are now."""
    secret: bytes = field(repr=False)
    clock: Clock
    entropy: Entropy
    find_token: FindToken = no_tokens
    failure_delay: FailureDelay = no_delay


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a mechanism's settings come from."""

    values: Values
    """As they hold for the listener and the mechanism."""
    listener: str
    mechanism: str
    parts: SaslParts

    @property
    def jaas_key(self) -> str:
        """The key to set, for errors."""
        return f"listener.name.{self.listener.lower()}.{self.mechanism.lower()}.{JAAS}"


def _login(source: _Source, module: LoginModule, needs: str, options: str) -> JaasLogin:
    """The JAAS line of a mechanism. `needs`: what for; `options`: an example of its options."""
    key = source.jaas_key
    if not source.values.is_set(JAAS):
        raise UsageError(
            f"config {key}: {source.mechanism} needs {needs}; set it to `{module.value} required "
            f"{options};`"
        )
    login = parse_jaas(source.values.string(JAAS), f"config {key}")
    if login.module is not module:
        raise UsageError(f"config {key}: {source.mechanism} needs {module.value}")
    return login


def _plain(source: _Source) -> Mechanism:
    example = 'user_alice="her password"'
    users = _login(source, LoginModule.PLAIN, "its users", example).users()
    if not users:
        raise UsageError(
            f"config {source.jaas_key}: PLAIN on {source.listener} has no users, so nobody could "
            f"log in; add {example}, or take PLAIN out of {ENABLED}"
        )
    return PlainMechanism(users)


def _scram(source: _Source) -> Mechanism:
    parts = source.parts
    credentials = ScramCredentials(parts.users, parts.secret)
    needs = ScramParts(credentials, parts.clock, parts.entropy, parts.find_token)
    return ScramServerMechanism(ScramMechanism(source.mechanism), needs)


def _oauthbearer(source: _Source) -> Mechanism:
    """Refuses to start without keys, issuer and audience (CVE-2026-33557): each of them missing
    would let tokens of others in."""
    values, prefix = source.values, "sasl.oauthbearer."
    needed = {
        "jwks.endpoint.url": "the https or file URL of the keys that sign tokens",
        "expected.issuer": "the issuer that tokens name in `iss`",
    }
    for name, what in needed.items():
        if not values.string(prefix + name):
            raise _oauth_refusal(source, prefix + name, what)
    if not values.strings(f"{prefix}expected.audience"):
        raise _oauth_refusal(source, f"{prefix}expected.audience", "what tokens name in `aud`")
    options: Mapping[str, str] = {}
    if values.is_set(JAAS):
        options = parse_jaas(values.string(JAAS), f"config {source.jaas_key}").options
    # Loaded here: joserfc takes a tenth of a second and 20 MB.
    builder = importlib.import_module("headwater_broker.app.oauth_listener")
    made: Mechanism = builder.oauthbearer(values, options, source.parts.clock)
    return made


def _oauth_refusal(source: _Source, key: str, what: str) -> UsageError:
    return UsageError(
        f"config {key}: not set; OAUTHBEARER on {source.listener} lets nobody in without it: set "
        f"it to {what}"
    )


def _gssapi(source: _Source) -> Mechanism:
    values = source.values
    example = 'keyTab="..." principal="kafka/host@REALM"'
    login = _login(source, LoginModule.KERBEROS, "a key table", example)
    try:
        module = importlib.import_module("headwater_broker.security.gssapi_mechanism")
    except ImportError:
        raise UsageError(
            f"config {ENABLED}: GSSAPI needs gssapi and the system's libkrb5: "
            + install_hint("kerberos")
        ) from None
    service = values.string("sasl.kerberos.service.name")
    rules = values.strings("sasl.kerberos.principal.to.local.rules")
    made: Mechanism = module.GssapiMechanism(login.options, service, rules)
    return made


BUILDERS: dict[str, Callable[[_Source], Mechanism]] = {
    PLAIN: _plain,
    OAUTHBEARER: _oauthbearer,
    "GSSAPI": _gssapi,
    ScramMechanism.SCRAM_SHA_256.value: _scram,
    ScramMechanism.SCRAM_SHA_512.value: _scram,
}
"""By the name of the mechanism."""


def sasl_authenticator(
    config: NodeConfig, listener: str, parts: SaslParts
) -> MakeAuthenticator | None:
    """Makes the authenticators of a listener's connections; None where it has no SASL.

    Raises UsageError for a mechanism that is not served, or lacks its settings.
    """
    protocol = config.protocols[listener]
    if not protocol.uses_sasl:
        return None
    mechanisms: dict[str, Mechanism] = {}
    max_reauth_ms: dict[str, int] = {}
    for name in listener_values(config.properties, listener).strings(ENABLED):
        values = listener_values(config.properties, listener, name)
        build = BUILDERS.get(name)
        if build is None:
            raise UsageError(
                f"config {ENABLED}: listener {listener} cannot serve {name}; "
                f"use some of {', '.join(BUILDERS)}"
            )
        mechanisms[name] = build(_Source(values, listener, name, parts))
        max_reauth_ms[name] = values.integer("connections.max.reauth.ms")
    if not mechanisms:
        raise UsageError(f"config {ENABLED}: listener {listener} has no mechanism; add one")
    if PLAIN in mechanisms and protocol is SecurityProtocol.SASL_PLAINTEXT:
        logger.warning("listener %s: passwords of PLAIN cross the network unencrypted", listener)
    return SaslListener(mechanisms, max_reauth_ms, parts.failure_delay).authenticator
