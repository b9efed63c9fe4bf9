"""REST requests as handlers see them, and the builder of routes.

The routes and their handlers stand in the files `v2_*` and `v3_*`; `part` joins them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.aio import AsyncAdmin
from headwater.errors import HeadwaterError
from headwater_gateway.app.parts import Clients, GatewayError, Login, Services
from headwater_gateway.rest.documents import INT32_MAX, Document, bad_request, encoded, shown
from headwater_gateway.rest.kafka_errors import as_reply

V2 = "application/vnd.kafka.v2+json"
JSON = "application/json"


class RestRequest:
    """One request of a user that is logged in."""

    def __init__(self, request: Request, services: Services) -> None:
        self.http = request
        self.services = services
        self.login: Login = request.state.login

    @property
    def clients(self) -> Clients:
        """The user's own clients."""
        return self.services.clients.of(self.login)

    @property
    def admin(self) -> AsyncAdmin:
        """The user's own admin client."""
        return self.clients.admin

    def part(self, name: str) -> str:
        """A part of the path, decoded. Raises GatewayError (400) for what is not UTF-8."""
        try:
            return unquote(self.http.path_params[name], errors="strict")
        except UnicodeDecodeError:
            raise bad_request(f"{name} of the path is not text in UTF-8") from None

    def number(self, name: str, error: GatewayError | None = None) -> int:
        """A number of the path; `error` for what is none."""
        text = self.part(name)
        if not (text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= INT32_MAX):
            raise error or GatewayError(404, 404, f"{name} {shown(text)} is not a number")
        return int(text)

    def query(self, name: str, default: str = "") -> str:
        """A parameter."""
        return self.http.query_params.get(name, default)

    def query_number(self, name: str, default: int, most: int) -> int:
        """A parameter that is a number; negative ones mean the default. Raises GatewayError."""
        text = self.query(name)
        if not text:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            raise bad_request(f"{name} is {shown(text)}: give a number")
        return default if text.startswith("-") else min(int(text), most)

    async def document(self) -> Document:
        """The body. Raises GatewayError."""
        return await Document.read(await self.http.body())

    @property
    def base_url(self) -> str:
        """How the client reached this process; the Host has been checked."""
        return str(self.http.base_url).rstrip("/")


@dataclass(frozen=True, slots=True)
class Reply:
    """A document with a status other than 200."""

    document: Any
    status: int
    media_type: str = ""


Handler = Callable[[RestRequest], Awaitable[Any]]
"""Returns a document, a Reply, or None for 204."""


class Routes:
    """Builds routes; writes are left out of a gateway that is read-only."""

    def __init__(self, services: Callable[[], Services], media_type: str, *, writes: bool) -> None:
        self._services = services
        self._media_type = media_type
        self._writes = writes
        self.rows: list[Route] = []

    def read(self, path: str, handler: Handler, method: str = "GET") -> None:
        """A request that changes nothing in the cluster."""
        self.rows.append(Route(path, self._endpoint(handler), methods=[method]))

    def write(self, method: str, path: str, handler: Handler) -> None:
        """A request that changes something."""
        if self._writes:
            self.rows.append(Route(path, self._endpoint(handler), methods=[method]))

    def _endpoint(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                document = await handler(RestRequest(request, self._services()))
            except HeadwaterError as error:
                raise as_reply(error) from error
            return as_response(document, self._media_type)

        return endpoint


def as_response(document: Any, media_type: str) -> Response:
    """The reply of a handler."""
    if isinstance(document, Response):
        return document
    if document is None:
        return Response(status_code=204)
    if isinstance(document, Reply):
        if document.document is None:
            return Response(status_code=document.status)
        kind = document.media_type or media_type
        return Response(encoded(document.document), document.status, media_type=kind)
    return Response(encoded(document), media_type=media_type)
