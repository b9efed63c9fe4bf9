"""A configuration of security that is wrong ends the start with one line: what is wrong, what to
do. One row per mistake."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headwater.config.rows_security import STANDARD_AUTHORIZER
from headwater.errors import UsageError
from headwater.system import SystemClock, SystemEntropy
from headwater_broker.app.broker_credentials import broker_credentials
from headwater_broker.app.config import NodeConfig, from_properties
from headwater_broker.app.control_security import control_security
from headwater_broker.app.sasl_listeners import SaslParts, sasl_authenticator
from headwater_broker.app.tls_listeners import tls_settings, tls_values
from headwater_broker.app.zookeeper_security import zookeeper_security
from headwater_broker.security.audit_log import AuditLog
from headwater_broker.security.standard_authorizer import StandardAuthorizer
from tls_authority import DAY, PASSWORD, Authority

AUTHORITY = Authority()
LEAF, OTHER = AUTHORITY.leaf(), AUTHORITY.leaf()
NOW = datetime.now(UTC)
FILES: dict[str, bytes] = {
    "ca.pem": AUTHORITY.pem.encode(),
    "good.pem": LEAF.pem.encode(),
    "good.p12": LEAF.pkcs12,
    "trust.p12": AUTHORITY.java_truststore,
    "other-key.pem": (OTHER.key_pem + LEAF.certificate_pem).encode(),
    "expired.pem": AUTHORITY.leaf(not_before=NOW - 3 * DAY, not_after=NOW - DAY).pem.encode(),
    "future.pem": AUTHORITY.leaf(not_before=NOW + DAY, not_after=NOW + 2 * DAY).pem.encode(),
    "encrypted.pem": (LEAF.encrypted_key_pem + LEAF.certificate_pem).encode(),
    "no-key.pem": LEAF.certificate_pem.encode(),
    "damaged.pem": (
        LEAF.key_pem + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    ).encode(),
    "java.jks": b"\xfe\xed\xfe\xed" + bytes(100),
    "noise": bytes(range(128, 256)),
    "empty.pem": b"",
    "no-keys.json": b'{"keys": []}',
    "noise.json": b"nothing",
}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
JNDI = "com.sun.security.auth.module.JndiLoginModule required"
STORE, TRUST = "ssl.keystore.location", "ssl.truststore.location"
BASE = {"broker.id": "0", "zookeeper.connect": "localhost:1", "log.dirs": "unused", TRUST: "ca.pem"}


def ssl_listener(**properties: str) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://localhost:0,SSL://localhost:0",
        **{f"ssl.{name.replace('_', '.')}": value for name, value in properties.items()},
    }


def sasl_listener(mechanisms: str, **properties: str) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://localhost:0,SASL_PLAINTEXT://localhost:0",
        "sasl.enabled.mechanisms": mechanisms,
        **{f"sasl.{name.replace('_', '.')}": value for name, value in properties.items()},
    }


def jaas_of(mechanism: str, line: str) -> dict[str, str]:
    key = f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config"
    return {**sasl_listener(mechanism), key: line}


def authorizer(**properties: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return {"authorizer.class.name": STANDARD_AUTHORIZER, **named}


def oauth(keys: str, **expected: str) -> dict[str, str]:
    named = {f"oauthbearer_expected_{name}": value for name, value in expected.items()}
    if keys:
        named["oauthbearer_jwks_endpoint_url"] = keys
    return sasl_listener("OAUTHBEARER", **named)


MISTAKES: dict[str, tuple[dict[str, str], str]] = {
    "no key store": (ssl_listener(), f"config {STORE}: not set; a listener with TLS needs the"),
    "no such file": (ssl_listener(keystore_location="gone"), "gone: No such .*; name a file that"),
    "another key": (ssl_listener(keystore_location="other-key.pem"), "not the private key's: put"),
    "expired": (ssl_listener(keystore_location="expired.pem"), "expired at .*; issue a new one"),
    "not yet valid": (ssl_listener(keystore_location="future.pem"), "not valid before .*; check"),
    "no password": (
        ssl_listener(keystore_location="encrypted.pem"), r"is encrypted; set ssl\.key\.password"
    ),
    "a password for all": (
        ssl_listener(keystore_location="encrypted.pem", key_password="wrong"),
        r"without a password in PEM, or PKCS12: set listener\.name\.control",
    ),
    "wrong password": (
        {
            **ssl_listener(keystore_location="encrypted.pem", key_password="wrong"),
            "listener.name.control.ssl.keystore.location": "good.pem",
        },
        r"ssl\.key\.password is wrong, or the key is damaged",
    ),
    "wrong password of PKCS12": (
        ssl_listener(keystore_location="good.p12", keystore_password="wrong"), "of this password"
    ),
    "certificates only": (
        ssl_listener(keystore_location="no-key.pem"), "0 private keys.*use one key and its chain"
    ),
    "trusted certificates as key store": (
        ssl_listener(keystore_location="trust.p12", keystore_password=PASSWORD), "no private key"
    ),
    "damaged": (ssl_listener(keystore_location="damaged.pem"), "is damaged; issue both anew"),
    "JKS": (ssl_listener(keystore_location="java.jks"), "convert it: keytool -importkeystore"),
    "type JKS": (
        ssl_listener(keystore_location="good.pem", keystore_type="JKS"), "use PEM or PKCS12"
    ),
    "another type": (
        ssl_listener(keystore_location="good.pem", keystore_type="PKCS12"), "file holds PEM, the"
    ),
    "noise": (ssl_listener(keystore_location="noise"), "neither PEM nor PKCS12"),
    "nobody is trusted": (
        {**ssl_listener(keystore_location="good.pem", client_auth="required"), TRUST: "empty.pem"},
        "empty.pem: no certificate in it; use PEM or PKCS12",
    ),
    "old TLS": (
        ssl_listener(keystore_location="good.pem", enabled_protocols="TLSv1.1"), "use TLSv1.2 or"
    ),
    "unknown suite": (
        ssl_listener(keystore_location="good.pem", cipher_suites="NULL"), "not served; use one of"
    ),
    "unknown protocol": (
        {"listeners": "X://localhost:0", "listener.security.protocol.map": "X:TLS"},
        "use one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
    ),
    "unknown mechanism": (sasl_listener("CRAM-MD5"), "'CRAM-MD5' is not valid; use PLAIN or"),
    "no mechanism": (sasl_listener(""), "has no mechanism; add one"),
    "PLAIN without a line": (sasl_listener("PLAIN"), "plain.sasl.jaas.config: PLAIN needs its us"),
    "PLAIN without users": (jaas_of("PLAIN", f"{PLAIN};"), "has no users.*; add user_alice"),
    "PLAIN with another module": (jaas_of("PLAIN", f'{SCRAM} user_a="x";'), "needs .*PlainLogin"),
    "a module of Java's": (jaas_of("PLAIN", f"{JNDI};"), "is not known; known are PlainLoginM"),
    "a line that does not end": (jaas_of("PLAIN", f'{PLAIN} user_a="x'), "does not end; write it"),
    "GSSAPI without a key table": (sasl_listener("GSSAPI"), 'keyTab="..." principal="kafka/host'),
    "OAUTHBEARER without keys": (oauth("", issuer="i", audience="a"), "jwks.*set it to the https"),
    "OAUTHBEARER without issuer": (oauth("file:///x", audience="a"), "issuer: not set; .*`iss`"),
    "OAUTHBEARER without audience": (oauth("file:///x", issuer="i"), "audience: not set; .*`aud`"),
    "keys over http": (oauth("http://x/y", issuer="i", audience="a"), "use https://host/path, or"),
    "no keys": (oauth("file:no-keys.json", issuer="i", audience="a"), "no keys: the key set has"),
    "keys of noise": (oauth("file:noise.json", issuer="i", audience="a"), "not a JSON Web Key Set"),
    "keys of no file": (oauth("file:gone", issuer="i", audience="a"), "gone cannot be read: No su"),
    "no super users": (authorizer(), r"set super\.users=User:name"),
    "super users without a kind": (authorizer(super_users="admin"), "write User:name, several wi"),
    "super users with commas": (authorizer(super_users="User:a,User:b"), "several with ; between"),
    "unknown authorizer": ({"authorizer.class.name": "x.Y"}, "use nothing or org.apache.kafka"),
    "brokers by a mechanism that is not served": (
        {**sasl_listener("SCRAM-SHA-512"), "inter.broker.listener.name": "SASL_PLAINTEXT"},
        "GSSAPI is not among .*: use one of SCRAM-SHA-512, or add GSSAPI there",
    ),
    "brokers without a login": (
        {
            **sasl_listener("SCRAM-SHA-512", mechanism_inter_broker_protocol="SCRAM-SHA-512"),
            "inter.broker.listener.name": "SASL_PLAINTEXT",
        },
        r"needs a username: set sasl\.username, or username in sasl\.jaas\.config",
    ),
    "nodes of ZooKeeper without an owner": (
        {"zookeeper.set.acl": "true"}, r"set headwater\.zookeeper\.digest=user:password"
    ),
}  # fmt: skip
"""What is wrong -> (properties over BASE, what the line says)."""


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], NodeConfig]:
    """Configurations whose relative paths name FILES."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o600)
    monkeypatch.chdir(tmp_path)

    def config(properties: dict[str, str]) -> NodeConfig:
        return from_properties({**BASE, **properties})

    return config


def start(config: NodeConfig) -> None:
    """The parts of security in the order of a broker's start."""
    control_security(config)
    zookeeper_security(config.values)
    broker_credentials(config)
    clock = SystemClock()
    if config.values.string("authorizer.class.name"):
        StandardAuthorizer.from_values(config.values, AuditLog(clock))
    for name, protocol in config.protocols.items():
        if protocol.uses_tls:
            tls_settings(tls_values(config.properties, name, protocol), name, clock.now_ms())
    parts = SaslParts(users=dict, secret=b"s", clock=clock, entropy=SystemEntropy())
    for name in config.protocols:
        sasl_authenticator(config, name, parts)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_remedy(
    read: Callable[[dict[str, str]], NodeConfig], mistake: str
) -> None:
    properties, told = MISTAKES[mistake]
    with pytest.raises(UsageError, match=told) as caught:
        start(read(properties))
    assert "\n" not in str(caught.value)


def test_a_key_that_everybody_can_read_is_told(
    read: Callable[[dict[str, str]], NodeConfig], caplog: pytest.LogCaptureFixture
) -> None:
    config = read(ssl_listener(keystore_location="good.pem"))
    with caplog.at_level(logging.WARNING):
        start(config)
        assert not caplog.records
        Path("good.pem").chmod(0o644)
        start(config)
    assert "chmod o-r" in caplog.text
