"""A SASL_PLAINTEXT listener with real mechanisms and the real client: who is let in, and how."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.client.admin.client import Admin
from headwater.client.blocking.connection import BlockingConnection
from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.ports.authorizer import AllowAll, Principal
from headwater.ports.credentials import SaslExchange
from headwater.security.plain import PlainExchange
from headwater.security.scram_credential import (
    ScramMechanism,
    credential_of_password,
    format_credential,
)
from headwater.security.scram_exchange import ScramExchange
from headwater.security.scram_messages import parse_server_first
from headwater.system import SystemClock, SystemEntropy
from headwater.testing.clocks import ManualClock
from headwater.wire.apis.k03_metadata import MetadataRequest, MetadataResponse
from headwater.wire.apis.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headwater.wire.apis.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from headwater.wire.framing import decode_response
from headwater_broker.app.config import from_properties
from headwater_broker.app.data_plane import build_listener
from headwater_broker.app.dynamic_config import DynamicConfigs
from headwater_broker.app.sasl_listeners import SaslParts, sasl_authenticator
from headwater_broker.network.listener import Listener
from headwater_broker.security.authentication_gate import (
    Authenticator,
    Handshake,
    TokenAnswer,
)
from headwater_broker.security.delegation_tokens import TokenLogin
from headwater_broker.security.mechanism import AuthenticationFailedError
from headwater_broker.security.scram_credentials import ScramCredentials
from headwater_broker.security.scram_mechanism import ScramParts, ScramServerMechanism
from headwater_broker.security.session import Session
from solo_broker import SoloBroker

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
PROPERTIES = {
    "broker.id": "1",
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": MECHANISMS,
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{JAAS} user_alice="secret";',
}


def scram(mechanism: ScramMechanism, password: str, iterations: int = 4096) -> str:
    return format_credential(credential_of_password(mechanism, password, b"salt", iterations))


USERS = {"users/alice": {m.value: scram(m, "secret") for m in ScramMechanism}}


class Shown:
    """Credentials that begin these exchanges."""

    def __init__(self, *exchanges: SaslExchange) -> None:
        self._exchanges = list(exchanges)

    def tls(self) -> None: ...

    def sasl(self, host: str) -> SaslExchange:
        return self._exchanges.pop(0)


class SaslBroker:
    """A broker with one SASL listener."""

    def __init__(self, broker: SoloBroker, listener: Listener, port: int) -> None:
        self.broker = broker
        self.listener = listener
        self.port = port

    async def login(self, *exchanges: SaslExchange) -> Connection:
        return await open_connection("127.0.0.1", self.port, credentials=Shown(*exchanges))

    @property
    def principals(self) -> list[str]:
        return [c.session.principal.name for c in self.listener.connections]


Story = Callable[[SaslBroker], Awaitable[None]]


def tokens(token_id: str) -> TokenLogin | None:
    now = SystemClock().now_ms()
    known = {
        "fresh": TokenLogin(Principal("User", "carol"), b"hmac", now + 60_000),
        "old": TokenLogin(Principal("User", "carol"), b"hmac", now - 1),
    }
    return known.get(token_id)


class Hasty:
    """An authenticator that tells the client a shorter lifetime than the session has."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def handshake(self, mechanism: str, version: int) -> Handshake:
        return self._authenticator.handshake(mechanism, version)

    async def authenticate(self, token: bytes) -> TokenAnswer:
        answer = await self._authenticator.authenticate(token)
        return replace(answer, lifetime_ms=min(answer.lifetime_ms, 1))


def serve(folder: Path, story: Story, *, hasty: bool = False, **properties: str) -> None:
    async def run() -> None:
        async with SoloBroker(folder) as broker:
            config = from_properties(
                {**PROPERTIES, **{k.replace("__", "."): v for k, v in properties.items()}}
            )
            parts = SaslParts(
                users=lambda: USERS,
                secret=b"of the cluster",
                clock=SystemClock(),
                entropy=SystemEntropy(),
                find_token=tokens,
            )
            make = sasl_authenticator(config, "SASL_PLAINTEXT", parts)
            assert make is not None
            listener = build_listener(
                DynamicConfigs(config, broker.view),
                broker.services,
                "SASL_PLAINTEXT",
                make_authenticator=(lambda session: Hasty(make(session))) if hasty else make,
            )
            port = await listener.start("127.0.0.1", 0)
            await asyncio.wait_for(story(SaslBroker(broker, listener, port)), 30)
            await listener.close()

    asyncio.run(run())


def exchange(mechanism: str, name: str = "alice", password: str = "secret") -> SaslExchange:
    if mechanism == "PLAIN":
        return PlainExchange(name, password)
    return ScramExchange(mechanism, name, password)


@pytest.mark.parametrize("mechanism", MECHANISMS.split(","))
def test_a_user_logs_in(tmp_path: Path, mechanism: str) -> None:
    async def story(broker: SaslBroker) -> None:
        connection = await broker.login(exchange(mechanism))
        await connection.call(MetadataRequest(topics=()), MetadataResponse)
        assert broker.principals == ["alice"]
        await asyncio.to_thread(blocking_login, broker.port, mechanism)
        connection.close()

    serve(tmp_path, story)


def blocking_login(port: int, mechanism: str) -> None:
    shown = Shown(exchange(mechanism))
    connection = BlockingConnection(
        "127.0.0.1", port, client_id="c", timeout_s=10, credentials=shown
    )
    connection.call(MetadataRequest(topics=()), MetadataResponse)
    connection.close()


@pytest.mark.parametrize("mechanism", MECHANISMS.split(","))
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", "secret")])
def test_nobody_else_does_and_the_refusal_does_not_say_why(
    tmp_path: Path, mechanism: str, name: str, password: str
) -> None:
    async def story(broker: SaslBroker) -> None:
        with pytest.raises(KafkaError) as caught:
            await broker.login(exchange(mechanism, name, password))
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert caught.value.detail == (
            f"Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {mechanism}"
        )

    serve(tmp_path, story)


def test_the_sdk_tells_a_refused_login_at_once(tmp_path: Path) -> None:
    async def story(broker: SaslBroker) -> None:
        with pytest.raises(KafkaError) as caught:
            await asyncio.to_thread(
                Admin,
                f"127.0.0.1:{broker.port}",
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="PLAIN",
                sasl_username="alice",
                sasl_password="wrong-Horse",
            )
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert str(broker.port) in str(caught.value)
        assert "wrong-Horse" not in str(caught.value)

    serve(tmp_path, story)


async def first_answer(broker: SaslBroker, mechanism: str, name: str) -> bytes:
    connection = await open_connection("127.0.0.1", broker.port)
    handshake = SaslHandshakeRequest(mechanism=mechanism)
    await connection.call(handshake, SaslHandshakeResponse, version=1)
    request = SaslAuthenticateRequest(auth_bytes=f"n,,n={name},r=abc".encode())
    reply = await connection.call(request, SaslAuthenticateResponse, version=2)
    connection.close()
    assert not reply.error_code
    return bytes(reply.auth_bytes)


def test_an_unknown_user_gets_a_challenge_as_any_other(tmp_path: Path) -> None:
    """Always the same salt, in the form of a real one, with the usual iterations."""

    async def story(broker: SaslBroker) -> None:
        answers = [
            parse_server_first(await first_answer(broker, "SCRAM-SHA-256", name))
            for name in ("nobody", "nobody", "somebody", "alice")
        ]
        assert answers[0].salt == answers[1].salt != answers[2].salt
        assert {a.iterations for a in answers} == {4096}
        assert 20 <= len(answers[0].salt) <= 26
        other = await first_answer(broker, "SCRAM-SHA-512", "nobody")
        assert parse_server_first(other).salt != answers[0].salt

    serve(tmp_path, story)


def test_a_token_that_expires_during_the_login_is_refused() -> None:
    async def login(late_ms: int) -> int | None:
        clock = ManualClock()
        ends = clock.now_ms() + 60_000
        login = TokenLogin(Principal("User", "carol"), b"hmac", ends)
        parts = ScramParts(
            ScramCredentials(dict, b"secret"), clock, SystemEntropy(), lambda _id: login
        )
        mechanism = ScramServerMechanism(ScramMechanism.SCRAM_SHA_256, parts)
        server = mechanism.begin(Session(AllowAll(), listener="SASL_PLAINTEXT"))
        password = base64.b64encode(b"hmac").decode()
        client = ScramExchange("SCRAM-SHA-256", "t", password, is_token=True)
        challenge = await server.step(client.step(b"") or b"")
        clock.advance(late_ms)
        await server.step(client.step(challenge) or b"")
        assert server.result is not None
        return server.result.lifetime_ms

    assert asyncio.run(login(20_000)) == 40_000, "what is left at the end of the login"
    with pytest.raises(AuthenticationFailedError, match="expired"):
        asyncio.run(login(60_000))


def test_iterations_do_not_tell_whether_a_user_exists() -> None:
    users = {"users/a": {"SCRAM-SHA-256": scram(ScramMechanism.SCRAM_SHA_256, "x", 8192)}}
    credentials = ScramCredentials(lambda: users, b"secret")
    stand_in = credentials.stand_in(ScramMechanism.SCRAM_SHA_256, "nobody")
    assert stand_in.iterations == 8192
    assert credentials.stand_in(ScramMechanism.SCRAM_SHA_512, "nobody").iterations == 4096
    users = {"users/a": {"SCRAM-SHA-256": scram(ScramMechanism.SCRAM_SHA_256, "x", 4097)}}
    changed = credentials.stand_in(ScramMechanism.SCRAM_SHA_256, "nobody")
    assert (changed.iterations, changed.salt) == (4097, stand_in.salt)


def test_an_unknown_mechanism_is_refused_with_those_there_are(tmp_path: Path) -> None:
    class Other(PlainExchange):
        mechanism = "GSSAPI"

    async def story(broker: SaslBroker) -> None:
        with pytest.raises(KafkaError, match="the broker has PLAIN, SCRAM-SHA-256") as caught:
            await broker.login(Other("alice", "secret"))
        assert caught.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM

    serve(tmp_path, story)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_delegation_token_logs_its_owner_in(tmp_path: Path, mechanism: str) -> None:
    async def story(broker: SaslBroker) -> None:
        connection = await broker.login(ScramExchange(mechanism, "fresh", "aG1hYw==", True))
        (served,) = broker.listener.connections
        assert served.session.is_token
        assert broker.principals == ["carol"]
        connection.close()
        for token_id, secret, is_token in (
            ("old", "aG1hYw==", True),
            ("fresh", "d3Jvbmc=", True),
            ("none", "aG1hYw==", True),
            ("fresh", "aG1hYw==", False),
            ("alice", "secret", True),
        ):
            with pytest.raises(KafkaError, match="invalid credentials"):
                await broker.login(ScramExchange(mechanism, token_id, secret, is_token))

    serve(tmp_path, story)


async def call_handshake(connection: Connection, mechanism: str) -> SaslHandshakeResponse:
    request = SaslHandshakeRequest(mechanism=mechanism)
    return await connection.call(request, SaslHandshakeResponse, version=1)


async def send_token(connection: Connection, token: bytes) -> SaslAuthenticateResponse:
    request = SaslAuthenticateRequest(auth_bytes=token)
    return await connection.call(request, SaslAuthenticateResponse, version=2)


def test_re_authentication_keeps_mechanism_and_principal(tmp_path: Path) -> None:
    async def story(broker: SaslBroker) -> None:
        for mechanism, token, text in (
            ("PLAIN", b"\0alice\0secret", None),
            ("PLAIN", b"\0alice\0wrong", "Authentication failed during re-authentication"),
            ("SCRAM-SHA-256", b"n,,n=alice,r=x", "not supported for re-authentication"),
        ):
            connection = await broker.login(PlainExchange("alice", "secret"))
            await call_handshake(connection, mechanism)
            reply = await send_token(connection, token)
            assert bool(reply.error_code) == (text is not None)
            assert (text or "") in (reply.error_message or "")
            assert reply.session_lifetime_ms == (0 if text else 3_600_000)
            if text is None:
                await connection.call(MetadataRequest(topics=()), MetadataResponse)
            connection.close()

    serve(tmp_path, story, connections__max__reauth__ms="3600000")


class Counted:
    """Alice, who counts her logins; from the third on with another password."""

    def __init__(self, password_later: str = "secret") -> None:
        self.logins = 0
        self._later = password_later

    def tls(self) -> None: ...

    def sasl(self, host: str) -> SaslExchange:
        self.logins += 1
        password = "secret" if self.logins < 3 else self._later
        return ScramExchange("SCRAM-SHA-256", "alice", password)


def test_the_sdk_authenticates_again_while_requests_go_on(tmp_path: Path) -> None:
    async def story(broker: SaslBroker) -> None:
        alice = Counted()
        connection = await open_connection("127.0.0.1", broker.port, credentials=alice)
        while alice.logins < 5:
            asked = [
                connection.call(MetadataRequest(topics=()), MetadataResponse) for _ in range(20)
            ]
            await asyncio.gather(*asked)
        connection.close()
        wrong = Counted("wrong")
        connection = await open_connection("127.0.0.1", broker.port, credentials=wrong)
        with pytest.raises(ConnectionError, match="re-authentication failed"):
            while True:
                await connection.call(MetadataRequest(topics=()), MetadataResponse)
        assert not connection.is_open

    serve(tmp_path, story, hasty=True, connections__max__reauth__ms="3600000")


def test_a_blocking_connection_authenticates_again_between_requests(tmp_path: Path) -> None:
    """Also with responses that it has not read yet."""

    def talk(port: int) -> int:
        alice = Counted()
        connection = BlockingConnection(
            "127.0.0.1", port, client_id="c", timeout_s=10, credentials=alice
        )
        request = MetadataRequest(topics=())
        connection.call(request, MetadataResponse)
        while alice.logins < 9:
            sent = [connection.send(request, 12) for _ in range(20)]
            for correlation_id in sent:
                decode_response(MetadataResponse, 12, connection.receive(), correlation_id)
        connection.call(request, MetadataResponse)
        connection.close()
        return alice.logins

    async def story(broker: SaslBroker) -> None:
        assert await asyncio.to_thread(talk, broker.port) >= 9

    serve(tmp_path, story, hasty=True, connections__max__reauth__ms="3600000")


def test_tokens_and_handshakes_out_of_order(tmp_path: Path) -> None:
    async def story(broker: SaslBroker) -> None:
        connection = await open_connection("127.0.0.1", broker.port)
        reply = await send_token(connection, b"\0alice\0secret")
        assert reply.error_code == ErrorCode.ILLEGAL_SASL_STATE
        with pytest.raises(ConnectionError):
            await call_handshake(connection, "PLAIN")
        connection = await open_connection("127.0.0.1", broker.port)
        await call_handshake(connection, "SCRAM-SHA-256")
        second = await call_handshake(connection, "PLAIN")
        assert second.error_code == ErrorCode.ILLEGAL_SASL_STATE
        connection = await broker.login(PlainExchange("alice", "secret"))
        reply = await send_token(connection, b"\0alice\0secret")
        assert reply.error_code == ErrorCode.ILLEGAL_SASL_STATE
        await connection.call(MetadataRequest(topics=()), MetadataResponse)
        connection.close()

    serve(tmp_path, story)


def test_version_0_of_the_handshake_is_followed_by_bare_tokens(tmp_path: Path) -> None:
    async def story(broker: SaslBroker) -> None:
        connection = await open_connection("127.0.0.1", broker.port)
        request = SaslHandshakeRequest(mechanism="PLAIN")
        await connection.call(request, SaslHandshakeResponse, version=0)
        with pytest.raises(ConnectionError):
            await connection.request(b"\0alice\0wrong")

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI needs a key table"),
        ({"plain.sasl.jaas.config": "x.Jndi required;"}, "Jndi is not known"),
    ],
)
def test_a_listener_that_cannot_work_is_refused(properties: dict[str, str], why: str) -> None:
    prefix = "listener.name.sasl_plaintext."
    config = from_properties({**PROPERTIES, **{prefix + k: v for k, v in properties.items()}})
    parts = SaslParts(users=dict, secret=b"s", clock=SystemClock(), entropy=SystemEntropy())
    with pytest.raises(UsageError, match=why):
        sasl_authenticator(config, "SASL_PLAINTEXT", parts)


def test_plain_without_users_names_the_key() -> None:
    properties = {k: v for k, v in PROPERTIES.items() if "jaas" not in k}
    parts = SaslParts(users=dict, secret=b"s", clock=SystemClock(), entropy=SystemEntropy())
    with pytest.raises(UsageError, match=r"listener\.name\.sasl_plaintext\.plain\.sasl"):
        sasl_authenticator(from_properties(properties), "SASL_PLAINTEXT", parts)
