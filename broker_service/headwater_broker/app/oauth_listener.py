"""OAUTHBEARER of a listener, from its configuration. It loads joserfc."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.clock import Clock
from headwater.config.keys import Values
from headwater.security.tls_context import client_context
from headwater_broker.security.jwks import Jwks, RefreshTimes, key_reader
from headwater_broker.security.jwt_validation import JwtRules
from headwater_broker.security.oauthbearer_mechanism import OAuthBearerMechanism

PREFIX = "sasl.oauthbearer."


def oauthbearer(values: Values, options: Mapping[str, str], clock: Clock) -> OAuthBearerMechanism:
    """The mechanism. `options` of OAuthBearerLoginModule may have `ssl.truststore.*` for the keys'
    endpoint. It reads the keys. Raises UsageError when it cannot."""
    tls = {name: text for name, text in options.items() if name.startswith("ssl.")}
    read = key_reader(values.string(f"{PREFIX}jwks.endpoint.url"), lambda: client_context(tls))
    endpoint = f"{PREFIX}jwks.endpoint."
    times = RefreshTimes(
        interval_s=values.integer(f"{endpoint}refresh.ms") / 1000,
        backoff_s=values.integer(f"{endpoint}retry.backoff.ms") / 1000,
        backoff_max_s=values.integer(f"{endpoint}retry.backoff.max.ms") / 1000,
    )
    rules = JwtRules(
        issuer=values.string(f"{PREFIX}expected.issuer"),
        audiences=values.strings(f"{PREFIX}expected.audience"),
        skew_s=values.integer(f"{PREFIX}clock.skew.seconds"),
        subject_claim=values.string(f"{PREFIX}sub.claim.name"),
        scope_claim=values.string(f"{PREFIX}scope.claim.name"),
    )
    return OAuthBearerMechanism(rules, Jwks(read, times, clock), clock)
