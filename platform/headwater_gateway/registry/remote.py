"""Requests of the commands to a registry, over HTTP or HTTPS. Blocking.

The login is the one of the URL, else user and password of the command's properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.errors import HeadwaterError
from headwater.security.jaas import parse_jaas
from headwater.security.secret import resolved
from headwater_tier.typed.quarantine_reasons import SchemaUnavailableError
from headwater_tier.typed.registry_http import BASIC_INFO, JAAS, RegistryServer

TIMEOUT_S = 30.0


class RemoteError(HeadwaterError):
    """The registry refused, or does not answer; `code` is its error code, 0 without one."""

    def __init__(self, message: str, code: int = 0) -> None:
        self.code = code
        super().__init__(message)


class RemoteRegistry:
    """A registry at a URL."""

    def __init__(self, url: str, properties: Mapping[str, str]) -> None:
        """Raises UsageError for a URL that is none, or a password that would go in clear."""
        security = {k: v for k, v in properties.items() if k.startswith("ssl.")}
        has_login = "@" in url.partition("://")[2].partition("/")[0]
        if not has_login and (login := _login(properties)):
            security[BASIC_INFO] = login
        self._server = RegistryServer(url, security, name="--url", timeout_s=TIMEOUT_S)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The document of the reply. Raises RemoteError."""
        try:
            status, document = self._server.ask(method, path, body)
        except SchemaUnavailableError as error:
            raise RemoteError(str(error)) from error
        if status >= 400:
            fields = document if isinstance(document, dict) else {}
            message = fields.get("message") or f"HTTP {status}"
            code = fields.get("error_code", 0)
            raise RemoteError(f"the registry {self._server.shown}: {message}", code)
        return document


def _login(properties: Mapping[str, str]) -> str:
    """`user:password` of the properties; empty where they have none."""
    if JAAS in properties:
        options = parse_jaas(resolved(JAAS, properties[JAAS])).options
        user, password = options.get("username", ""), options.get("password", "")
    else:
        user = properties.get("sasl.username", "")
        password = properties.get("sasl.password", "")
    user, password = resolved("the user", user), resolved("the password", password)
    return f"{user}:{password}" if user and password else ""
