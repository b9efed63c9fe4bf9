"""The driver's link by TLS: pinned to the driver's certificate, used by two threads at once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from headwater.clock import Clock
from headwater.security.certificates import (
    KeyPair,
    Subject,
    certificate_facts,
    issue,
    new_authority,
)
from headwater.system import SystemClock
from headwater_spark.cluster.link_channel import (
    Channel,
    DriverIdentityError,
    PlainChannel,
    TlsChannel,
    driver_context,
    to_driver,
)

LONG = b"x" * 3_000_000 + b"\n"
CLOCK: Clock = SystemClock()


@pytest.fixture(scope="module")
def identity() -> KeyPair:
    authority = new_authority("test", CLOCK.now_ms())
    return issue(authority, Subject("driver", ("127.0.0.1",)), CLOCK.now_ms())


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    driver, task = socket.socketpair()
    yield driver, task
    driver.close()
    task.close()


def connected(
    sockets: tuple[socket.socket, socket.socket], identity: KeyPair, fingerprint: str
) -> tuple[Channel, Channel]:
    """The driver's end and the task's."""
    made: list[Channel] = []
    context = driver_context(identity)

    def accept() -> None:
        try:
            made.append(TlsChannel(sockets[0], context, driver=True))
        except OSError:
            sockets[0].close()  # the task has gone

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        task = to_driver(sockets[1], fingerprint)
    finally:
        thread.join()
    return made[0], task


def fingerprint_of(pair: KeyPair) -> str:
    return certificate_facts(pair.certificate).sha256


def test_lines_cross_while_both_ends_send(
    sockets: tuple[socket.socket, socket.socket], identity: KeyPair
) -> None:
    driver, task = connected(sockets, identity, fingerprint_of(identity))
    senders = [threading.Thread(target=end.send, args=(LONG,)) for end in (driver, task)]
    for sender in senders:
        sender.start()
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(driver.receive()))
    reader.start()
    assert task.receive() == LONG
    for thread in (*senders, reader):
        thread.join()
    assert found == [LONG]
    driver.close()
    assert task.receive() == b""


def test_a_task_says_nothing_to_another_than_its_driver(
    sockets: tuple[socket.socket, socket.socket], identity: KeyPair
) -> None:
    other = issue(new_authority("other", CLOCK.now_ms()), Subject("driver"), CLOCK.now_ms())
    with pytest.raises(DriverIdentityError, match="another one than the driver"):
        connected(sockets, identity, fingerprint_of(other))


def test_a_driver_that_wants_tls_reads_no_plain_line(
    sockets: tuple[socket.socket, socket.socket], identity: KeyPair
) -> None:
    sockets[1].sendall(b'{"token": "secret"}\n')
    with pytest.raises(OSError, match="SSL"):
        TlsChannel(sockets[0], driver_context(identity), driver=True)


def test_without_a_fingerprint_lines_are_plain(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    driver, task = PlainChannel(sockets[0]), to_driver(sockets[1], "")
    task.send(b"up\n")
    assert driver.receive() == b"up\n"
    driver.close()
    assert task.receive() == b""
