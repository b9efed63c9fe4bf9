"""Requests as the resources see them: decoded path, parameters, body; replies in their media type.

Paths are matched in their escaped form, so that a subject may hold a slash (`%2F`).
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from headwater_gateway.registry.errors import RegistryError
from headwater_gateway.registry.requests import is_small_number
from headwater_gateway.registry.subjects import normal_subject

V1 = "application/vnd.schemaregistry.v1+json"
MEDIA_TYPES = (V1, "application/vnd.schemaregistry+json", "application/json")
BODY_TYPES = (*MEDIA_TYPES, "application/octet-stream")
ID_MAX = 2**31 - 1


class PlainText(str):
    """A schema's text, given out as it is."""


class RegistryRequest:
    """One request, its body read."""

    def __init__(self, request: Request, body: bytes, user: Any) -> None:
        """`user`: whose rights hold; None: nobody logs in here."""
        self._request = request
        self.body = body
        self.user = user

    def part(self, name: str) -> str:
        """A part of the path, decoded."""
        return unquote(self._request.path_params[name])

    def has(self, name: str) -> bool:
        """True if the path has such a part."""
        return name in self._request.path_params

    @property
    def subject(self) -> str:
        """The subject of the path, without a named default context."""
        return normal_subject(self.part("subject"))

    def text(self, name: str, default: str = "") -> str:
        """A query parameter."""
        return self._request.query_params.get(name, default)

    def texts(self, name: str) -> list[str]:
        """A query parameter that may be repeated."""
        return self._request.query_params.getlist(name)

    def flag(self, name: str) -> bool:
        """A query parameter that is `true` or not."""
        return self.text(name).lower() == "true"

    def number(self, name: str, default: int) -> int:
        """A query parameter. Raises RegistryError (404, as of a path that is not there)."""
        return _integer(self.text(name), name) if self.text(name) else default

    def schema_id(self) -> int:
        """The id of the path. Raises RegistryError."""
        return _integer(self.part("id"), "id")


def _integer(text: str, name: str) -> int:
    word = text.strip()
    digits = word.removeprefix("-")
    if not is_small_number(digits) or abs(int(word)) > ID_MAX:
        raise RegistryError(404, 404, f"{name} {text[:100]!r} is not a number: HTTP 404 Not Found")
    return int(word)


def reply(request: Request, document: Any, status: int = 200) -> Response:
    """A document as JSON, in the media type that the client prefers among the registry's."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return Response(text, status, {"X-Content-Type-Options": "nosniff"}, _accepted(request))


def _accepted(request: Request) -> str:
    wanted = request.headers.get("accept", "")
    offered = [part.partition(";")[0].strip().lower() for part in wanted.split(",")]
    return next((t for t in offered if t in MEDIA_TYPES), V1)


def error_reply(request: Request, error: RegistryError) -> Response:
    """The body of an error, as Confluent's clients read it."""
    text = str(error)
    document = {"error_code": error.code, "message": text}
    if request.url.path.startswith("/apis/"):  # as RFC 7807, for Apicurio's clients
        document |= {"status": error.status, "title": text, "detail": text, "name": "Error"}
    answer = reply(request, document, error.status)
    if error.status == 401:
        answer.headers["WWW-Authenticate"] = 'Basic realm="schema registry", charset="UTF-8"'
    return answer
