"""Broker keys of security, with Kafka's names: TLS, SASL, ACLs, delegation tokens.

A key of TLS or SASL may be set for one listener: `listener.name.<listener>.KEY`, in lower case; and
a key of SASL for one mechanism of it: `listener.name.<listener>.<mechanism>.KEY` (KIP-103,
KIP-226; `headwater.config.listener_values`).
"""

from __future__ import annotations

from headwater.config.row import ConfigKey, Kind, Scope, Value

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
AUTHORIZERS = (STANDARD_AUTHORIZER, ACL_AUTHORIZER)
"""Names of the same authorizer: older properties files have the second one."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


def _row(
    name: str,
    kind: Kind,
    default: Value,
    doc: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    dynamic: bool = False,
) -> ConfigKey:
    return ConfigKey(
        name, kind, default, Scope.BROKER, unit, doc, minimum, maximum, choices, is_dynamic=dynamic
    )


def _secret(name: str, doc: str) -> ConfigKey:
    return ConfigKey(
        name, Kind.STRING, None, Scope.BROKER, "", doc, is_sensitive=True, is_dynamic=False
    )


_TLS = (
    _row("ssl.keystore.type", Kind.STRING, None,
         "Format of the key store; unset: as its content shows.", choices=("PEM", "PKCS12"),
         dynamic=True),
    _row("ssl.keystore.location", Kind.STRING, None,
         "File with the private key and its certificate chain.", dynamic=True),
    _secret("ssl.keystore.password", "Password of a PKCS12 key store."),
    _secret("ssl.keystore.key", "The private key in PEM, instead of a file."),
    _row("ssl.keystore.certificate.chain", Kind.STRING, None,
         "The certificate chain in PEM, instead of a file."),
    _secret("ssl.key.password", "Password of the private key."),
    _row("ssl.truststore.type", Kind.STRING, None,
         "Format of the trust store; unset: as its content shows.", choices=("PEM", "PKCS12"),
         dynamic=True),
    _row("ssl.truststore.location", Kind.STRING, None,
         "File with the certificates of trusted authorities; unset: those of the system.",
         dynamic=True),
    _secret("ssl.truststore.password", "Password of a PKCS12 trust store."),
    _row("ssl.truststore.certificates", Kind.STRING, None,
         "Certificates of trusted authorities in PEM, instead of a file."),
    _row("ssl.client.auth", Kind.STRING, "none",
         "Whether clients show a certificate on SSL listeners.",
         choices=("none", "requested", "required")),
    _row("ssl.enabled.protocols", Kind.LIST, ("TLSv1.2", "TLSv1.3"),
         "Versions of TLS.", choices=("TLSv1.2", "TLSv1.3")),
    _row("ssl.protocol", Kind.STRING, "TLSv1.3", "The highest version of TLS.",
         choices=("TLS", "TLSv1.2", "TLSv1.3")),
    _row("ssl.cipher.suites", Kind.LIST, (), "Cipher suites, by their IANA names; empty: all."),
    _row("ssl.endpoint.identification.algorithm", Kind.STRING, "https",
         "Whether brokers check the host name of other brokers; empty: not.",
         choices=("https", "")),
    _row("ssl.principal.mapping.rules", Kind.STRING, "DEFAULT",
         "Rules from a client certificate's distinguished name to a principal's name (KIP-371)."),
    _row("ssl.allow.dn.changes", Kind.BOOLEAN, False,
         "Whether a reloaded certificate may have another distinguished name."),
    _row("ssl.allow.san.changes", Kind.BOOLEAN, False,
         "Whether a reloaded certificate may lack some subject alternative names."),
)  # fmt: skip

_LISTENERS = (
    _row("security.inter.broker.protocol", Kind.STRING, "PLAINTEXT",
         "Security protocol between brokers; inter.broker.listener.name overrides it.",
         choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    _row("connection.failed.authentication.delay.ms", Kind.INT, 100,
         "A connection that failed to authenticate is closed after this time.", unit="ms",
         minimum=0),
    _row("connections.max.reauth.ms", Kind.LONG, 0,
         "Longest lifetime of a SASL session before it must re-authenticate (KIP-368); 0: as long "
         "as the credential.", unit="ms", minimum=0),
)  # fmt: skip

_SASL = (
    _row("sasl.enabled.mechanisms", Kind.LIST, ("GSSAPI",), "SASL mechanisms of clients.",
         choices=MECHANISMS),
    _row("sasl.mechanism.inter.broker.protocol", Kind.STRING, "GSSAPI",
         "SASL mechanism between brokers.", choices=MECHANISMS),
    _secret("sasl.jaas.config",
            "Login of brokers, and users of PLAIN, as a JAAS line; per listener and mechanism."),
    _row("sasl.server.max.receive.size", Kind.INT, 524_288,
         "Longest frame before the client is authenticated.", unit="bytes", minimum=512),
    _row("sasl.kerberos.service.name", Kind.STRING, None,
         "Kerberos service name of the brokers, the first part of their principal."),
    _row("sasl.kerberos.principal.to.local.rules", Kind.LIST, ("DEFAULT",),
         "Rules from Kerberos principals to the names of principals (auth_to_local)."),
    _row("sasl.oauthbearer.jwks.endpoint.url", Kind.STRING, None,
         "https or file URL of the keys that sign tokens."),
    _row("sasl.oauthbearer.jwks.endpoint.refresh.ms", Kind.LONG, 3_600_000,
         "Interval between two reads of the keys.", unit="ms", minimum=1),
    _row("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Kind.LONG, 100,
         "First pause after a failed read of the keys.", unit="ms", minimum=1),
    _row("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Kind.LONG, 10_000,
         "Longest pause after failed reads of the keys.", unit="ms", minimum=1),
    _row("sasl.oauthbearer.expected.issuer", Kind.STRING, None, "The issuer that tokens name."),
    _row("sasl.oauthbearer.expected.audience", Kind.LIST, (),
         "Audiences, one of which tokens name."),
    _row("sasl.oauthbearer.clock.skew.seconds", Kind.INT, 30,
         "Difference that is allowed between the clocks of issuer and broker.", unit="s",
         minimum=0),
    _row("sasl.oauthbearer.scope.claim.name", Kind.STRING, "scope", "Claim with the scope."),
    _row("sasl.oauthbearer.sub.claim.name", Kind.STRING, "sub",
         "Claim with the principal's name."),
)  # fmt: skip

_RIGHTS = (
    _row("authorizer.class.name", Kind.STRING, "",
         "The authorizer; empty: every operation is allowed.", choices=("", *AUTHORIZERS)),
    _row("super.users", Kind.STRING, "",
         "Principals to whom everything is allowed, `User:a;User:b`."),
    _row("allow.everyone.if.no.acl.found", Kind.BOOLEAN, False,
         "Whether a resource without ACLs is open to everyone."),
    _row("headwater.audit.topic", Kind.STRING, None,
         "Topic for audit lines (denials, administrators' changes) as JSON objects, besides the "
         "log; unset: none. Create it first."),
)  # fmt: skip

_TOKENS = (
    _secret("delegation.token.secret.key",
            "Key that signs delegation tokens, the same on all brokers; unset: there are none."),
    ConfigKey(
        "headwater.delegation.token.previous.secret.keys", Kind.LIST, (), Scope.BROKER, "",
        "Former values of delegation.token.secret.key: tokens that they signed stay valid.",
        is_sensitive=True, is_dynamic=False,
    ),
    _row("delegation.token.max.lifetime.ms", Kind.LONG, 604_800_000,
         "Longest lifetime of a delegation token.", unit="ms", minimum=1),
    _row("delegation.token.expiry.time.ms", Kind.LONG, 86_400_000,
         "A delegation token is to be renewed within this time.", unit="ms", minimum=1),
    _row("delegation.token.expiry.check.interval.ms", Kind.LONG, 3_600_000,
         "Interval of the removal of expired tokens.", unit="ms", minimum=1),
)  # fmt: skip

SECURITY_ROWS: tuple[ConfigKey, ...] = (*_TLS, *_LISTENERS, *_SASL, *_RIGHTS, *_TOKENS)
"""All of them."""
