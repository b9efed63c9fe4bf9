"""SCRAM: the vectors of RFC 7677, both sides against each other, and attacks on each."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from uuid import UUID

import pytest

from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.security.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    credential_of_password,
    format_credential,
    mechanism_of_code,
    new_salt,
    parse_credential,
)
from headwater.security.scram_exchange import ScramExchange
from headwater.security.scram_messages import ScramError, new_nonce, parse_client_first
from headwater.system import SystemEntropy
from headwater_broker.security.scram_server import ScramServer

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
RFC_CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
RFC_SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_NONCE = RFC_CLIENT_NONCE + RFC_SERVER_NONCE
RFC_CLIENT_FIRST = f"n,,n=user,r={RFC_CLIENT_NONCE}".encode()
RFC_SERVER_FIRST = f"r={RFC_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
RFC_CLIENT_FINAL = f"c=biws,r={RFC_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
RFC_SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
PASSWORD = "pencil"


class Fixed:
    """The entropy of the RFC's client."""

    def uuid(self) -> UUID:
        raise AssertionError

    def uniform(self, low: float, high: float) -> float:
        raise AssertionError

    def randbytes(self, size: int) -> bytes:
        return base64.b64decode(RFC_CLIENT_NONCE)


def rfc_client(password: str = PASSWORD) -> ScramExchange:
    return ScramExchange("SCRAM-SHA-256", "user", password, entropy=Fixed())


def rfc_server() -> ScramServer:
    """A server that has sent its first message."""
    server = ScramServer(SHA_256, RFC_SERVER_NONCE)
    server.begin(RFC_CLIENT_FIRST)
    assert server.challenge(rfc_credential()) == RFC_SERVER_FIRST
    return server


def rfc_credential(iterations: int = 4096) -> ScramCredential:
    return credential_of_password(SHA_256, PASSWORD, RFC_SALT, iterations)


def test_the_client_sends_the_messages_of_the_rfc() -> None:
    client = rfc_client()
    assert client.step(b"") == RFC_CLIENT_FIRST
    assert client.step(RFC_SERVER_FIRST) == RFC_CLIENT_FINAL
    assert not client.is_complete
    assert client.step(RFC_SERVER_FINAL) is None
    assert client.is_complete


def test_the_server_sends_the_messages_of_the_rfc() -> None:
    assert rfc_server().finish(RFC_CLIENT_FINAL) == RFC_SERVER_FINAL


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("name", ["alice", "a,b=c=2C", "=3D", "José", "пользователь", "a b"])
def test_both_sides_agree(mechanism: ScramMechanism, name: str) -> None:
    entropy = SystemEntropy()
    client = ScramExchange(mechanism.value, name, "päss,word=")
    server = ScramServer(mechanism, new_nonce(entropy))
    first = server.begin(client.step(b"") or b"")
    assert first.username == name
    assert not first.is_token
    credential = credential_of_password(mechanism, "päss,word=", new_salt(entropy))
    client.step(server.finish(client.step(server.challenge(credential)) or b""))
    assert client.is_complete
    assert len(credential.stored_key) == len(credential.server_key) == mechanism.key_bytes
    assert mechanism_of_code(mechanism.code) is mechanism


def test_the_key_derivation_is_pbkdf2() -> None:
    """SHA-512 has no vector in an RFC: the definition, step by step."""
    salted = hashlib.pbkdf2_hmac("sha512", b"pw", b"salt", 5000)
    credential = credential_of_password(SHA_512, "pw", b"salt", 5000)
    block = hashlib.sha512().block_size

    def hmac_512(message: bytes) -> bytes:
        key = salted + bytes(block - len(salted))
        inner = hashlib.sha512(bytes(b ^ 0x36 for b in key) + message).digest()
        return hashlib.sha512(bytes(b ^ 0x5C for b in key) + inner).digest()

    assert credential.stored_key == hashlib.sha512(hmac_512(b"Client Key")).digest()
    assert credential.server_key == hmac_512(b"Server Key")


# --- attacks on the broker


def final(nonce: str, binding: bytes = b"n,,", password: str = PASSWORD) -> bytes:
    """A client's final message with a valid proof over `nonce` and `binding`."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), RFC_SALT, 4096)
    unproved = f"c={base64.b64encode(binding).decode()},r={nonce}"
    signed = b",".join((RFC_CLIENT_FIRST[3:], RFC_SERVER_FIRST, unproved.encode()))
    key = hashlib.new("sha256")
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    key.update(client_key)
    signature = hmac.digest(key.digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{unproved},p={base64.b64encode(proof).decode()}".encode()


def test_the_proof_of_these_tests_is_valid() -> None:
    assert rfc_server().finish(final(RFC_NONCE)) == RFC_SERVER_FINAL


@pytest.mark.parametrize(
    "nonce", [RFC_CLIENT_NONCE, RFC_NONCE + "x", RFC_NONCE[:-1], RFC_SERVER_NONCE, "x"]
)
def test_a_valid_proof_over_another_nonce_is_refused(nonce: str) -> None:
    """CVE-2024-56128: the final message must carry the nonce of this exchange."""
    with pytest.raises(ScramError, match="nonce of the final message"):
        rfc_server().finish(final(nonce))


def test_a_recorded_exchange_cannot_be_replayed() -> None:
    server = ScramServer(SHA_256, "another-nonce")
    server.begin(RFC_CLIENT_FIRST)
    server.challenge(rfc_credential())
    with pytest.raises(ScramError, match="nonce of the final message"):
        server.finish(RFC_CLIENT_FINAL)


@pytest.mark.parametrize("binding", [b"", b"y,,", b"n,a=root,", b"p=tls-unique,,"])
def test_the_header_cannot_change_within_an_exchange(binding: bytes) -> None:
    with pytest.raises(ScramError, match="GS2 header"):
        rfc_server().finish(final(RFC_NONCE, binding))


def test_a_wrong_password_is_refused() -> None:
    with pytest.raises(ScramError, match="proof is wrong"):
        rfc_server().finish(final(RFC_NONCE, password="pencil "))


@pytest.mark.parametrize("proof", ["", "AAAA", base64.b64encode(bytes(33)).decode(), "A", "===="])
def test_a_proof_of_another_size_is_refused(proof: str) -> None:
    with pytest.raises(ScramError):
        rfc_server().finish(f"c=biws,r={RFC_NONCE},p={proof}".encode())


def test_a_proof_is_good_for_one_try() -> None:
    server = rfc_server()
    with pytest.raises(ScramError, match="proof is wrong"):
        server.finish(final(RFC_NONCE, password="wrong"))
    with pytest.raises(ScramError, match="out of order"):
        server.finish(RFC_CLIENT_FINAL)


def test_messages_out_of_order_are_refused() -> None:
    with pytest.raises(ScramError, match="out of order"):
        ScramServer(SHA_256, "n").finish(RFC_CLIENT_FINAL)
    with pytest.raises(ScramError, match="out of order"):
        ScramServer(SHA_256, "n").challenge(rfc_credential())
    with pytest.raises(ScramError, match="second first message"):
        rfc_server().begin(RFC_CLIENT_FIRST)


@pytest.mark.parametrize("header", ["n,a=root,", "n,a=USER,", "y,a=root,"])
def test_nobody_acts_as_another(header: str) -> None:
    token = f"{header}n=user,r=x".encode()
    with pytest.raises(ScramError, match="authorization id"):
        ScramServer(SHA_256, "n").begin(token)


def test_an_authorization_id_may_repeat_the_user() -> None:
    client, server = rfc_client(), ScramServer(SHA_256, RFC_SERVER_NONCE)
    client.step(b"")
    assert server.begin(b"n,a=u=2Cser,n=u=2Cser,r=x").username == "u,ser"


def test_a_weak_credential_is_not_used() -> None:
    server = ScramServer(SHA_256, RFC_SERVER_NONCE)
    server.begin(RFC_CLIENT_FIRST)
    with pytest.raises(ScramError, match="4095 iterations"):
        server.challenge(rfc_credential(ITERATIONS_MIN - 1))


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,",
        b"n,,n=,r=x",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=x",
        b"n,,n=us=2cer,r=x",  # escapes are in upper case
        b"n,,n=us=2,r=x",
        b"n,,n=us\x00er,r=x",
        b"n,,n=user\xff,r=x",
        b"n,,n=user,r=a b",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=user,r=x,m=1",
        b"p=tls-unique,,n=user,r=x",
        b"n,,n=user,r=x\n",
        b"n,,n=" + b"u" * 20_000 + b",r=x",
    ],
)
def test_first_messages_that_are_refused(token: bytes) -> None:
    with pytest.raises(ScramError):
        ScramServer(SHA_256, "n").begin(token)


def test_names_are_unescaped_once() -> None:
    assert parse_client_first(b"n,,n=a=3D2Cb=2Cc,r=x").username == "a=2Cb,c"


def test_a_login_with_a_delegation_token_says_so() -> None:
    exchange = ScramExchange("SCRAM-SHA-512", "token-id", "aGVsbG8=", True)
    first = parse_client_first(exchange.step(b"") or b"")
    assert first.is_token
    assert not parse_client_first(b"n,,n=a,r=x,tokenauth=false,other=1").is_token


# --- attacks on the client


def at_proof(password: str = PASSWORD) -> ScramExchange:
    """A client that has sent its first message."""
    client = rfc_client(password)
    client.step(b"")
    return client


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"r=%b,s=QSXCR+Q6sek8bf92,i=4096", "does not follow"),
        (b"r=" + RFC_CLIENT_NONCE.encode() + b",s=QSXCR+Q6sek8bf92,i=4096", "does not follow"),
        (b"r=%b1,s=QSXCR+Q6sek8bf92,i=4095", "4095 iterations"),
        (b"r=%b1,s=QSXCR+Q6sek8bf92,i=1", "1 iterations"),
        (b"r=%b1,s=QSXCR+Q6sek8bf92,i=999999999", "999999999 iterations"),
        (b"r=%b1,s=QSXCR+Q6sek8bf92,i=-4096", "not SCRAM's"),
        (b"r=%b1,s=,i=4096", "no salt"),
        (b"m=x,r=%b1,s=QSXCR+Q6sek8bf92,i=4096", "not SCRAM's"),
        (b"", "not SCRAM's"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_challenge_of_an_attacker_is_refused(challenge: bytes, why: str) -> None:
    if b"%b1" in challenge:
        challenge = challenge.replace(b"%b", RFC_CLIENT_NONCE.encode())
    with pytest.raises(KafkaError, match=re.escape(why)) as caught:
        at_proof().step(challenge)
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"v=" + base64.b64encode(bytes(32)), "does not know the password"),
        (b"v=", "does not know the password"),
        (b"e=invalid-proof", "invalid-proof"),
        (b"", "not SCRAM's"),
    ],
)
def test_a_broker_that_does_not_prove_itself_is_refused(answer: bytes, why: str) -> None:
    client = at_proof()
    client.step(RFC_SERVER_FIRST)
    with pytest.raises(KafkaError, match=why):
        client.step(answer)
    assert not client.is_complete


def test_options_that_are_refused() -> None:
    for name in ("", "a\0b"):
        with pytest.raises(UsageError, match="NUL"):
            ScramExchange("SCRAM-SHA-256", name, "pw")
    with pytest.raises(UsageError, match="SCRAM-SHA-1"):
        ScramExchange("SCRAM-SHA-1", "alice", "pw")


# --- stored credentials


def test_a_credential_is_stored_in_kafkas_text() -> None:
    credential = rfc_credential()
    text = format_credential(credential)
    assert text == (
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )
    assert parse_credential(text) == credential
    assert "WG5d" not in repr(credential)


@pytest.mark.parametrize("text", ["", "salt=x", "salt=QQ==,stored_key=QQ==,server_key=QQ=="])
def test_other_text_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match="not in Kafka's form"):
        parse_credential(text)


def test_salts_look_like_those_of_kafkas_tools() -> None:
    salts = {new_salt(SystemEntropy()) for _ in range(50)}
    assert len(salts) == 50
    assert all(re.fullmatch(rb"[0-9a-z]{20,26}", salt) for salt in salts)
    assert ITERATIONS_MIN < ITERATIONS_MAX
