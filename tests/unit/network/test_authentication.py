"""A listener that requires authentication: before it, after it, and when the session expires."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Principal
from headwater.wire.apis.k03_metadata import MetadataRequest, MetadataResponse
from headwater.wire.apis.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.apis.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from headwater.wire.framing import decode_response, encode_request
from headwater.wire.schema import Message
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import ApiRow, load_handlers
from headwater_broker.api.replies import CloseConnectionError
from headwater_broker.app.data_plane import build_listener
from headwater_broker.network.listener import Listener
from headwater_broker.security.authentication_gate import UNAUTHENTICATED_REQUEST_BYTES_MAX
from solo_broker import SoloBroker
from unit.network.test_data_plane import batch, fetch, produce


class FakeSasl:
    """A mechanism whose token is the user's name; `wrong` fails. The seam for real ones."""

    def __init__(self, *, in_pool: bool) -> None:
        self.in_pool = in_pool
        """The exchange awaits something: a real one computes in a thread."""
        self.lifetime_ms: int | None = None
        self.principals: list[Principal] = []
        """Of every MetadataRequest."""
        self.listener: Listener

    def rows(self) -> dict[int, ApiRow]:
        rows = load_handlers()
        served = rows[3].handler
        assert served is not None

        def metadata(ctx: RequestContext, request: MetadataRequest) -> object:
            self.principals.append(ctx.principal)
            return served(ctx, request)

        rows[3] = replace(rows[3], handler=metadata)
        for request, response, handler in (
            (SaslHandshakeRequest, SaslHandshakeResponse, self.handshake),
            (SaslAuthenticateRequest, SaslAuthenticateResponse, self.authenticate),
        ):
            low, high = request.versions
            key = request.api_key
            rows[key] = ApiRow(
                key, low, high, request.flexible, low, request, response, handler, None
            )
        return rows

    def handshake(
        self, ctx: RequestContext, request: SaslHandshakeRequest
    ) -> SaslHandshakeResponse:
        gate = ctx.session.gate
        assert gate is not None
        if gate.is_open:
            gate.shut()
        if ctx.api_version == 0:

            async def exchange(token: bytes) -> bytes:
                await asyncio.sleep(0)
                if token == b"wrong":
                    raise CloseConnectionError("wrong password")
                ctx.session.authenticate(Principal("User", token.decode()))
                return b"welcome"

            gate.read_tokens(exchange)
        return SaslHandshakeResponse(mechanisms=("FAKE",))

    def authenticate(
        self, ctx: RequestContext, request: SaslAuthenticateRequest
    ) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
        return self.later(ctx, request) if self.in_pool else self.exchange(ctx, request)

    async def later(
        self, ctx: RequestContext, request: SaslAuthenticateRequest
    ) -> SaslAuthenticateResponse:
        await asyncio.sleep(0)
        return self.exchange(ctx, request)

    def exchange(
        self, ctx: RequestContext, request: SaslAuthenticateRequest
    ) -> SaslAuthenticateResponse:
        gate = ctx.session.gate
        assert gate is not None
        try:
            if request.auth_bytes == b"wrong":
                raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "wrong password")
            name = bytes(request.auth_bytes).decode()
            ctx.session.authenticate(Principal("User", name), self.lifetime_ms)
        except KafkaError as error:
            gate.refuse(str(error))
            return SaslAuthenticateResponse(error_code=error.code, error_message=str(error))
        return SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms or 0)


Scenario = Callable[[FakeSasl, Connection, SoloBroker], Awaitable[None]]


def serve(tmp_path: Path, scenario: Scenario, *, in_pool: bool = True) -> None:
    """Run the scenario with a connection to a listener that requires authentication."""

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            sasl = FakeSasl(in_pool=in_pool)
            sasl.listener = listener = Listener(
                broker.services,
                sasl.rows(),
                asyncio.get_running_loop(),
                name="SASL_PLAINTEXT",
                requires_authentication=True,
            )
            port = await listener.start("127.0.0.1", 0)
            connection = await open_connection("127.0.0.1", port)
            await asyncio.wait_for(scenario(sasl, connection, broker), 30)
            connection.close()
            await listener.close()

    asyncio.run(run())


async def authenticate(c: Connection, name: str) -> SaslAuthenticateResponse:
    await c.call(SaslHandshakeRequest(mechanism="FAKE"), SaslHandshakeResponse, version=1)
    request = SaslAuthenticateRequest(auth_bytes=name.encode())
    return await c.call(request, SaslAuthenticateResponse, version=2)


def metadata(c: Connection) -> Awaitable[MetadataResponse]:
    return c.call(MetadataRequest(topics=()), MetadataResponse)


def frame(request: Message, version: int) -> bytes:
    return encode_request(request, version, 1, None)


def test_before_authentication_only_its_own_requests_are_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(sasl: FakeSasl, c: Connection, broker: SoloBroker) -> None:
        reply = await c.call(ApiVersionsRequest(), ApiVersionsResponse, version=0)
        assert len(reply.api_keys) > 30, "a client learns of all that comes after"
        with pytest.raises(ConnectionError):
            await produce(c, "t", batch())
        assert broker.replicas.partitions["t", 0].log.log_end_offset == 0

    with caplog.at_level(logging.WARNING):
        serve(tmp_path, scenario)
    assert "SASL_PLAINTEXT: malformed request: API key 0 before authentication" in caplog.text


@pytest.mark.parametrize("in_pool", [True, False])
def test_after_authentication_everything_is_served_as_that_principal(
    tmp_path: Path, in_pool: bool
) -> None:
    async def scenario(sasl: FakeSasl, c: Connection, broker: SoloBroker) -> None:
        assert not (await authenticate(c, "alice")).error_code
        await metadata(c)
        assert sasl.principals == [Principal("User", "alice")]
        assert (await produce(c, "t", batch())).base_offset == 0

    serve(tmp_path, scenario, in_pool=in_pool)


def test_frames_are_small_before_authentication(tmp_path: Path) -> None:
    async def scenario(sasl: FakeSasl, c: Connection, broker: SoloBroker) -> None:
        large = batch(size=UNAUTHENTICATED_REQUEST_BYTES_MAX)
        token = SaslAuthenticateRequest(auth_bytes=bytes(UNAUTHENTICATED_REQUEST_BYTES_MAX))
        other = await open_connection(c.host, c.port)
        with pytest.raises(ConnectionError):
            await other.call(token, SaslAuthenticateResponse, version=2)
        await authenticate(c, "alice")
        assert (await produce(c, "t", large)).base_offset == 0

    serve(tmp_path, scenario)


def test_the_longest_frame_before_authentication_is_configured_by_listener(tmp_path: Path) -> None:
    async def run() -> None:
        properties = {
            "sasl_server_max_receive_size": "2048",
            "listener_name_inside_sasl_server_max_receive_size": "1024",
            "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
            "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
        }
        async with SoloBroker(tmp_path, **properties) as broker:
            for name, longest in (("PLAINTEXT", 2048), ("INSIDE", 1024)):
                listener = build_listener(broker.dynamic, broker.services, name)
                assert listener.served_unauthenticated.request_bytes_max == longest

    asyncio.run(run())


@pytest.mark.parametrize("in_pool", [True, False])
def test_a_request_sent_behind_the_token_waits_for_the_outcome(
    tmp_path: Path, in_pool: bool
) -> None:
    async def scenario(sasl: FakeSasl, c: Connection, broker: SoloBroker) -> None:
        asked = [
            c.post(frame(SaslAuthenticateRequest(auth_bytes=b"alice"), 2)),
            c.post(frame(MetadataRequest(topics=()), 12)),
        ]
        await asyncio.gather(*asked)
        assert sasl.principals == [Principal("User", "alice")]

    serve(tmp_path, scenario, in_pool=in_pool)


@pytest.mark.parametrize("in_pool", [True, False])
def test_a_failed_authentication_is_answered_and_closes_the_connection(
    tmp_path: Path, in_pool: bool
) -> None:
    """A request sent behind the token is not served, and no second token is tried."""

    async def scenario(sasl: FakeSasl, c: Connection, broker: SoloBroker) -> None:
        failed = c.post(frame(SaslAuthenticateRequest(auth_bytes=b"wrong"), 2))
        again = c.post(frame(SaslAuthenticateRequest(auth_bytes=b"alice"), 2))
        behind = c.post(frame(MetadataRequest(topics=()), 12))
        reply = decode_response(SaslAuthenticateResponse, 2, await failed, 1)
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        for unanswered in (again, behind):
            with pytest.raises(ConnectionError):
                await unanswered
        assert not sasl.principals

    serve(tmp_path, scenario, in_pool=in_pool)


def test_a_session_whose_lifetime_is_over_serves_only_authentication(tmp_path: Path) -> None:
    async def scenario(sasl: FakeSasl, c: Connection, broker: SoloBroker) -> None:
        sasl.lifetime_ms = 0
        await authenticate(c, "alice")
        sasl.lifetime_ms = None
        assert not (await authenticate(c, "alice")).error_code, "the connection is still there"
        await metadata(c)
        sasl.lifetime_ms = 0
        await authenticate(c, "alice")
        with pytest.raises(ConnectionError):
            await metadata(c)
        assert len(sasl.principals) == 1

    serve(tmp_path, scenario)


def test_what_was_parked_before_the_lifetime_ended_is_answered(tmp_path: Path) -> None:
    async def scenario(sasl: FakeSasl, c: Connection, broker: SoloBroker) -> None:
        other = await open_connection("127.0.0.1", broker.port)
        await authenticate(c, "alice")
        parked = asyncio.create_task(fetch(c, "t", 0, max_wait_ms=2**31 - 1))
        while not broker.services.purgatories.fetch.parked:
            await asyncio.sleep(0)
        (served,) = sasl.listener.connections
        assert served.session.gate is not None
        served.session.gate.shut()
        await produce(other, "t", batch())
        assert (await parked).high_watermark == 1
        with pytest.raises(ConnectionError):
            await metadata(c)
        other.close()

    serve(tmp_path, scenario)


def test_re_authentication_cannot_change_the_principal(tmp_path: Path) -> None:
    async def scenario(sasl: FakeSasl, c: Connection, broker: SoloBroker) -> None:
        await authenticate(c, "alice")
        reply = await authenticate(c, "bob")
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(ConnectionError):
            await metadata(c)

    serve(tmp_path, scenario)


def test_tokens_may_come_without_a_request_header(tmp_path: Path) -> None:
    """SaslHandshake v0 (KIP-43): its clients send the bare token, with its size before it."""

    async def scenario(sasl: FakeSasl, c: Connection, broker: SoloBroker) -> None:
        handshake = SaslHandshakeRequest(mechanism="FAKE")
        for token in (b"alice", b"a" * 20_000):
            other = await open_connection(c.host, c.port)
            await other.call(handshake, SaslHandshakeResponse, version=0)
            assert bytes(await other.request(token)) == b"welcome"
            await metadata(other)
            assert sasl.principals.pop() == Principal("User", token.decode())
            other.close()
        await c.call(handshake, SaslHandshakeResponse, version=0)
        with pytest.raises(ConnectionError):
            await c.request(b"wrong")

    serve(tmp_path, scenario)


class OneToken:
    """The client's side of `FakeSasl`."""

    mechanism = "FAKE"

    def __init__(self, name: str) -> None:
        self.is_complete = False
        self._name = name

    def step(self, challenge: bytes) -> bytes:
        self.is_complete = True
        return self._name.encode()


class User:
    def __init__(self, name: str) -> None:
        self._name = name

    def tls(self) -> None: ...

    def sasl(self, host: str) -> OneToken:
        return OneToken(self._name)


@pytest.mark.parametrize("negotiate", [True, False])
def test_a_connection_with_credentials_is_authenticated_when_it_is_open(
    tmp_path: Path, negotiate: bool
) -> None:
    """As followers (which do not negotiate) and the SDK connect."""

    async def scenario(sasl: FakeSasl, c: Connection, broker: SoloBroker) -> None:
        request = MetadataRequest(topics=())
        other = await open_connection(
            c.host, c.port, credentials=User("alice"), negotiate=negotiate
        )
        await other.call(request, MetadataResponse, version=9)
        assert sasl.principals == [Principal("User", "alice")]
        other.close()
        with pytest.raises(KafkaError, match="wrong password"):
            await open_connection(c.host, c.port, credentials=User("wrong"), negotiate=negotiate)

    serve(tmp_path, scenario)


def test_a_listener_without_authentication_has_no_gate(tmp_path: Path) -> None:
    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            listener = broker.listener
            connection = await open_connection("127.0.0.1", broker.port)
            gates = [served.session.gate for served in listener.connections]
            assert gates == [None]
            connection.close()

    asyncio.run(run())
