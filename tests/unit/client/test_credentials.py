"""Outgoing connections use their credentials: TLS first, then a SASL exchange."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.client.blocking.connection import BlockingConnection
from headwater.client.cluster import Cluster, ClusterOptions
from headwater.client.connection import open_connection
from headwater.errors import ErrorCode, KafkaError
from headwater.system import SystemClock
from headwater.wire.apis.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headwater.wire.apis.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from headwater.wire.apis.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from headwater.wire.framing import encode_request
from headwater.wire.primitives import read_tagged
from headwater.wire.schema import Message, decode, encode
from self_signed import CERTIFICATE, KEY

SERVED = (ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest)


class TwoSteps:
    """An exchange of two tokens: the user's name, and the answer to the broker's challenge."""

    mechanism = "TWO-STEPS"

    def __init__(self, name: str) -> None:
        self.is_complete = False
        self._name = name

    def step(self, challenge: bytes) -> bytes:
        if not challenge:
            return self._name.encode()
        self.is_complete = True
        return challenge[::-1]


class User:
    """Credentials of a user, over TLS if a context is given."""

    def __init__(self, name: str, context: ssl.SSLContext | None = None) -> None:
        self._name = name
        self._context = context

    def tls(self) -> ssl.SSLContext | None:
        return self._context

    def sasl(self, host: str) -> TwoSteps:
        return TwoSteps(self._name)


class Broker:
    """Answers ApiVersions and the exchange; it knows alice."""

    def __init__(self, context: ssl.SSLContext | None = None, *mechanisms: str) -> None:
        self.mechanisms = mechanisms or (TwoSteps.mechanism,)
        self.asked: list[str] = []
        self._context = context

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0, ssl=self._context)
        return int(self._server.sockets[0].getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = self._answer(await reader.readexactly(size))
                writer.write(len(answer).to_bytes(4, "big") + answer)
        except asyncio.IncompleteReadError:
            writer.close()

    def _answer(self, frame: bytes) -> bytes:
        key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (0, 2))
        (kind,) = [k for k in SERVED if k.api_key == key]
        at = 10 + int.from_bytes(frame[8:10], "big")
        if version >= kind.flexible:
            at = read_tagged(memoryview(frame), at, {}, {})
        request = decode(kind, version, frame[at:])
        self.asked.append(kind.__name__)
        flexible = b"\0" if key != 18 and version >= kind.flexible else b""
        return frame[4:8] + flexible + encode(self._reply(request), version)

    def _reply(self, request: Message) -> Message:
        if isinstance(request, ApiVersionsRequest):
            rows = [ApiVersion(api_key=k.api_key, max_version=k.versions[1]) for k in SERVED]
            return ApiVersionsResponse(api_keys=tuple(rows))
        if isinstance(request, SaslHandshakeRequest):
            known = request.mechanism in self.mechanisms
            code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return SaslHandshakeResponse(error_code=code, mechanisms=self.mechanisms)
        assert isinstance(request, SaslAuthenticateRequest)
        if bytes(request.auth_bytes) == b"alice":
            return SaslAuthenticateResponse(auth_bytes=b"challenge", error_message=None)
        if bytes(request.auth_bytes) == b"egnellahc":
            return SaslAuthenticateResponse(error_message=None)
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return SaslAuthenticateResponse(error_code=code, error_message="no such user")


async def connect_async(port: int, user: User) -> None:
    (await open_connection("localhost", port, client_id="me", credentials=user)).close()


async def connect_cluster(port: int, user: User) -> None:
    """As producer, consumer and admin client connect."""
    cluster = Cluster([("localhost", port)], ClusterOptions(credentials=user))
    with pytest.raises(KafkaError, match="MetadataRequest"):  # the broker serves no metadata
        await cluster.refresh(())
    await cluster.close()


async def connect_blocking(port: int, user: User) -> None:
    def connect() -> None:
        BlockingConnection(
            "localhost", port, client_id="me", timeout_s=10, credentials=user
        ).close()

    await asyncio.to_thread(connect)


Connect = Callable[[int, User], Awaitable[None]]


@pytest.mark.parametrize("connect", [connect_async, connect_cluster, connect_blocking])
def test_the_exchange_follows_the_versions(connect: Connect) -> None:
    async def run() -> None:
        async with (broker := Broker()) as port:
            await connect(port, User("alice"))
            assert broker.asked == [
                "ApiVersionsRequest",
                "SaslHandshakeRequest",
                "SaslAuthenticateRequest",
                "SaslAuthenticateRequest",
            ]

    asyncio.run(run())


@pytest.mark.parametrize("connect", [connect_async, connect_blocking])
def test_refused_credentials_are_an_error_with_the_brokers_words(connect: Connect) -> None:
    async def run() -> None:
        async with Broker() as port:
            with pytest.raises(KafkaError, match="no such user") as caught:
                await connect(port, User("bob"))
            assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        async with Broker(None, "PLAIN", "GSSAPI") as port:
            with pytest.raises(KafkaError, match="the broker has PLAIN, GSSAPI") as caught:
                await connect(port, User("alice"))
            assert caught.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM

    asyncio.run(run())


@pytest.mark.parametrize("connect", [connect_async, connect_blocking])
def test_the_exchange_goes_over_tls_where_the_credentials_say_so(
    tmp_path: Path, connect: Connect
) -> None:
    pem = tmp_path / "both.pem"
    pem.write_bytes(KEY + CERTIFICATE)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(pem)
    trusted = ssl.create_default_context(cadata=CERTIFICATE.decode())

    async def run() -> None:
        async with (broker := Broker(served)) as port:
            await connect(port, User("alice", trusted))
            assert len(broker.asked) == 4
            with pytest.raises(ssl.SSLError):
                await connect(port, User("alice", ssl.create_default_context()))

    asyncio.run(run())


def test_an_interrupt_shuts_the_connection_and_leaves_tls_on(tmp_path: Path) -> None:
    """A thread that is sending meanwhile would go on in plain text."""
    pem = tmp_path / "both.pem"
    pem.write_bytes(KEY + CERTIFICATE)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(pem)
    user = User("alice", ssl.create_default_context(cadata=CERTIFICATE.decode()))

    def interrupt(port: int) -> None:
        made = BlockingConnection("localhost", port, client_id="me", timeout_s=10, credentials=user)
        made.interrupt()
        assert isinstance(made.socket, ssl.SSLSocket) and made.socket.version() is not None
        with pytest.raises(OSError):
            made.exchange(b"secret", 10)
        made.close()

    async def run() -> None:
        async with Broker(served) as port:
            await asyncio.to_thread(interrupt, port)

    asyncio.run(run())


def test_an_exchange_has_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not one for each of its calls."""
    times = itertools.count(0.0, 6.0)

    def exchange(port: int) -> None:
        made = BlockingConnection("localhost", port, client_id="me", timeout_s=10)
        body = encode_request(ApiVersionsRequest(), 3, 9, "me")
        request = len(body).to_bytes(4, "big") + body
        assert made.exchange(request, 10.0)[4:8] == bytes([0, 0, 0, 9])
        monkeypatch.setattr(SystemClock, "monotonic", lambda _: next(times))
        assert made.exchange(request, 10.0)[4:8] == bytes([0, 0, 0, 9])
        with pytest.raises(TimeoutError, match="did not answer in time"):
            made.exchange(request, 5.0)
        made.close()

    async def run() -> None:
        async with Broker() as port:
            await asyncio.to_thread(exchange, port)

    asyncio.run(run())


class AsksElsewhere(TwoSteps):
    """A step waits until the loop has run: on the loop's own thread it would wait for ever."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name)
        self._loop = loop

    def step(self, challenge: bytes) -> bytes:
        has_run = threading.Event()
        self._loop.call_soon_threadsafe(has_run.set)
        assert has_run.wait(10)
        return super().step(challenge)


class Distant(User):
    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name)
        self._loop = loop

    def sasl(self, host: str) -> TwoSteps:
        has_run = threading.Event()
        self._loop.call_soon_threadsafe(has_run.set)
        assert has_run.wait(10)
        return AsksElsewhere(self._name, self._loop)


def test_the_loop_goes_on_while_a_login_asks_for_a_ticket_or_a_token() -> None:
    async def run() -> None:
        async with Broker() as port:
            await connect_async(port, Distant("alice", asyncio.get_running_loop()))

    asyncio.run(run())
