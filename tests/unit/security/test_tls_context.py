"""TLS contexts from Kafka's keys: stores of each format, what is negotiated, what is refused."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from headwater.config.keys import Values, broker_values
from headwater.errors import UsageError
from headwater.security.tls_chain import chain_to_send
from headwater.security.tls_context import client_context, server_context
from headwater.security.tls_stores import read_key_store
from tls_authority import PASSWORD, Authority

AUTHORITY = Authority()
BROKER, CLIENT = AUTHORITY.leaf(), AUTHORITY.leaf("alice", hosts=())
STORE = {
    "ssl.keystore.key": BROKER.key_pem,
    "ssl.keystore.certificate.chain": BROKER.certificate_pem,
}
TRUST = {"ssl.truststore.certificates": AUTHORITY.pem}


def values(**changed: str) -> Values:
    named = {name.replace("_", "."): text for name, text in changed.items()}
    return broker_values({**STORE, **named})


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both sides after a complete handshake in memory. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    for side in sides:
        side.do_handshake()
    return sides[1], sides[0]


def test_keys_as_texts() -> None:
    server, _ = handshake(server_context(values()), client_context(TRUST))
    assert server.version() == "TLSv1.3"


def test_texts_whose_line_breaks_a_properties_file_has_joined() -> None:
    joined = {key: text.replace("\n", " ") for key, text in STORE.items()}
    trust = {key: text.replace("\n", "") for key, text in TRUST.items()}
    handshake(server_context(broker_values(joined)), client_context(trust))
    escaped = {key: text.replace("\n", "\\n") for key, text in STORE.items()}
    handshake(server_context(broker_values(escaped)), client_context(trust))


def test_a_key_store_in_pem(tmp_path: Path) -> None:
    file = BROKER.write(tmp_path / "broker.pem")
    trust = tmp_path / "ca.pem"
    trust.write_text(AUTHORITY.pem)
    handshake(
        server_context(broker_values({"ssl.keystore.location": str(file)})),
        client_context({"ssl.truststore.location": str(trust)}),
    )


def test_an_encrypted_key_in_pem(tmp_path: Path) -> None:
    file = tmp_path / "broker.pem"
    file.write_text(BROKER.encrypted_key_pem + BROKER.certificate_pem)
    store = {"ssl.keystore.location": str(file)}
    handshake(
        server_context(broker_values({**store, "ssl.key.password": PASSWORD})),
        client_context(TRUST),
    )
    with pytest.raises(UsageError, match=r"set ssl\.key\.password"):
        server_context(broker_values(store))
    with pytest.raises(UsageError, match=r"ssl\.key\.password is wrong"):
        server_context(broker_values({**store, "ssl.key.password": "no"}))


def test_stores_in_pkcs12(tmp_path: Path) -> None:
    (tmp_path / "broker.p12").write_bytes(BROKER.pkcs12)
    (tmp_path / "trust.p12").write_bytes(AUTHORITY.java_truststore)
    store = {"ssl.keystore.location": str(tmp_path / "broker.p12")}
    trust = {
        "ssl.truststore.location": str(tmp_path / "trust.p12"),
        "ssl.truststore.password": PASSWORD,
        "ssl.truststore.type": "PKCS12",
    }
    handshake(
        server_context(broker_values({**store, "ssl.keystore.password": PASSWORD})),
        client_context(trust),
    )
    with pytest.raises(UsageError, match=r"broker\.p12: not a PKCS12 store of this password"):
        server_context(broker_values({**store, "ssl.keystore.password": "wrong"}))
    with pytest.raises(UsageError, match="no private key"):
        server_context(
            broker_values(
                {
                    "ssl.keystore.location": trust["ssl.truststore.location"],
                    "ssl.keystore.password": PASSWORD,
                }
            )
        )


def test_a_java_store_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    (tmp_path / "a.jks").write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    store = {"ssl.keystore.location": str(tmp_path / "a.jks")}
    with pytest.raises(UsageError, match=r"keytool -importkeystore .* -deststoretype PKCS12"):
        server_context(broker_values(store))


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, r"ssl\.keystore\.location: not set"),
        ({"ssl.keystore.location": "/no/such"}, r"/no/such: No such file"),
        ({**STORE, "ssl.keystore.location": "/x"}, "use the file or the texts"),
        ({"ssl.keystore.key": BROKER.key_pem}, r"ssl\.keystore\.certificate\.chain: not set"),
        ({**STORE, "ssl.keystore.key": CLIENT.key_pem}, "first certificate is not the private key"),
        ({**STORE, "ssl.keystore.key": "junk"}, "0 private keys"),
        ({**STORE, "ssl.client.auth": "required"}, r"ssl\.truststore\.location: not set"),
        ({**STORE, "ssl.cipher.suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "is not served"),
        ({**STORE, "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "served together"),
        ({**STORE, "ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.2"}, "leave no"),
    ],
)  # fmt: skip
def test_a_bad_configuration_names_key_and_remedy(properties: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        server_context(broker_values(properties))
    assert "PRIVATE KEY" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_type_that_is_configured_must_be_the_file_s(tmp_path: Path) -> None:
    file = BROKER.write(tmp_path / "broker.pem")
    store = {"ssl.keystore.location": str(file), "ssl.keystore.type": "PKCS12"}
    with pytest.raises(UsageError, match="the file holds PEM, the configured type is PKCS12"):
        server_context(broker_values(store))


def test_a_required_client_certificate() -> None:
    server = server_context(
        values(ssl_client_auth="required", ssl_truststore_certificates=AUTHORITY.pem)
    )
    shown = {"ssl.keystore.key": CLIENT.key_pem,
             "ssl.keystore.certificate.chain": CLIENT.certificate_pem}  # fmt: skip
    accepted, _ = handshake(server, client_context({**TRUST, **shown}))
    assert accepted.getpeercert(binary_form=True) == CLIENT.der
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        handshake(server, client_context(TRUST))
    stranger = Authority().leaf("alice", hosts=())
    forged = {"ssl.keystore.key": stranger.key_pem,
              "ssl.keystore.certificate.chain": stranger.certificate_pem}  # fmt: skip
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        handshake(server, client_context({**TRUST, **forged}))


def test_a_client_certificate_may_be_left_out_where_it_is_requested_only() -> None:
    server = server_context(
        values(ssl_client_auth="requested", ssl_truststore_certificates=AUTHORITY.pem)
    )
    accepted, _ = handshake(server, client_context(TRUST))
    assert accepted.getpeercert(binary_form=True) is None


def test_clients_check_the_host_name_unless_told_otherwise() -> None:
    server = server_context(values())
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, client_context(TRUST), "elsewhere")
    lax = client_context({**TRUST, "ssl.endpoint.identification.algorithm": ""})
    handshake(server, lax, "elsewhere")
    with pytest.raises(UsageError, match=r"ssl\.endpoint\.identification\.algorithm"):
        client_context({**TRUST, "ssl.endpoint.identification.algorithm": "ldaps"})


def test_a_client_without_a_trust_store_trusts_the_system_s_authorities_only() -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(values()), client_context({}))


def test_a_trusted_certificate_need_not_be_a_root() -> None:
    handshake(
        server_context(values()),
        client_context({"ssl.truststore.certificates": BROKER.certificate_pem}),
    )


@pytest.mark.parametrize(
    ("properties", "version", "cipher"),
    [
        ({"ssl.enabled.protocols": "TLSv1.2"}, "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ({"ssl.protocol": "TLSv1.2"}, "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
        (
            {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
            "TLSv1.2",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ),
    ],
)
def test_versions_and_suites(properties: dict[str, str], version: str, cipher: str) -> None:
    server, _ = handshake(
        server_context(broker_values({**STORE, **properties})), client_context(TRUST)
    )
    negotiated = server.cipher()
    assert negotiated is not None
    assert (server.version(), negotiated[0]) == (version, cipher)


def test_old_and_weak_tls_is_refused() -> None:
    old = client_context(TRUST)
    old.set_ciphers("AES128-SHA256")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        handshake(server_context(values()), old)


def test_secrets_do_not_appear_in_representations() -> None:
    store = read_key_store(values(ssl_key_password="hunter2"))
    assert store is not None
    assert store.key not in repr(store)
    assert "hunter2" not in repr(store)
    assert store.certificate.subject == "CN=localhost"


def sent(store: dict[str, str], *trusted: str) -> tuple[str, ...]:
    """The chain that a listener with this key store would send."""
    found = read_key_store(broker_values(store))
    assert found is not None
    return chain_to_send(found, server_context(broker_values(store)), trusted)


def test_the_issuer_of_a_lone_certificate_is_sent_with_it() -> None:
    """OpenSSL would look for it, and verify it, in each handshake."""
    own, of_the_same_name = BROKER.certificate_pem, Authority().pem
    assert sent(STORE) == (own,)
    assert sent(STORE, of_the_same_name, Authority("Other root").pem) == (own,)
    assert sent(STORE, of_the_same_name, AUTHORITY.pem) == (own, AUTHORITY.pem)
    longer = {**STORE, "ssl.keystore.certificate.chain": own + of_the_same_name}
    assert sent(longer, AUTHORITY.pem) == (own, of_the_same_name)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_listener_that_sends_its_issuer_is_trusted_as_before(version: str) -> None:
    mutual = values(
        ssl_client_auth="required",
        ssl_truststore_certificates=AUTHORITY.pem,
        ssl_enabled_protocols=version,
    )
    own = {
        "ssl.keystore.key": CLIENT.key_pem,
        "ssl.keystore.certificate.chain": CLIENT.certificate_pem,
    }
    server, _ = handshake(server_context(mutual), client_context({**TRUST, **own}))
    assert server.version() == version
    with pytest.raises(ssl.SSLError):
        handshake(
            server_context(mutual),
            client_context({**own, "ssl.truststore.certificates": Authority().pem}),
        )
