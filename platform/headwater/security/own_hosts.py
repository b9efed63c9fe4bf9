"""The Host headers that name this server: the guard against DNS rebinding of every HTTP port. Pure.

A web page of a stranger can have a browser send requests here under the stranger's own name. So the
Host must be an IP address or a name that this server is known by.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address


class OwnHosts:
    """The names of one server."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        """`hosts`: names beside localhost and addresses."""
        self._hosts = {"localhost", *(host.lower().rstrip(".") for host in hosts if host)}

    def has(self, host: str) -> bool:
        """True if a Host header, with or without a port, names this server."""
        name = _without_port(host).lower().rstrip(".")
        try:
            ip_address(name)
        except ValueError:
            return name in self._hosts
        return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
