"""Requests of the commands to a registry, over HTTP or HTTPS. Blocking.

The login is the one of the URL, else user and password of the command's properties; a password is
not sent in clear but to this machine.
"""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from headwater.errors import HeadwaterError, UsageError
from headwater.security.jaas import parse_jaas
from headwater.security.secret import resolved
from headwater.security.tls_context import client_context
from headwater_gateway.registry.http_requests import V1
from headwater_gateway.serving.server import is_loopback

TIMEOUT_S = 30.0
JAAS = "sasl.jaas.config"


class RemoteError(HeadwaterError):
    """The registry refused, or does not answer; `code` is its error code, 0 without one."""

    def __init__(self, message: str, code: int = 0) -> None:
        self.code = code
        super().__init__(message)


class RemoteRegistry:
    """A registry at a URL."""

    def __init__(self, url: str, properties: Mapping[str, str]) -> None:
        """Raises UsageError for a URL that is none, or a password that would go in clear."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--url {url.rpartition('@')[2]!r}: give http://HOST:PORT or https://")
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._host, self._port = parts.hostname, parts.port
        is_encrypted = parts.scheme == "https"
        tls = {k: v for k, v in properties.items() if k.startswith("ssl.")}
        self._tls = client_context(tls) if is_encrypted else None
        login = unquote(parts.netloc.rpartition("@")[0]) or _login(properties)
        if login and not is_encrypted and not is_loopback(self._host):
            raise UsageError(f"{self._shown} would get the password in clear: use https")
        token = base64.b64encode(login.encode()).decode()
        self._headers = {"Authorization": f"Basic {token}"} if login else {}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The document of the reply. Raises RemoteError."""
        content = None if body is None else json.dumps(body)
        headers = {**self._headers, "Accept": V1, "Content-Type": V1}
        connection = self._connection()
        try:
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            text = answer.read()
            document = json.loads(text) if text else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RemoteError(f"the registry {self._shown} does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status >= 400:
            told = document if isinstance(document, dict) else {}
            message = told.get("message") or f"HTTP {answer.status}"
            raise RemoteError(f"the registry {self._shown}: {message}", told.get("error_code", 0))
        return document

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=TIMEOUT_S, context=self._tls
        )


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
