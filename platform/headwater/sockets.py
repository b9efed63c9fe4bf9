"""How every TCP connection of Headwater is set up, at both ends."""

from __future__ import annotations

import contextlib
import socket
from typing import Any, Protocol

LOCAL_CONGESTION_CONTROL = b"reno"
"""Linux always has it, and lets every process choose it."""
_TCP_CONGESTION = getattr(socket, "TCP_CONGESTION", None)


class TunableSocket(Protocol):
    """What `tune` needs of a socket: a plain one, or asyncio's."""

    @property
    def family(self) -> int:
        """AF_INET, AF_INET6, AF_UNIX."""
        ...

    def setsockopt(self, level: int, option: int, value: Any, /) -> None:
        """As `socket.socket.setsockopt`."""
        ...

    def getsockname(self) -> Any:
        """The own address."""
        ...

    def getpeername(self) -> Any:
        """The peer's address."""
        ...


def tune(sock: TunableSocket) -> None:
    """No delay of small writes, keep-alive; no pacing where both ends are one machine.

    Systems that pace by default (BBR) spend more on the pacing than on the bytes of a connection
    that never leaves the machine, where nothing can be congested: 1 MB fetches ran at less than
    half their speed (`make bench-kafka ARGS=--only=raw`). Other sockets than TCP's are left alone.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if _TCP_CONGESTION is not None and _is_local(sock):
        # A kernel without it keeps what it has: slower, and nothing else.
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, LOCAL_CONGESTION_CONTROL)


def _is_local(sock: TunableSocket) -> bool:
    try:
        return bool(sock.getsockname()[0] == sock.getpeername()[0])
    except OSError:  # gone already: whoever uses it next is told
        return False
