"""The schema registry as the gateway's other parts ask it: the port, a registry at a URL, and the
one that this process serves. Each request is made with its user's login."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Protocol

from starlette.types import ASGIApp, Message, Scope

from headwater_gateway.app.errors import GatewayError
from headwater_gateway.app.login import Login, LoginKind
from headwater_tier.typed.quarantine_reasons import SchemaUnavailableError
from headwater_tier.typed.registry_http import (
    BASIC_INFO,
    BASIC_SOURCE,
    BEARER_TOKEN,
    RegistryServer,
)

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
UNAVAILABLE = 50301
LOGINS_MAX = 200
OPTION = "--schema-registry"


class SchemaRegistry(Protocol):
    """A registry."""

    async def ask(self, login: Login, method: str, path: str, body: Any = None) -> Any:
        """The document of the reply. Raises GatewayError with the registry's status and code."""
        ...


class HttpRegistry:
    """A registry at a URL (`SchemaRegistry`), asked as the user's own login."""

    def __init__(self, url: str, properties: Mapping[str, str], *, has_login: bool) -> None:
        """Raises UsageError for a URL that is none, or by which passwords would go in clear."""
        self._url = url
        self._tls = {name: text for name, text in properties.items() if name.startswith("ssl.")}
        self._servers: OrderedDict[Login, RegistryServer] = OrderedDict()
        sample = Login("user", LoginKind.PASSWORD, "password")
        self._new_server(sample if has_login else Login.anonymous())

    async def ask(self, login: Login, method: str, path: str, body: Any = None) -> Any:
        """See the port."""
        server = self._server(login)
        try:
            status, document = await asyncio.to_thread(server.ask, method, path, body)
        except SchemaUnavailableError as error:
            raise GatewayError(503, UNAVAILABLE, str(error)) from error
        return checked_document(status, document)

    def _server(self, login: Login) -> RegistryServer:
        found = self._servers.pop(login, None)
        self._servers[login] = found or self._new_server(login)
        if len(self._servers) > LOGINS_MAX:
            self._servers.popitem(last=False)
        return self._servers[login]

    def _new_server(self, login: Login) -> RegistryServer:
        own = {
            LoginKind.ANONYMOUS: {},
            LoginKind.TOKEN: {BEARER_TOKEN: login.secret},
            LoginKind.PASSWORD: {
                BASIC_SOURCE: "USER_INFO",
                BASIC_INFO: f"{login.name}:{login.secret}",
            },
        }[login.kind]
        return RegistryServer(self._url, {**self._tls, **own}, name=OPTION)


class OwnRegistry:
    """The registry that this process serves (`SchemaRegistry`), called without a socket."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def ask(self, login: Login, method: str, path: str, body: Any = None) -> Any:
        """See the port."""
        headers = [(k.lower().encode(), v.encode()) for k, v in headers_of(login).items()]
        raw, _, query = path.partition("?")
        scope: Scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": raw,
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", b"localhost"), *headers],
            "scheme": "http",
            "root_path": "",
            "client": None,
            "server": ("localhost", 0),
            "state": {},
        }
        content = b"" if body is None else json.dumps(body).encode()
        messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]
        status, answer = 0, b""

        async def receive() -> Message:
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status, answer
            status = message.get("status", status)
            answer += message.get("body", b"")

        await self._app(scope, receive, send)
        return checked_document(status, json.loads(answer) if answer else None)


def headers_of(login: Login) -> dict[str, str]:
    """Headers of a request as this user."""
    authorization = login.authorization()
    own = {"Authorization": authorization} if authorization else {}
    return {"Accept": MEDIA_TYPE, "Content-Type": MEDIA_TYPE, **own}


def checked_document(status: int, document: Any) -> Any:
    """The document of a reply. Raises GatewayError for an error's."""
    if status < 400:
        return document
    answer = document if isinstance(document, dict) else {}
    code, message = answer.get("error_code"), answer.get("message")
    raise GatewayError(
        status,
        code if isinstance(code, int) else status,
        f"the schema registry: {message or f'HTTP {status}'}",
    )
