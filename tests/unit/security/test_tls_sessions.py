"""Resumed sessions and renegotiation: what a client shows once is not believed for ever."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from headwater.security.tls_context import ClientValues, client_context, server_context
from tls_authority import Authority, Leaf

AUTHORITY = Authority()
BROKER = AUTHORITY.leaf()
ALICE = AUTHORITY.leaf("alice", hosts=())


def own(leaf: Leaf) -> dict[str, str]:
    return {
        "ssl.keystore.key": leaf.key_pem,
        "ssl.keystore.certificate.chain": leaf.certificate_pem,
        "ssl.truststore.certificates": AUTHORITY.pem,
    }


def server(auth: str) -> ssl.SSLContext:
    return server_context(ClientValues({**own(BROKER), "ssl.client.auth": auth}))


def connected(
    client: ssl.SSLContext, there: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> ssl.SSLObject:
    """The client's side after a handshake and some data, in memory."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    mine = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1", session=session)
    theirs = there.wrap_bio(to_server, to_client, server_side=True)
    pending = [mine, theirs]
    while pending:
        side = pending.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pending.append(side)
    theirs.write(b"x")  # behind the tickets of TLS 1.3
    assert mine.read(1) == b"x"
    return mine


def client(version: str) -> ssl.SSLContext:
    return client_context({**own(ALICE), "ssl.enabled.protocols": version})


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("auth", ["required", "requested"])
def test_who_shows_a_certificate_shows_it_each_time(version: str, auth: str) -> None:
    """A resumed session would show none, and it may have expired meanwhile."""
    mine, there = client(version), server(auth)
    first = connected(mine, there)
    assert first.version() == version
    again = connected(mine, there, first.session)
    assert not again.session_reused


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_ticket_ends_with_the_context_that_gave_it(version: str) -> None:
    """As after a reload of the listener's certificate."""
    mine, there = client(version), server("none")
    first = connected(mine, there)
    assert connected(mine, there, first.session).session_reused, "the test sees resumptions"
    assert not connected(mine, server("none"), first.session).session_reused


def test_the_guards_do_not_rest_on_defaults_of_openssl() -> None:
    """OpenSSL 3 refuses a client's renegotiation by itself, others do not."""
    assert server("none").options & ssl.OP_NO_RENEGOTIATION
    for auth in ("required", "requested"):
        assert server(auth).options & ssl.OP_NO_TICKET
        assert server(auth).num_tickets == 0


def test_a_client_cannot_renegotiate(tmp_path: Path) -> None:
    """A handshake per request of the client costs the broker a signature each."""
    (tmp_path / "ca.pem").write_text(AUTHORITY.pem)
    received, heard = [], threading.Event()

    def serve(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        accepted.settimeout(30)
        try:
            with server("none").wrap_socket(accepted, server_side=True) as secured:
                while data := secured.recv(100):
                    received.append(data)
                    heard.set()
        except OSError:
            heard.set()  # the client's end after the refusal

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        command = ["openssl", "s_client", "-connect", where, "-tls1_2", "-CAfile"]
        process = subprocess.Popen(
            [*command, str(tmp_path / "ca.pem")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"before\n")
        process.stdin.flush()
        assert heard.wait(30)
        process.stdin.write(b"R\n")
        process.stdin.flush()
        said = b""
        while b"RENEGOTIATING" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        try:
            process.stdin.write(b"after\n")
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended by the refusal
        said += process.stdout.read()
        process.wait(30)
        thread.join(30)
    assert b"no renegotiation" in said
    assert received == [b"before\n"]
