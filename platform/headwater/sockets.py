"""TCP options of all connections, on both ends; which hosts are this machine."""

from __future__ import annotations

import contextlib
import socket
from ipaddress import ip_address
from typing import Any, Protocol

LOCAL_CONGESTION_CONTROL = b"reno"
"""The congestion control that Linux always has, and that every process may choose."""
_TCP_CONGESTION = getattr(socket, "TCP_CONGESTION", None)


SYSTEM_BUFFER = -1
"""The operating system chooses the size of a socket's buffer, as in Kafka."""


class TunableSocket(Protocol):
    """The methods of a socket that `tune` uses, of a plain one or asyncio's."""

    @property
    def family(self) -> int:
        """The address family, such as AF_INET."""
        ...

    def setsockopt(self, level: int, option: int, value: Any, /) -> None:
        """See `socket.socket.setsockopt`."""
        ...

    def getsockname(self) -> Any:
        """The local address."""
        ...

    def getpeername(self) -> Any:
        """The peer's address."""
        ...


def tune(sock: TunableSocket) -> None:
    """Set TCP_NODELAY and keep-alive, and no pacing within one machine. Only for TCP sockets.

    A connection within a machine meets no congestion. On systems that pace by default (BBR) the
    pacing costs more than the transfer: 1 MB fetches ran at less than half their speed
    (`make bench-kafka ARGS=--only=raw`).
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if _TCP_CONGESTION is not None and _is_local(sock):
        # A kernel without it keeps its default, which is only slower.
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, LOCAL_CONGESTION_CONTROL)


def set_buffers(sock: TunableSocket, receive_bytes: int, send_bytes: int) -> None:
    """Set SO_RCVBUF and SO_SNDBUF (receive.buffer.bytes, send.buffer.bytes)."""
    if receive_bytes != SYSTEM_BUFFER:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    if send_bytes != SYSTEM_BUFFER:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)


def _is_local(sock: TunableSocket) -> bool:
    try:
        return bool(sock.getsockname()[0] == sock.getpeername()[0])
    except OSError:  # closed already: the next use fails
        return False


def is_loopback(host: str) -> bool:
    """True for localhost and loopback addresses."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
