"""Admission to the status port: the Host header, and a bearer token (RFC 6750). Pure.

A web page of a stranger can have a browser send requests to this port under the stranger's own name
(DNS rebinding), and read the replies. So the Host header must be an IP address or a name of this
broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headwater.security.bearer_token import shows
from headwater.security.own_hosts import OwnHosts
from headwater_broker.network.http_request import BadRequestError, HttpRequest


class HttpGuard:
    """Checks each request before its route."""

    def __init__(self, hosts: Iterable[str] = (), token: Callable[[], str] | None = None) -> None:
        """`hosts`: names of this broker beside localhost. `token`: what requests must show now."""
        self._hosts = OwnHosts(hosts)
        self._token = token

    def check(self, request: HttpRequest) -> None:
        """Raises BadRequestError: 421 for a strange Host, 401 without the token."""
        if request.host and not self._hosts.has(request.host):
            raise BadRequestError(
                421, "this Host is not a name of the broker: see status.allowed.hosts"
            )
        if self._token is None:
            return
        if not shows(request.authorization, self._token()):
            raise BadRequestError(401, "a bearer token is needed: see status.bearer.token.file")
