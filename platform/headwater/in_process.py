"""Addresses that this process serves itself: a connection to one is a pair of sockets, no port.

`headwater_broker.testing` serves them; the clients of the SDK look here before they dial a host.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

SUFFIX = ".in-process.invalid"
"""The end of such a host's name. `.invalid` is never resolved (RFC 2606): no other client of Kafka
takes one for a host by mistake."""
Accept = Callable[[socket.socket], None]
"""Takes the server's end of a new connection; called on the thread that connects."""

_served: dict[tuple[str, int], Accept] = {}


def serve(host: str, port: int, accept: Accept) -> None:
    """Give connections to `host:port` to `accept`, until `withdraw`. Raises ValueError for a host
    without the suffix."""
    if not host.endswith(SUFFIX):
        raise ValueError(f"host {host!r} does not end with {SUFFIX}")
    _served[host, port] = accept


def withdraw(host: str, port: int) -> None:
    """Refuse connections to `host:port` from now on."""
    _served.pop((host, port), None)


def dial(host: str, port: int) -> socket.socket | None:
    """The client's end of a new connection; None for an address of the network.

    Raises ConnectionRefusedError where nobody in this process serves the address.
    """
    if not host.endswith(SUFFIX):
        return None
    accept = _served.get((host, port))
    if accept is None:
        raise ConnectionRefusedError(
            errno.ECONNREFUSED,
            f"{host}:{port} is not served in this process: its broker has stopped, or runs in "
            "another process, which needs the broker's port",
        )
    ours, theirs = socket.socketpair()
    accept(theirs)
    return ours
