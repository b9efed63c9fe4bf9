"""OAUTHBEARER: messages, token validation, keys. Each attack fails without its guard."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from joserfc import jwk, jwt

from headwater.errors import ErrorCode, UsageError
from headwater.ports.authorizer import AllowAll, Principal
from headwater.security.oauth_token_source import ClientCredentialsToken, token_source
from headwater.security.oauthbearer import (
    END_OF_FAILURE,
    INVALID_TOKEN,
    OAuthBearerError,
    OAuthBearerExchange,
    parse_message,
)
from headwater.security.tls_context import client_context
from headwater.testing.clocks import ManualClock
from headwater_broker.security.jwks import UNKNOWN_KEY_PAUSE_S, Jwks, RefreshTimes, key_reader
from headwater_broker.security.jwt_validation import JwtRules, TokenError, VerificationKeys
from headwater_broker.security.mechanism import AuthenticationFailedError
from headwater_broker.security.oauthbearer_mechanism import OAuthBearerMechanism
from headwater_broker.security.sasl_server_authenticator import SaslListener
from headwater_broker.security.session import Session
from self_signed import CERTIFICATE, KEY

NOW_S = 1_700_000_000
RULES = JwtRules(issuer="https://idp", audiences=("headwater", "kafka"))
SIGNING = jwk.generate_key("RSA", 2048, {"kid": "one", "use": "sig"})
OTHER = jwk.generate_key("RSA", 2048, {"kid": "two", "use": "sig"})
CURVE = jwk.generate_key("EC", "P-256", {"kid": "curve"})


def key_set(*keys: Any, **more: Any) -> bytes:
    rows = [{**key.as_dict(private=False), **more} for key in keys]
    return json.dumps({"keys": rows}).encode()


KEYS = VerificationKeys(key_set(SIGNING, OTHER, CURVE))
CLAIMS = {"iss": "https://idp", "aud": "kafka", "sub": "alice", "exp": NOW_S + 60}


def token(key: Any = SIGNING, alg: str = "RS256", **change: Any) -> str:
    header = {"alg": alg, "kid": key.kid, **change.pop("header", {})}
    header = {name: value for name, value in header.items() if value is not None}
    claims = {n: v for n, v in {**CLAIMS, **change}.items() if v is not None}
    return jwt.encode(header, claims, key, algorithms=[alg])


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def with_header(signed: str, **header: Any) -> str:
    """The token with another header; the signature no longer fits, unless nobody looks."""
    old, rest = signed.split(".", 1)
    found = json.loads(base64.urlsafe_b64decode(old + "=="))
    return f"{part({**found, **header})}.{rest}"


@pytest.mark.parametrize("alg", ["RS256", "PS384", "RS512"])
def test_a_valid_token_names_subject_and_expiry(alg: str) -> None:
    found = RULES.validate(token(alg=alg, scope="a b"), KEYS, NOW_S)
    assert (found.subject, found.expiry_s, found.scopes) == ("alice", NOW_S + 60, ("a", "b"))
    assert RULES.validate(token(CURVE, "ES256", aud=["x", "headwater"]), KEYS, NOW_S)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"iss": "https://evil"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"iss": ["https://idp"]}, "issuer"),
        ({"aud": "other"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": "kafka2"}, "audience"),
        ({"exp": NOW_S - 30}, "expired"),
        ({"exp": None}, "never expire"),
        ({"exp": "9999999999"}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iat": NOW_S + 31}, "not valid yet"),
        ({"sub": ""}, "not a name"),
        ({"sub": None}, "not a name"),
        ({"sub": 7}, "not a name"),
        ({"sub": "x" * 256}, "not a name"),
        ({"sub": "ali\u202ece"}, "cannot be shown"),
        ({"sub": "a\nUser:b"}, "cannot be shown"),
        ({"header": {"kid": "gone"}}, "names no key"),
        ({"header": {"kid": None}}, "names no key"),
        ({"header": {"typ": "dpop+jwt"}}, "type"),
    ],
)
def test_claims_that_do_not_fit_are_refused(change: dict[str, Any], why: str) -> None:
    signed = token(**{"header": {}, **change})
    with pytest.raises(TokenError, match=why) as refused:
        RULES.validate(signed, KEYS, NOW_S)
    assert signed not in str(refused.value)


def test_the_skew_is_allowed_and_no_more() -> None:
    assert RULES.validate(token(exp=NOW_S - 29, nbf=NOW_S + 30), KEYS, NOW_S)


def test_alg_none_and_symmetric_algorithms_are_refused() -> None:
    unsigned = f"{part({'alg': 'none', 'kid': 'one'})}.{part(CLAIMS)}."
    for text in (unsigned, f"{unsigned}x", with_header(token(), alg="none")):
        with pytest.raises(TokenError, match=r"algorithm|three parts"):
            RULES.validate(text, KEYS, NOW_S)
    public = SIGNING.as_pem(private=False)
    body = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(CLAIMS)}"
    mac = base64.urlsafe_b64encode(hmac.digest(public, body.encode(), "sha256"))
    forged = f"{body}.{mac.rstrip(b'=').decode()}"
    with pytest.raises(TokenError, match="algorithm"):
        RULES.validate(forged, KEYS, NOW_S)


def test_a_signature_of_another_key_or_over_other_claims_is_refused() -> None:
    mallory = jwk.generate_key("RSA", 2048, {"kid": "one"})
    head, _, mac = token().split(".")
    for text in (
        token(mallory),
        token(OTHER, header={"kid": "one"}),
        token(CURVE, "ES256", header={"kid": "one"}),
        f"{head}.{part({**CLAIMS, 'sub': 'admin'})}.{mac}",
        with_header(token(), alg="RS512"),
    ):
        with pytest.raises(TokenError, match="signature"):
            RULES.validate(text, KEYS, NOW_S)


@pytest.mark.parametrize(
    "header",
    [
        {"crit": ["exp"]},
        {"b64": False, "crit": ["b64"]},
        {"jku": "https://evil/keys"},
        {"x5u": "https://evil/cert"},
        {"jwk": SIGNING.as_dict(private=False)},
        {"zip": "DEF"},
        {"cty": "JWT"},
    ],
)
def test_headers_that_steer_the_validation_are_refused(header: dict[str, Any]) -> None:
    with pytest.raises(TokenError, match="parameters that are not allowed"):
        RULES.validate(with_header(token(), **header), KEYS, NOW_S)


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c.d.e", "..", "%%%.b.c", f"{part([1])}.b.c"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(TokenError):
        RULES.validate(text, KEYS, NOW_S)


@pytest.mark.filterwarnings("ignore:Key size")
def test_keys_that_must_not_verify_are_left_out() -> None:
    short = jwk.generate_key("RSA", 1024, {"kid": "short"})
    secret = jwk.generate_key("oct", 256, {"kid": "oct"})
    rows = json.loads(key_set(short))["keys"] + [secret.as_dict(private=True)]
    rows += json.loads(key_set(OTHER, use="enc"))["keys"]
    rows += ["x", {"kty": "RSA"}, {"kty": "new"}]
    rows += [{**OTHER.as_dict(private=False), "key_ops": None}]
    with pytest.raises(TokenError, match="no RSA or EC key"):
        VerificationKeys(json.dumps({"keys": rows}).encode())
    found = VerificationKeys(json.dumps({"keys": [*rows, SIGNING.as_dict(private=False)]}).encode())
    assert len(found) == 1
    assert RULES.validate(token(header={"kid": None}), found, NOW_S), "the only key needs no id"
    for data in (b"", b"[]", b"{}", b'{"keys": 7}', b"[" * 100_000):
        with pytest.raises(TokenError):
            VerificationKeys(data)


def test_a_message_of_many_keys_costs_no_time() -> None:
    """The broker's loop reads it before any login."""
    began = time.process_time()
    with pytest.raises(OAuthBearerError):
        parse_message(b"n,,\x01" + b"auth=Bearer x\x01" * 4_600 + b"!")
    assert time.process_time() - began < 0.3, "it is 2 ms; with backtracking 800 ms and more"
    assert parse_message(b"n,,\x01host=h\x01auth=Bearer t\x01port=1\x01\x01").token == "t"


# --- messages -----------------------------------------------------------------------------------


def test_a_clients_message_is_read_as_kafkas_and_librdkafkas() -> None:
    exchange = OAuthBearerExchange(lambda: "a.b.c\n")
    sent = exchange.step(b"")
    assert sent == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    assert parse_message(sent).token == "a.b.c"
    found = parse_message(b"n,a=al=2Cice,\x01auth=bearer  x\x01traceId=1 2\x01\x01")
    assert (found.token, found.authorization_id) == ("x", "al,ice")
    assert found.extensions == {"traceId": "1 2"}
    assert "a.b.c" not in repr(parse_message(sent))
    assert exchange.step(b"") is None and exchange.is_complete
    refused = OAuthBearerExchange(lambda: "x")
    refused.step(b"")
    assert refused.step(INVALID_TOKEN) == END_OF_FAILURE and refused.is_complete
    with pytest.raises(UsageError, match="no token has"):
        OAuthBearerExchange(lambda: "a\x01auth=Bearer b").step(b"")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01auth=Bearer x\x01\x01more",
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
        b"n,,\x01auth=Bearer x\x01a=1\x01a=2\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer " + b"x" * 70_000 + b"\x01\x01",
        b"n,,\x01" + b"a=1\x01" * 15_000 + b"\x01",
    ],
)
def test_other_messages_are_refused(data: bytes) -> None:
    with pytest.raises(OAuthBearerError):
        parse_message(data)


# --- mechanism and keys -------------------------------------------------------------------------


class Keys:
    """A key set that a test changes."""

    def __init__(self, *keys: Any) -> None:
        self.data = key_set(*keys)
        self.reads = 0

    def __call__(self) -> bytes:
        self.reads += 1
        return self.data


def mechanism(keys: Callable[[], bytes], clock: ManualClock) -> OAuthBearerMechanism:
    return OAuthBearerMechanism(RULES, Jwks(keys, RefreshTimes(), clock), clock)


def log_in(made: OAuthBearerMechanism, text: str, authzid: str = "") -> Any:
    exchange = made.begin(Session(AllowAll(), listener="SASL"))

    async def run() -> Any:
        named = f"a={authzid}" if authzid else ""
        answer = await exchange.step(f"n,{named},\x01auth=Bearer {text}\x01\x01".encode())
        if exchange.result is not None:
            assert answer == b""
            return exchange.result
        assert answer == INVALID_TOKEN
        await exchange.step(END_OF_FAILURE)
        return None

    return asyncio.run(run())


def clock_at(now_s: int = NOW_S) -> ManualClock:
    return ManualClock(now_s * 1000)


def test_a_session_lives_as_long_as_its_token_and_nobody_is_somebody_else() -> None:
    made = mechanism(Keys(SIGNING), clock_at())
    found = log_in(made, token())
    assert found.principal == Principal("User", "alice", "SASL")
    assert found.lifetime_ms == 60_000 and not found.is_token
    assert log_in(made, token(), "alice")
    with pytest.raises(AuthenticationFailedError, match="somebody else"):
        log_in(made, token(), "admin")
    with pytest.raises(AuthenticationFailedError, match="issuer"):
        log_in(made, token(iss="https://evil"))


def test_a_refused_token_is_a_failed_authentication_before_it_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is counted, delayed and logged once; the acknowledgement closes the connection."""
    gate = Mock(is_open=False)
    session = Session(AllowAll(), listener="SASL", host="10.0.0.9", gate=gate)
    made = mechanism(Keys(SIGNING), clock_at())
    delay = AsyncMock()
    authenticator = SaslListener({"OAUTHBEARER": made}, {}, delay).authenticator(session)
    text = token(iss="https://evil")

    async def story() -> None:
        assert authenticator.handshake("OAUTHBEARER", 1).error is ErrorCode.NONE
        answer = await authenticator.authenticate(f"n,,\x01auth=Bearer {text}\x01\x01".encode())
        assert (answer.error, answer.token) == (ErrorCode.NONE, INVALID_TOKEN)
        delay.assert_awaited_once_with("10.0.0.9")
        gate.refuse.assert_not_called()
        answer = await authenticator.authenticate(END_OF_FAILURE)
        assert answer.error is ErrorCode.SASL_AUTHENTICATION_FAILED
        delay.assert_awaited_once()
        gate.refuse.assert_called_once()

    with caplog.at_level(logging.INFO):
        asyncio.run(story())
    (told,) = caplog.messages
    assert "failed authentication of 10.0.0.9 by OAUTHBEARER" in told and "issuer" in told
    assert text not in told


def test_an_unknown_key_is_looked_up_at_once_but_once_a_minute_only() -> None:
    clock, keys = clock_at(), Keys(SIGNING)
    made = mechanism(keys, clock)
    keys.data = key_set(OTHER)
    assert log_in(made, token(OTHER)), "the issuer has a new key"
    for _ in range(3):
        with pytest.raises(AuthenticationFailedError, match="names no key"):
            log_in(made, token(SIGNING))
    assert keys.reads == 2, "a flood of unknown keys reads nothing"
    clock.advance(int(UNKNOWN_KEY_PAUSE_S * 1000))
    keys.data = b"broken"
    with pytest.raises(AuthenticationFailedError):
        log_in(made, token(SIGNING, exp=NOW_S + 999))
    assert keys.reads == 3
    assert log_in(made, token(OTHER, exp=NOW_S + 999)), "old keys stay while new ones are broken"


@pytest.mark.parametrize(
    "url", ["http://idp/keys", "ftp://idp/keys", "idp", "https://", "https://a:b@idp/", "jar:x"]
)
def test_keys_come_from_https_or_a_file_only(url: str) -> None:
    with pytest.raises(UsageError, match=r"jwks\.endpoint\.url"):
        key_reader(url, lambda: client_context({}))


def test_a_key_file_is_read_and_a_bad_one_ends_the_start(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    read = key_reader(path.as_uri(), lambda: client_context({}))
    with pytest.raises(UsageError, match=r"jwks\.endpoint\.url.*cannot be read"):
        Jwks(read, RefreshTimes(), clock_at())
    path.write_bytes(key_set(SIGNING))
    assert len(Jwks(read, RefreshTimes(), clock_at()).keys) == 1
    path.write_bytes(b" " * 300_000)
    with pytest.raises(UsageError, match="more than 262144 bytes"):
        Jwks(read, RefreshTimes(), clock_at())


# --- https --------------------------------------------------------------------------------------


class Server:
    """An HTTPS server that gives one answer per path."""

    def __init__(self, folder: Path) -> None:
        self.certificate, key = folder / "certificate.pem", folder / "key.pem"
        self.certificate.write_bytes(CERTIFICATE)
        key.write_bytes(KEY)
        self.asked: list[tuple[str, str, bytes]] = []
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                login = self.headers.get("Authorization", "")
                outer.asked.append((self.path, login, self.rfile.read(size)))
                status, headers, body = outer.answers.get(self.path, (404, {}, b""))
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.base = f"https://localhost:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def context(self) -> Any:
        return client_context({"ssl.truststore.location": str(self.certificate)})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.http.shutdown()
    made.http.server_close()


def test_keys_are_read_over_https_without_redirects_and_with_a_limit(server: Server) -> None:
    good = key_set(SIGNING)
    server.answers = {
        "/keys?a=1": (200, {}, good),
        "/moved": (302, {"Location": "/keys?a=1"}, b""),
        "/large": (200, {}, b" " * 300_000),
    }

    def read(path: str, context: Any = server.context) -> Jwks:
        return Jwks(key_reader(server.base + path, context), RefreshTimes(), clock_at())

    assert len(read("/keys?a=1").keys) == 1
    with pytest.raises(UsageError, match="status 302"):
        read("/moved")
    with pytest.raises(UsageError, match="more than 262144 bytes"):
        read("/large")
    with pytest.raises(UsageError, match="cannot be read"):
        read("/keys?a=1", lambda: client_context({}))
    assert [path for path, _, _ in server.asked] == ["/keys?a=1", "/moved", "/large"]


def test_a_client_asks_for_tokens_with_its_credentials_and_keeps_them(server: Server) -> None:
    answer = {"access_token": "t1", "expires_in": 100}
    server.answers["/token"] = (200, {}, json.dumps(answer).encode())
    clock = clock_at()
    source = ClientCredentialsToken(
        f"{server.base}/token", "app", "s:e c", "a b", server.context(), clock
    )
    assert source() == source() == "t1"
    [(_, login, body)] = server.asked
    assert base64.b64decode(login.removeprefix("Basic ")) == b"app:s%3Ae+c"
    assert body == b"grant_type=client_credentials&scope=a+b"
    server.answers["/token"] = (200, {}, json.dumps({**answer, "access_token": "t2"}).encode())
    clock.advance(80_000)
    assert source() == "t2"
    server.answers["/token"] = (200, {}, b'{"error": "t2"}')
    clock.advance(80_000)
    with pytest.raises(UsageError, match="no access_token"):
        source()


def test_a_token_that_was_given_to_a_gateway_is_used_as_it_is() -> None:
    assert token_source({}, {"token": "e.y.J"})() == "e.y.J"


def test_a_token_source_needs_an_endpoint_and_credentials(tmp_path: Path) -> None:
    endpoint = "sasl.oauthbearer.token.endpoint.url"
    with pytest.raises(UsageError, match=endpoint):
        token_source({})
    with pytest.raises(UsageError, match="use https"):
        token_source({endpoint: "http://idp/token"})
    with pytest.raises(UsageError, match=r"client\.id is not set"):
        token_source({endpoint: "https://idp/token"})
    with pytest.raises(UsageError, match=r"client\.secret is not set"):
        token_source({endpoint: "https://idp/token"}, {"clientId": "app"})
    path = tmp_path / "token"
    source = token_source({endpoint: path.as_uri()})
    with pytest.raises(UsageError, match="has no token"):
        source()
    path.write_text("a.b.c\n")
    assert source() == "a.b.c"
