"""Checks of each request before its route: Host, Origin, media type, session token. Pure.

A web page of a stranger could have a browser send requests here: under the stranger's own name (DNS
rebinding: the Host), or across origins (Origin, Sec-Fetch-Site; for programs' paths the media type,
for pages the session's token). Programs' paths read no cookie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from headwater.security.own_hosts import OwnHosts
from headwater_gateway.app.errors import GatewayError

SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
JSON = "application/json"
HTTPS = "https"
VENDOR_PREFIX, JSON_SUFFIX = "application/vnd.", "+json"


class Guard:
    """Lets requests in, or raises GatewayError."""

    def __init__(self, hosts: Iterable[str] = (), *, is_tls: bool = False) -> None:
        """`hosts`: names of this gateway beside localhost and addresses. `is_tls`: it is reached by
        https, itself or by a proxy."""
        self._hosts = OwnHosts(hosts)
        self._scheme = "https" if is_tls else "http"

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """421 for a strange Host, 403 for a strange Origin."""
        host = headers.get("host", "")
        if not host or not self._hosts.has(host):
            raise GatewayError(
                421, 421, f"Host {host[:200]!r} is not a name of the gateway: see --allowed-host"
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin, host):
            raise GatewayError(403, 403, f"Origin {origin[:200]!r} may not use the gateway")

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme == self._scheme and parts.netloc.lower() == host.lower()

    def check_program(self, method: str, headers: Mapping[str, str], *, has_body: bool) -> None:
        """403 for what another site has a browser ask, 415 for a body that is not JSON."""
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise GatewayError(403, 403, "requests from other sites are refused")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        is_write = method not in SAFE_METHODS
        if is_write and (kind or has_body) and not is_json(kind):
            shown = kind[:100] or "none"
            raise GatewayError(415, 415, f"HTTP 415 Unsupported Media Type: {shown}: send {JSON}")

    def check_page(self, method: str, headers: Mapping[str, str], *, has_token: bool) -> None:
        """403 for a write that does not come from one of our pages with the session's token."""
        if method in SAFE_METHODS:
            return
        if headers.get("origin") is None or headers.get("sec-fetch-site", "same-origin") != (
            "same-origin"
        ):
            raise GatewayError(403, 403, "a change must come from a page of this gateway")
        if not has_token:
            raise GatewayError(403, 403, "the session's token is missing or old: reload the page")


def check_forwarded(headers: Mapping[str, str]) -> None:
    """403 for what a proxy took over plain HTTP: its login has crossed the network in clear."""
    scheme = headers.get("x-forwarded-proto", HTTPS).strip().lower()
    if scheme != HTTPS:
        raise GatewayError(
            403, 403, f"the proxy took this over {scheme[:20]!r}: send it over https, and have the"
            " proxy set X-Forwarded-Proto to the one scheme of its own listener"
        )  # fmt: skip


def is_json(kind: str) -> bool:
    """True for application/json, and for Kafka's and the registry's own kinds of it."""
    return kind == JSON or (kind.startswith(VENDOR_PREFIX) and kind.endswith(JSON_SUFFIX))
