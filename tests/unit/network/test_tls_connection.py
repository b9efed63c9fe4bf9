"""TLS listeners: requests of any size, principals of certificates, bad handshakes, renewal."""

from __future__ import annotations

import asyncio
import gc
import hmac
import logging
import os
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding

from headwater.client.connection import Connection, open_connection
from headwater.errors import UsageError
from headwater.ports.authorizer import Principal
from headwater.ports.credentials import NO_CREDENTIALS, Credentials
from headwater.security.principal import principal_mapper
from headwater.security.tls_context import client_context
from headwater.security.x509 import CertificateFormatError
from headwater.system import SystemClock
from headwater.testing.clocks import ManualClock
from headwater.wire.apis.k03_metadata import MetadataRequest, MetadataResponse
from headwater.wire.framing import encode_request
from headwater_broker.app.data_plane import build_listener
from headwater_broker.app.tls_listeners import TlsListeners
from headwater_broker.network.handshake_threads import HandshakeThreads
from headwater_broker.network.listener import Listener
from headwater_broker.network.tls_endpoint import TlsEndpoint
from headwater_broker.network.unauthenticated import UnauthenticatedLimits
from solo_broker import SoloBroker
from tls_authority import Authority, Leaf
from unit.network.test_data_plane import batch, fetch, produce, produce_request

AUTHORITY = Authority()
BROKER = AUTHORITY.leaf()
ALICE = AUTHORITY.leaf("alice", hosts=())
RULES = "RULE:^CN=(.*)$/$1/"


class Shown:
    """The credentials of a client with TLS."""

    def __init__(self, leaf: Leaf | None = None, **properties: str) -> None:
        own: Mapping[str, str] = {}
        if leaf is not None:
            own = {
                "ssl.keystore.key": leaf.key_pem,
                "ssl.keystore.certificate.chain": leaf.certificate_pem,
            }
        named = {key.replace("_", "."): text for key, text in properties.items()}
        self.context = client_context(
            {"ssl.truststore.certificates": AUTHORITY.pem, **own, **named}
        )

    def tls(self) -> ssl.SSLContext:
        return self.context

    def sasl(self, host: str) -> None:
        return None


class Secure:
    """A broker with a listener for TLS beside the plaintext one."""

    def __init__(self, broker: SoloBroker, tls: TlsListeners, listener: Listener) -> None:
        self.broker = broker
        self.tls = tls
        self.listener = listener

    @property
    def principals(self) -> list[Principal]:
        return [connection.session.principal for connection in self.listener.connections]

    async def connect(self, shown: Shown) -> Connection:
        return await open_connection("127.0.0.1", self.listener.port, credentials=shown)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.001)


@asynccontextmanager
async def secure(
    folder: Path, limits: UnauthenticatedLimits | None = None, **properties: str
) -> AsyncIterator[Secure]:
    keystore = BROKER.write(folder / "broker.pem")
    (folder / "ca.pem").write_text(AUTHORITY.pem)
    solo = SoloBroker(
        folder / "log",
        listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        ssl_keystore_location=str(keystore),
        ssl_truststore_location=str(folder / "ca.pem"),
        **properties,
    )
    (folder / "log").mkdir()
    async with solo as broker:
        tls = TlsListeners(broker.dynamic, SystemClock())
        listener = build_listener(
            broker.dynamic, broker.services, "SSL", tls.make_connection("SSL")
        )
        assert listener.unauthenticated is not None
        listener.unauthenticated.limits = limits or UnauthenticatedLimits()
        await listener.start("127.0.0.1", 0)
        try:
            yield Secure(broker, tls, listener)
        finally:
            await listener.close()
            await tls.close()


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_requests_and_replies_of_any_size(tmp_path: Path, version: str) -> None:
    async def story() -> None:
        async with secure(tmp_path) as given:
            given.broker.create_topic("t")
            client = await given.connect(Shown(ssl_enabled_protocols=version))
            for size in (1, 20_000, 70_000, 900_000):
                row = await produce(client, "t", batch(1, size))
                assert row.error_code == 0
            got = await fetch(client, "t", 0, partition_max_bytes=8_000_000)
            stored = given.broker.replicas.lookup("t", 0).log
            assert bytes(got.records or b"") == Path(stored.path, "0" * 20 + ".log").read_bytes()
            client.close()

    run(story())


def test_the_certificate_of_the_client_is_its_principal(tmp_path: Path) -> None:
    async def story() -> None:
        rules = {"ssl_principal_mapping_rules": RULES}
        async with secure(tmp_path, ssl_client_auth="required", **rules) as given:
            client = await given.connect(Shown(ALICE))
            assert given.principals == [Principal("User", "alice", "SSL")]
            client.close()

    run(story())


def test_a_client_without_the_required_certificate_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with secure(tmp_path, ssl_client_auth="required") as given:
            with pytest.raises((OSError, ssl.SSLError, ConnectionError)):
                await given.connect(Shown())
            stranger = Authority().leaf("alice", hosts=())
            with pytest.raises((OSError, ssl.SSLError, ConnectionError)):
                await given.connect(Shown(stranger))
            await given.until(lambda: not given.listener.connections)

    run(story())


def test_a_name_that_no_rule_maps_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        rules = {"ssl_principal_mapping_rules": "RULE:^CN=bob$/bob/"}
        async with secure(tmp_path, ssl_client_auth="required", **rules) as given:
            with pytest.raises((OSError, ConnectionError)):
                await given.connect(Shown(ALICE))

    run(story())


def test_a_client_may_be_anonymous_where_no_certificate_is_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with secure(tmp_path) as given:
            client = await given.connect(Shown(ALICE))
            assert given.principals == [Principal("User", "ANONYMOUS", "SSL")]
            client.close()

    run(story())


@pytest.mark.parametrize(
    "sent",
    [
        b"\0\0\0\x10" + b"\0" * 16,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x40\x00" + b"x" * 300_000,
    ],
)
def test_bytes_that_are_no_handshake_close_the_connection(tmp_path: Path, sent: bytes) -> None:
    async def story() -> None:
        async with secure(tmp_path) as given:
            reader, writer = await asyncio.open_connection("127.0.0.1", given.listener.port)
            writer.write(sent)
            try:
                async with asyncio.timeout(5):
                    await reader.read()
            except ConnectionError:
                pass
            writer.close()
            await given.until(lambda: not given.listener.connections)
            good = await given.connect(Shown())
            good.close()

    run(story())


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_requests_right_behind_the_handshake_are_served(tmp_path: Path, version: str) -> None:
    """A client need not wait: more than a handshake may have comes with its last flight."""
    request = produce_request("t", batch(1, 700_000), 1)
    body = encode_request(request, 9, 1, "eager")
    frame = len(body).to_bytes(4, "big") + body

    def eager(port: int) -> int:
        context = Shown(ssl_enabled_protocols=version).context
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        side = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            while True:
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
                    break
                client.sendall(outgoing.read())
                incoming.write(client.recv(65536))
            side.write(frame)
            client.sendall(outgoing.read())
            while received := client.recv(65536):
                incoming.write(received)
                with suppress(ssl.SSLWantReadError):
                    return len(side.read(1000))
        return 0

    async def story() -> None:
        async with secure(tmp_path) as given:
            given.broker.create_topic("t")
            assert await asyncio.to_thread(eager, given.listener.port) > 40
            assert given.broker.replicas.lookup("t", 0).log.log_end_offset == 1

    run(story())


def test_a_silent_client_is_closed(tmp_path: Path) -> None:
    async def story() -> None:
        limits = UnauthenticatedLimits(place_s=0.05)
        async with secure(tmp_path, limits=limits) as given:
            with socket.create_connection(("127.0.0.1", given.listener.port)):
                await given.until(lambda: bool(given.listener.connections))
                await given.until(lambda: not given.listener.connections)

    run(story())


def expanded(secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label of TLS 1.3 with SHA-384 (RFC 8446, 7.1)."""
    label = b"tls13 " + label
    info = size.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0\1"
    return hmac.digest(secret, info, "sha384")[:size]


def key_updates(secret: bytes, count: int) -> bytes:
    """Records of a client that asks for new keys so often; `secret`: of what it sends."""
    record_head = bytes.fromhex("1703030016")
    update_requested = bytes.fromhex("1800000101") + b"\x16"
    records = []
    for _ in range(count):
        key, iv = expanded(secret, b"key", 32), expanded(secret, b"iv", 12)
        records += [record_head, AESGCM(key).encrypt(iv, update_requested, record_head)]
        secret = expanded(secret, b"traffic upd", 48)
    return b"".join(records)


def shake_hands(port: int, key_log: Path) -> tuple[socket.socket, bytes]:
    """A client's side of TLS 1.3 with a small buffer; the secret of what it sends."""
    context = Shown(ssl_enabled_protocols="TLSv1.3").context
    context.keylog_filename = str(key_log)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(5)
    client.connect(("127.0.0.1", port))
    is_complete = False
    while not is_complete:
        try:
            side.do_handshake()
            is_complete = True
        except ssl.SSLWantReadError:
            pass
        client.sendall(outgoing.read())
        if not is_complete:
            incoming.write(client.recv(65536))
    assert side.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
    rows = dict(row.split(" ", 1) for row in key_log.read_text().splitlines() if row[0] != "#")
    return client, bytes.fromhex(rows["CLIENT_TRAFFIC_SECRET_0"].split()[1])


@pytest.mark.parametrize(("count", "is_closed"), [(100, False), (3_000, True)])
def test_a_client_that_asks_for_new_keys_for_ever_is_closed_at_once(
    tmp_path: Path, count: int, is_closed: bool
) -> None:
    """Also when it does not read the answers."""

    async def story() -> None:
        async with secure(tmp_path, socket_send_buffer_bytes="8192") as given:
            client, secret = await asyncio.to_thread(
                shake_hands, given.listener.port, tmp_path / "keys"
            )
            with client:
                records = key_updates(secret, count)
                if is_closed:
                    with suppress(ConnectionError):  # it may be closed before it has sent all
                        await asyncio.to_thread(client.sendall, records)
                    await given.until(lambda: not given.listener.connections)
                    return
                client.sendall(records)
                client.setblocking(False)
                answered = 0
                async with asyncio.timeout(5):
                    while answered < len(records):
                        got = await asyncio.get_running_loop().sock_recv(client, 65536)
                        assert got
                        answered += len(got)
                assert given.listener.connections

    run(story())


def test_requests_behind_a_slow_reader_are_held_and_served(tmp_path: Path) -> None:
    """Many pipelined requests in one burst, more than the buffers hold."""

    async def story() -> None:
        async with secure(tmp_path) as given:
            given.broker.create_topic("t")
            client = await given.connect(Shown())
            calls = [
                client.call(MetadataRequest(topics=None), MetadataResponse, version=12)
                for _ in range(3_000)
            ]
            replies = await asyncio.gather(*calls)
            assert len(replies) == 3_000
            client.close()

    run(story())


def test_a_renewed_certificate_counts_for_new_connections(tmp_path: Path) -> None:
    async def story() -> None:
        async with secure(tmp_path) as given:
            old = await given.connect(Shown())
            renewed = AUTHORITY.leaf()
            renewed.write(tmp_path / "broker.pem")
            await renew(given)
            assert await shown_by(given) == renewed.der
            assert await old.call(MetadataRequest(topics=None), MetadataResponse, version=12)
            old.close()

    run(story())


@pytest.mark.parametrize(
    ("replacement", "told"),
    [
        (AUTHORITY.leaf("other").pem, "ssl.allow.dn.changes"),
        (AUTHORITY.leaf(hosts=("127.0.0.1",)).pem, "ssl.allow.san.changes"),
        ("junk", "0 private keys"),
    ],
)
def test_a_bad_renewal_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, replacement: str, told: str
) -> None:
    async def story() -> None:
        async with secure(tmp_path) as given:
            (tmp_path / "broker.pem").write_text(replacement)
            with caplog.at_level(logging.ERROR):
                await renew(given)
            assert told in caplog.text
            assert await shown_by(given) == BROKER.der

    run(story())


async def renew(given: Secure) -> None:
    """Check the files now, and wait until the check is over."""
    os.utime(given.broker.folder.parent / "broker.pem", ns=(1, 1))
    given.tls.check_files()
    await given.tls.renewed()


async def shown_by(given: Secure) -> bytes | None:
    """The certificate that the broker shows to a new connection."""
    _, writer = await asyncio.open_connection("127.0.0.1", given.listener.port, ssl=Shown().context)
    side: ssl.SSLObject = writer.get_extra_info("ssl_object")
    shown = side.getpeercert(binary_form=True)
    writer.close()
    return shown


@pytest.mark.parametrize(
    ("leaf", "told"),
    [
        (AUTHORITY.leaf(not_after=datetime.now(UTC) - timedelta(hours=1)), "expired at"),
        (AUTHORITY.leaf(not_before=datetime.now(UTC) + timedelta(hours=1)), "not valid before"),
    ],
)
def test_no_start_with_a_certificate_that_is_not_valid_now(
    tmp_path: Path, leaf: Leaf, told: str
) -> None:
    async def story() -> None:
        leaf.write(tmp_path / "broker.pem")
        solo = SoloBroker(
            tmp_path,
            listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
            ssl_keystore_location=str(tmp_path / "broker.pem"),
        )
        async with solo as broker:
            with pytest.raises(UsageError, match=told):
                TlsListeners(broker.dynamic, SystemClock())

    run(story())


def test_an_expired_certificate_is_nobody() -> None:
    """OpenSSL verifies no certificate of a TLS 1.2 session that is resumed."""
    shown = AUTHORITY.leaf(not_after=datetime.now(UTC) + timedelta(hours=1))
    der = shown.certificate.public_bytes(Encoding.DER)
    clock = ManualClock(int(datetime.now(UTC).timestamp() * 1000))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    endpoint = TlsEndpoint(context, principal_mapper("DEFAULT"), HandshakeThreads(), clock)
    assert endpoint.principal(der, "SSL").kind == "User"
    clock.advance(3_600_001)
    with pytest.raises(CertificateFormatError, match="expired"):
        endpoint.principal(der, "SSL")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_lost_connection_is_freed_at_once(tmp_path: Path, protocol: str) -> None:
    """OpenSSL's side of one has some 50 KB, which nobody would count as garbage."""

    async def story() -> None:
        async with secure(tmp_path, ssl_client_auth="required") as given:
            is_secure = protocol == "SSL"
            listener = given.listener if is_secure else given.broker.listener
            port = listener.port
            shown: Credentials = Shown(ALICE) if is_secure else NO_CREDENTIALS
            client = await open_connection("127.0.0.1", port, credentials=shown)
            await client.call(MetadataRequest(topics=None), MetadataResponse, version=12)
            served = weakref.ref(listener.connections[0])
            client.close()
            await given.until(lambda: served() is None)

    gc.collect()
    gc.disable()
    try:
        run(story())
    finally:
        gc.enable()
