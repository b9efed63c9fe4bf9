"""The options of TCP sockets."""

from __future__ import annotations

import socket

import pytest

from headwater.sockets import LOCAL_CONGESTION_CONTROL, tune

TCP_CONGESTION = getattr(socket, "TCP_CONGESTION", None)


class Socket:
    """A socket that remembers its options; `refused` ones raise as an old kernel does."""

    def __init__(
        self, own: str, peer: str, family: int = socket.AF_INET, refused: object = ()
    ) -> None:
        self.family = family
        self.options: dict[tuple[int, int], object] = {}
        self._names = own, peer
        self._refused = refused

    def setsockopt(self, level: int, option: int, value: object, /) -> None:
        if option == self._refused:
            raise OSError(2, "No such file or directory")
        self.options[level, option] = value

    def getsockname(self) -> tuple[str, int]:
        return self._names[0], 1

    def getpeername(self) -> tuple[str, int]:
        return self._names[1], 2


@pytest.mark.parametrize(
    ("own", "peer", "family", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", socket.AF_INET, LOCAL_CONGESTION_CONTROL),
        ("::1", "::1", socket.AF_INET6, LOCAL_CONGESTION_CONTROL),
        ("10.0.0.5", "10.0.0.5", socket.AF_INET, LOCAL_CONGESTION_CONTROL),
        ("10.0.0.5", "10.0.0.6", socket.AF_INET, None),
    ],
)
def test_only_connections_within_a_machine_are_not_paced(
    own: str, peer: str, family: int, expected: bytes | None
) -> None:
    sock = Socket(own, peer, family)
    tune(sock)
    assert sock.options[socket.IPPROTO_TCP, socket.TCP_NODELAY] == 1
    assert sock.options[socket.SOL_SOCKET, socket.SO_KEEPALIVE] == 1
    if TCP_CONGESTION is not None:
        assert sock.options.get((socket.IPPROTO_TCP, TCP_CONGESTION)) == expected


def test_a_kernel_that_refuses_keeps_what_it_has() -> None:
    sock = Socket("127.0.0.1", "127.0.0.1", refused=TCP_CONGESTION)
    tune(sock)
    assert sock.options[socket.IPPROTO_TCP, socket.TCP_NODELAY] == 1
    assert (socket.IPPROTO_TCP, TCP_CONGESTION) not in sock.options


def test_other_sockets_are_left_alone() -> None:
    sock = Socket("", "", socket.AF_UNIX)
    tune(sock)
    assert sock.options == {}
