"""Checks of each request before its route: Host, Origin, media type, size. Pure.

The API reads no cookie. A web page of a stranger could still have a browser send requests here:
under the stranger's own name (DNS rebinding: the Host), or across origins (the Origin; the media
type).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from headwater.security.own_hosts import OwnHosts
from headwater_gateway.registry.errors import RegistryError
from headwater_gateway.registry.http_requests import BODY_TYPES

BODY_BYTES_MAX = 4 * 1024 * 1024


class HttpGuard:
    """Lets requests in, or raises RegistryError."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        """`hosts`: names of this registry beside localhost and addresses."""
        self._hosts = OwnHosts(hosts)

    def check(self, headers: Mapping[str, str], *, has_body: bool) -> None:
        """421 for a strange Host, 403 for a strange Origin, 415 for another media type."""
        host = headers.get("host", "")
        if host and not self._hosts.has(host):
            raise RegistryError(
                421, 421, f"Host {host!r} is not a name of the registry: see --allowed-host"
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise RegistryError(403, 403, f"Origin {origin!r} may not use the registry")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if has_body and kind and kind not in BODY_TYPES:
            raise RegistryError(415, 415, f"HTTP 415 Unsupported Media Type: {kind}")
