"""A client of the wrong protocol gets a hint in the broker's log, one a second."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from headwater.security.protocol import SecurityProtocol
from headwater.testing.clocks import ManualClock
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest
from headwater.wire.framing import encode_request
from headwater_broker.network.wrong_protocol import WrongProtocolHints
from solo_broker import SoloBroker
from unit.network.test_tls_connection import secure


def hints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == WrongProtocolHints.__module__]


async def plaintext_client(port: int) -> None:
    """Sends ApiVersions, and waits for the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = encode_request(ApiVersionsRequest(), 3, 1, "c")
    writer.write(len(body).to_bytes(4, "big") + body)
    try:
        await reader.read()
    except ConnectionError:
        pass  # closed with bytes that nobody read
    writer.close()


def test_a_client_without_tls_on_a_listener_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with secure(tmp_path) as s:
            for _ in range(3):
                await plaintext_client(s.listener.port)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    [hint] = hints(caplog)
    assert hint == (
        "client 127.0.0.1 does not speak TLS, which listener SSL needs: set security.protocol=SSL "
        "in the client, or use another listener"
    )


def test_a_client_with_tls_on_a_listener_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            for _ in range(3):
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await asyncio.open_connection(
                        "127.0.0.1", broker.port, ssl=ssl.create_default_context()
                    )
            assert broker.services.meters.connections_closed_malformed == 3

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    hint = hints(caplog)[0]  # a slow machine may take a second for the others
    assert hint == (
        "client 127.0.0.1 speaks TLS, which listener PLAINTEXT has not: set "
        "security.protocol=PLAINTEXT in the client, or use another listener"
    )


def test_one_hint_a_second_says_how_many_there_were(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    told = WrongProtocolHints("CLIENTS", SecurityProtocol.SASL_SSL, clock)
    for host in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        told.speaks_plaintext(host)
    assert len(hints(caplog)) == 1
    clock.advance(1_000)
    told.speaks_plaintext("10.0.0.4")
    last = hints(caplog)[-1]
    assert last.startswith("client 10.0.0.4 does not speak TLS")
    assert "security.protocol=SASL_SSL" in last
    assert last.endswith("(2 connections more since the last line)")
