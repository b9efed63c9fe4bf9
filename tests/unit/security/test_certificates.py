"""Certificates of a cluster's own authority: what they say, and that OpenSSL accepts them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater.security.certificates import (
    KeyPair,
    Subject,
    certificate_facts,
    issue,
    new_authority,
    sign,
    signing_request,
    split_certificates,
)
from headwater.system import SystemClock

DAY_MS = 86_400_000
NOW_MS = SystemClock().now_ms()
AUTHORITY = new_authority("Headwater CA of tests", NOW_MS)
BROKER = Subject("broker-0", ("127.0.0.1", "localhost"))


def context(purpose: ssl.Purpose, folder: Path, leaf: KeyPair, trusted: bytes) -> ssl.SSLContext:
    """A context with this certificate that demands one of `trusted` from its peer."""
    file = folder / f"{purpose.shortname}.pem"
    file.write_bytes(leaf.key + leaf.certificate)
    made = ssl.create_default_context(purpose, cadata=trusted.decode())
    made.load_cert_chain(file)
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> None:
    """A TLS handshake in memory, with the server's check of the client's certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = client.wrap_bio(to_client, to_server, server_hostname=host)
    right = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (left, right):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


def test_a_leaf_names_its_subject_hosts_and_lifetime() -> None:
    facts = certificate_facts(issue(AUTHORITY, BROKER, NOW_MS).certificate)
    assert facts.subject == "CN=broker-0"
    assert facts.issuer == "CN=Headwater CA of tests"
    assert facts.hosts == ("127.0.0.1", "localhost")
    assert facts.not_after_ms // DAY_MS == (NOW_MS + 90 * DAY_MS) // DAY_MS
    assert facts.not_before_ms < NOW_MS < facts.renewal_ms < facts.not_after_ms
    assert 59 < (facts.renewal_ms - NOW_MS) / DAY_MS < 61


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_both_sides_accept_leaves_of_the_same_authority(tmp_path: Path, host: str) -> None:
    ca = AUTHORITY.certificate
    server = context(ssl.Purpose.CLIENT_AUTH, tmp_path, issue(AUTHORITY, BROKER, NOW_MS), ca)
    leaf = issue(AUTHORITY, Subject("broker-1"), NOW_MS)
    handshake(context(ssl.Purpose.SERVER_AUTH, tmp_path, leaf, ca), server, host)


def test_another_host_name_is_refused(tmp_path: Path) -> None:
    ca = AUTHORITY.certificate
    server = context(ssl.Purpose.CLIENT_AUTH, tmp_path, issue(AUTHORITY, BROKER, NOW_MS), ca)
    client = context(ssl.Purpose.SERVER_AUTH, tmp_path, issue(AUTHORITY, BROKER, NOW_MS), ca)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(client, server, "10.0.0.1")


def test_another_authority_of_the_same_name_is_refused(tmp_path: Path) -> None:
    other = new_authority("Headwater CA of tests", NOW_MS)
    ca = AUTHORITY.certificate
    server = context(ssl.Purpose.CLIENT_AUTH, tmp_path, issue(AUTHORITY, BROKER, NOW_MS), ca)
    leaf = issue(other, Subject("broker-1"), NOW_MS)
    client = context(ssl.Purpose.SERVER_AUTH, tmp_path, leaf, ca)
    with pytest.raises(ssl.SSLError, match=r"verify failed|VERIFY_FAILED"):
        handshake(client, server, "localhost")


def test_a_leaf_cannot_sign(tmp_path: Path) -> None:
    leaf = issue(AUTHORITY, BROKER, NOW_MS)
    forged = issue(leaf, Subject("broker-9"), NOW_MS)
    chain = KeyPair(forged.certificate + leaf.certificate, forged.key)
    ca = AUTHORITY.certificate
    server = context(ssl.Purpose.CLIENT_AUTH, tmp_path, issue(AUTHORITY, BROKER, NOW_MS), ca)
    client = context(ssl.Purpose.SERVER_AUTH, tmp_path, chain, ca)
    with pytest.raises(ssl.SSLError):
        handshake(client, server, "localhost")


def test_the_signer_decides_the_names_of_a_signing_request() -> None:
    asked = signing_request("admin")
    facts = certificate_facts(sign(AUTHORITY, asked.certificate, BROKER, NOW_MS))
    assert facts.subject == "CN=broker-0"
    assert facts.hosts == BROKER.hosts


@pytest.mark.parametrize("request_pem", [b"", b"no request", AUTHORITY.certificate])
def test_what_is_no_signing_request_is_refused(request_pem: bytes) -> None:
    with pytest.raises(UsageError, match="no certificate signing request"):
        sign(AUTHORITY, request_pem, BROKER, NOW_MS)


def test_a_bundle_is_split_into_its_certificates() -> None:
    other = new_authority("another", NOW_MS)
    both = AUTHORITY.certificate + other.certificate
    assert split_certificates(both) == (AUTHORITY.certificate, other.certificate)
    with pytest.raises(UsageError, match="no certificate"):
        split_certificates(b"")


def test_keys_are_not_in_repr() -> None:
    assert b"PRIVATE" in AUTHORITY.key
    assert "PRIVATE" not in repr(AUTHORITY)
