"""Spoiled bytes before authentication, parser by parser, against real listeners.

Each attempt is a new connection that sends valid bytes up to a point, then spoiled ones, and is
fed to the real `Connection` or `TlsConnection` without a socket. A good client logs in now and then
over a real one.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from joserfc import jwk, jwt

import kerberos_realm
from fuzz.frames import FRAME_CPU_MAX_S, Complaints, Wire
from fuzz.spoiling import framed, spoil
from headwater.client.connection import open_connection
from headwater.security.plain import PlainExchange
from headwater.security.principal import principal_mapper
from headwater.security.protocol import SecurityProtocol
from headwater.security.scram_exchange import ScramExchange
from headwater.security.tls_context import client_context
from headwater.system import SystemClock, SystemEntropy
from headwater.wire.apis.k17_sasl_handshake import SaslHandshakeRequest
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest
from headwater.wire.apis.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from headwater.wire.framing import decode_response, encode_request
from headwater.wire.schema import Message
from headwater_broker.api.registry import load_handlers
from headwater_broker.app.config import from_properties
from headwater_broker.app.data_plane import build_listener
from headwater_broker.app.dynamic_config import DynamicConfigs
from headwater_broker.app.sasl_listeners import SaslParts, sasl_authenticator
from headwater_broker.network.connection import Connection
from headwater_broker.network.listener import Listener
from headwater_broker.network.tls_connection import TlsConnection
from headwater_broker.network.tls_endpoint import TlsEndpoint
from solo_broker import SoloBroker
from tls_authority import Authority
from unit.security.test_sasl_listener import PROPERTIES, USERS, Shown, tokens

GSSAPI = "GSSAPI"
KDC_PORT = 23_990
CANARY_EVERY = 1_000
ANSWER_MAX_S = 30.0
SWOLLEN_MAX = 8_000
"""Longest run of random bytes in a message."""
SETTLE_TURNS = 4
LISTENER = "listener.name.sasl_plaintext."
OAUTH = f"{LISTENER}oauthbearer.sasl.oauthbearer."


class Inline:
    """Runs at once, so that a flight of a handshake counts as time of the loop."""

    def run(
        self,
        loop: asyncio.AbstractEventLoop,
        handshake: Callable[[], None],
        ended: Callable[[Exception | None], None],
    ) -> bool:
        """At once."""
        try:
            handshake()
        except ssl.SSLError as error:
            loop.call_soon(ended, error)
        else:
            loop.call_soon(ended, None)
        return True


class Heard(Wire):
    """A transport that keeps what the broker says."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.changed = asyncio.Event()
        self.said = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Kept."""
        self.said += data
        self.changed.set()

    def close(self) -> None:
        """Closed by the broker."""
        self.is_closed = True
        self.changed.set()

    abort = close


class Door:
    """One connection before its login; a broken promise of the broker is an AssertionError."""

    def __init__(self, side: Connection | TlsConnection, sock: socket.socket) -> None:
        self.wire = Heard(sock)
        self.longest_s = 0.0
        """The longest time that the loop was kept."""
        self._side = side
        side.connection_made(self.wire)

    async def say(self, data: bytes) -> bytes:
        """What the broker answers; empty when it closes, or waits for more."""
        del self.wire.said[:]
        self.wire.changed.clear()
        at = 0
        while at < len(data) and not self.wire.is_closed:
            began = time.thread_time()
            room = self._side.get_buffer(-1)
            part = data[at : at + len(room)]
            room[: len(part)] = part
            self._side.buffer_updated(len(part))
            at += len(part)
            self._took(began, data)
        began = time.thread_time()
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)
        self._took(began, data)
        if isinstance(self._side, Connection) and self._side.in_flight:
            async with asyncio.timeout(ANSWER_MAX_S):
                await self.wire.changed.wait()
        return bytes(self.wire.said)

    @property
    def who(self) -> str:
        """As whom the broker knows the client."""
        return self._side.session.principal.name if isinstance(self._side, Connection) else ""

    def _took(self, began: float, data: bytes) -> None:
        took = time.thread_time() - began
        self.longest_s = max(self.longest_s, took)
        assert took < FRAME_CPU_MAX_S, f"{took:.1f} s for {data.hex()}"

    def end(self) -> None:
        """The client is gone."""
        self._side.connection_lost(None)


class House(NamedTuple):
    """A broker with a SASL listener and one for TLS, and what valid clients say."""

    sasl: Listener
    tls: Listener
    endpoint: TlsEndpoint
    trusted: ssl.SSLContext
    sign: Callable[[], str]
    sock: socket.socket

    def door(self) -> Door:
        """A new connection to the SASL listener."""
        return Door(Connection(self.sasl), self.sock)

    def tls_door(self) -> Door:
        """A new connection to the listener with TLS."""
        return Door(TlsConnection(self.tls, self.endpoint), self.sock)


Attack = Callable[[House, random.Random], Awaitable[tuple[Door, int]]]
"""-> the connection, and the number of spoiled bytes."""


def swollen(good: bytes, chance: random.Random) -> bytes:
    """Spoiled, and in one of five much longer."""
    data = spoil(good, chance, 0)
    if chance.random() < 0.2:
        at = int(chance.random() * (len(data) + 1))
        data = data[:at] + chance.randbytes(int(chance.random() * SWOLLEN_MAX)) + data[at:]
    return data


def _framed(request: Message, version: int) -> bytes:
    body = encode_request(request, version, 1, "fuzz")
    return len(body).to_bytes(4, "big") + body


def on_frames(*kinds: type[Message]) -> Attack:
    """Requests that pass before authentication, spoiled from their headers on."""
    good = [
        encode_request(request, version, 1, "fuzz")
        for request in (kind() for kind in kinds)
        for version in range(request.versions[0], request.versions[1] + 1)
    ]

    async def attack(house: House, chance: random.Random) -> tuple[Door, int]:
        door, sent = house.door(), 0
        while sent < 1_000 and not door.wire.is_closed:
            data = framed(swollen(good[int(chance.random() * len(good))], chance), chance)
            sent += len(data)
            await door.say(data)
        return door, sent

    return attack


async def _token(door: Door, token: bytes, *, is_bare: bool) -> bytes:
    """The broker's token in answer to one."""
    if is_bare:
        return (await door.say(len(token).to_bytes(4, "big") + token))[4:]
    reply = await door.say(_framed(SaslAuthenticateRequest(auth_bytes=token), 2))
    if not reply:
        return b""
    found = decode_response(SaslAuthenticateResponse, 2, memoryview(reply)[4:], 1)
    return b"" if found.error_code else bytes(found.auth_bytes)


async def _begun(house: House, mechanism: str, *, is_bare: bool) -> Door:
    door = house.door()
    await door.say(_framed(SaslHandshakeRequest(mechanism=mechanism), 0 if is_bare else 1))
    return door


def on_tokens(mechanism: str, client: Callable[[House], Callable[[bytes], bytes | None]]) -> Attack:
    """A login whose first, second or third token is spoiled. `client` begins an exchange."""

    async def attack(house: House, chance: random.Random) -> tuple[Door, int]:
        is_bare = chance.random() < 0.3
        door = await _begun(house, mechanism, is_bare=is_bare)
        step, challenge, spoiled = client(house), b"", int(chance.random() * 3)
        for number in range(3):
            token = step(challenge)
            if token is None or door.wire.is_closed:
                break
            if number == spoiled or (number == 0 and chance.random() < 0.3):
                data = swollen(token, chance)
                await _token(door, data, is_bare=is_bare)
                return door, len(data)
            challenge = await _token(door, token, is_bare=is_bare)
        data = swollen(b"", chance)  # behind a login that went well
        await _token(door, data, is_bare=is_bare)
        return door, len(data)

    return attack


def _scram(mechanism: str) -> Callable[[House], Callable[[bytes], bytes | None]]:
    def begin(_house: House) -> Callable[[bytes], bytes | None]:
        exchange = ScramExchange(mechanism, "alice", "secret")
        return lambda challenge: None if exchange.is_complete else exchange.step(challenge)

    return begin


def _plain(_house: House) -> Callable[[bytes], bytes | None]:
    return PlainExchange("alice", "secret").step


def _oauth(house: House) -> Callable[[bytes], bytes | None]:
    said = iter((f"n,,\x01auth=Bearer {house.sign()}\x01\x01".encode(), b"\x01"))
    return lambda _challenge: next(said, None)


def _gssapi(_house: House) -> Callable[[bytes], bytes | None]:
    from headwater.security.gssapi_exchange import GssapiExchange

    exchange = GssapiExchange("kafka", "localhost")
    return lambda challenge: None if exchange.is_complete else exchange.step(challenge)


async def on_tls(house: House, chance: random.Random) -> tuple[Door, int]:
    """A spoiled ClientHello, or a spoiled second flight with the client's certificate."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = house.trusted.wrap_bio(incoming, outgoing, server_hostname="localhost")
    door, flights = house.tls_door(), 1 + int(chance.random() * 1.3)
    for flight in range(flights):
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            pass  # it waits for the broker's flight
        said = outgoing.read()
        if flight < flights - 1:
            incoming.write(await door.say(said))
    data = swollen(said, chance)
    await door.say(data)
    return door, len(data)


PARSERS: Mapping[str, Attack] = {
    "ApiVersions": on_frames(ApiVersionsRequest),
    "SaslHandshake": on_frames(SaslHandshakeRequest),
    "SaslAuthenticate": on_frames(SaslAuthenticateRequest),
    "PLAIN": on_tokens("PLAIN", _plain),
    "SCRAM-SHA-256": on_tokens("SCRAM-SHA-256", _scram("SCRAM-SHA-256")),
    "SCRAM-SHA-512": on_tokens("SCRAM-SHA-512", _scram("SCRAM-SHA-512")),
    "OAUTHBEARER": on_tokens("OAUTHBEARER", _oauth),
    GSSAPI: on_tokens(GSSAPI, _gssapi),
    "TLS": on_tls,
}


class Outcome(NamedTuple):
    """What a run of one parser came to."""

    sent: int
    """Spoiled bytes."""
    attempts: int
    closed: int
    """Attempts that the broker ended."""
    longest_s: float
    """The longest time that one message kept the loop."""


async def fuzz_login(parser: str, size: int, seed: int, found: Complaints) -> Outcome:
    """Send `size` spoiled bytes. Raises AssertionError with what did harm."""
    chance, attack = random.Random(seed), PARSERS[parser]
    sent = attempts = closed = 0
    longest_s = 0.0
    with tempfile.TemporaryDirectory() as name:
        async with open_house(Path(name), has_kerberos=parser == GSSAPI) as house:
            while sent < size:
                if attempts % CANARY_EVERY == 0:
                    await _canary(house)
                door, count = await attack(house, chance)
                sent, attempts = sent + count, attempts + 1
                closed += door.wire.is_closed
                longest_s = max(longest_s, door.longest_s)
                assert door.who in ("", "ANONYMOUS", "alice"), door.who
                door.end()
                assert not found.lines, found.lines[0]
            await _canary(house)
            assert house.sasl.connections == house.tls.connections == ()
    return Outcome(sent, attempts, closed, longest_s)


async def _canary(house: House) -> None:
    """A good client logs in."""
    login = Shown(ScramExchange("SCRAM-SHA-512", "alice", "secret"))
    good = await open_connection("127.0.0.1", house.sasl.port, credentials=login)
    good.close()
    while house.sasl.connections:
        await asyncio.sleep(0)


@asynccontextmanager
async def open_house(folder: Path, *, has_kerberos: bool = False) -> AsyncIterator[House]:
    """The broker."""
    key = jwk.generate_key("RSA", 2048, {"kid": "one"})
    (folder / "keys.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    with _kerberos(folder, has_kerberos) as extra:
        async with SoloBroker(folder / "log") as broker:
            sasl = _sasl_listener(broker, folder, extra)
            await sasl.start("127.0.0.1", 0)
            authority = Authority()
            tls, endpoint = _tls_listener(broker, authority, folder)
            near, far = socket.socketpair()
            alice = authority.leaf("alice", hosts=())
            trusted = client_context(
                {
                    "ssl.truststore.certificates": authority.pem,
                    "ssl.keystore.key": alice.key_pem,
                    "ssl.keystore.certificate.chain": alice.certificate_pem,
                }
            )
            yield House(sasl, tls, endpoint, trusted, lambda: _signed(key), near)
            near.close()
            far.close()
            await sasl.close()


def _sasl_listener(broker: SoloBroker, folder: Path, extra: Mapping[str, str]) -> Listener:
    enabled = f"{LISTENER}sasl.enabled.mechanisms"
    config = from_properties(
        {
            **PROPERTIES,
            f"{OAUTH}jwks.endpoint.url": (folder / "keys.json").as_uri(),
            f"{OAUTH}expected.issuer": "https://idp",
            f"{OAUTH}expected.audience": "kafka",
            **extra,
            enabled: f"{PROPERTIES[enabled]},OAUTHBEARER{',GSSAPI' if extra else ''}",
        }
    )
    parts = SaslParts(
        users=lambda: USERS, secret=b"of the cluster", clock=SystemClock(),
        entropy=SystemEntropy(), find_token=tokens,
    )  # fmt: skip
    make = sasl_authenticator(config, "SASL_PLAINTEXT", parts)
    dynamic = DynamicConfigs(config, broker.view)
    return build_listener(dynamic, broker.services, "SASL_PLAINTEXT", make_authenticator=make)


def _tls_listener(
    broker: SoloBroker, authority: Authority, folder: Path
) -> tuple[Listener, TlsEndpoint]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.leaf().write(folder / "broker.pem"))
    context.load_verify_locations(cadata=authority.pem)
    context.verify_mode = ssl.CERT_REQUIRED
    endpoint = TlsEndpoint(context, principal_mapper("DEFAULT"), Inline(), SystemClock())
    listener = Listener(
        broker.services, load_handlers(), asyncio.get_running_loop(),
        name="SSL", protocol=SecurityProtocol.SSL,
    )  # fmt: skip
    return listener, endpoint


@contextmanager
def _kerberos(folder: Path, has_kerberos: bool) -> Iterator[Mapping[str, str]]:
    """The properties of GSSAPI, and alice's ticket for this process."""
    if not has_kerberos:
        yield {}
        return
    kdc = folder / "kdc"
    kdc.mkdir()
    with kerberos_realm.started(kdc, KDC_PORT, ("kafka/localhost", "alice")) as realm:
        os.environ["KRB5CCNAME"] = f"FILE:{realm.ticket('alice')}"
        os.environ["KRB5RCACHENAME"] = "none:"
        yield {
            f"{LISTENER}gssapi.sasl.jaas.config": realm.jaas("kafka/localhost"),
            "sasl.kerberos.service.name": "kafka",
        }
        del os.environ["KRB5CCNAME"]


def _signed(key: jwk.RSAKey) -> str:
    now = int(time.time())
    claims = {"iss": "https://idp", "aud": "kafka", "sub": "alice", "exp": now + 300}
    return jwt.encode({"alg": "RS256", "kid": "one"}, claims, key, algorithms=["RS256"])
