"""Metrics of services are guarded as the brokers' status port is."""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headwater.errors import UsageError
from headwater.operations.metrics_server import WAITING_MAX, MetricsListener, serve_metrics
from tls_authority import Authority

TOKEN = "a token of the scraper"
AUTHORITY = Authority()


class One(Collector):
    """One metric."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily("one", "One.", 1)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def served(config: str = "", *, host: str = "127.0.0.1", is_secure: bool = True) -> Iterator[int]:
    port = free_port()
    listener = MetricsListener("--metrics", f"{host}:{port}", config, is_secure=is_secure)
    stop = serve_metrics(listener, One())
    try:
        yield port
    finally:
        stop()


def ask(port: int, context: ssl.SSLContext | None = None, **headers: str) -> tuple[int, str]:
    made = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        if context is None
        else http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    )
    made.request("GET", "/metrics", headers=headers)
    reply = made.getresponse()
    text = reply.read().decode()
    made.close()
    return reply.status, text


def config(folder: Path, **rows: str) -> str:
    path = folder / "metrics.properties"
    path.write_text("".join(f"{k.replace('__', '.')}={v}\n" for k, v in rows.items()))
    return str(path)


def token_file(folder: Path) -> str:
    (folder / "token").write_text(TOKEN + "\n")
    return str(folder / "token")


def test_loopback_needs_no_guard_but_a_name_of_this_server(tmp_path: Path) -> None:
    with served() as port:
        status, text = ask(port)
        assert status == 200 and "one 1.0" in text
        status, text = ask(port, Host="evil.example")
        assert status == 421 and "one" not in text.split()
    with served(config(tmp_path, allowed__hosts="scraped.example, x")) as port:
        assert ask(port, Host="scraped.example:9400")[0] == 200


def test_off_loopback_a_secure_process_serves_only_with_a_guard(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = r"--metrics 0\.0\.0\.0:\d+: .*bearer\.token\.file"
    with pytest.raises(UsageError, match=told), served(host="0.0.0.0"):
        pass
    with caplog.at_level(logging.WARNING), served(host="0.0.0.0", is_secure=False) as port:
        assert ask(port)[0] == 200
    assert "listen on 127.0.0.1" in caplog.text
    with served(config(tmp_path, bearer__token__file=token_file(tmp_path)), host="0.0.0.0") as port:
        assert ask(port)[0] == 401
        assert ask(port, Authorization="Bearer wrong")[0] == 401
        assert ask(port, Authorization=f"Basic {TOKEN}")[0] == 401
        assert ask(port, Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_client_shows_a_certificate(tmp_path: Path) -> None:
    key, trusted = AUTHORITY.leaf().write(tmp_path / "server.pem"), tmp_path / "ca.pem"
    trusted.write_text(AUTHORITY.pem)
    stores = {"ssl__keystore__location": str(key), "ssl__truststore__location": str(trusted)}
    mutual = config(tmp_path, **stores, ssl__client__auth="required")
    known = ssl.create_default_context(cafile=str(trusted))
    stranger = ssl.create_default_context(cafile=str(trusted))
    known.load_cert_chain(AUTHORITY.leaf("prometheus", hosts=()).write(tmp_path / "client.pem"))
    with served(mutual, host="0.0.0.0") as port:
        assert ask(port, known)[0] == 200
        with pytest.raises(OSError):
            ask(port, stranger)
    with (
        pytest.raises(UsageError, match="everybody"),
        served(config(tmp_path, **stores), host="::"),
    ):
        pass


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ({"bearer__token__file": "/nowhere"}, "cannot read"),
        ({"token": "x"}, "there are bearer.token.file"),
        ({"ssl__client__auth": "required"}, "ssl.keystore.location"),
    ],
)
def test_a_mistake_in_the_file_names_the_remedy(
    tmp_path: Path, rows: dict[str, str], told: str
) -> None:
    with pytest.raises(UsageError, match=told), served(config(tmp_path, **rows)):
        pass


@pytest.mark.parametrize("sent", [b"", b"GET /me"])
def test_silent_connections_keep_nobody_out(sent: bytes) -> None:
    with served() as port:
        silent = []
        for _ in range(WAITING_MAX * 3):
            silent.append(socket.create_connection(("127.0.0.1", port)))
            silent[-1].sendall(sent)
        assert ask(port)[0] == 200
        silent[0].settimeout(5)
        try:
            assert silent[0].recv(1) == b"", "the longest wait ends first"
        except ConnectionResetError:
            pass  # its bytes were not read
        for client in silent:
            client.close()
