"""The schema registry as the console's pages ask it, with the login of who asks."""

from __future__ import annotations

import difflib
import json
from typing import Any, NamedTuple
from urllib.parse import quote

from headwater_gateway.app.parts import GatewayError, Login
from headwater_gateway.registry.clients import SchemaRegistry
from headwater_gateway.registry.remote import RemoteError

CONTEXT = ("{oldSchema", "{validateFields", "{compatibility")
"""Messages that say no reason, but what was compared."""


class SchemaRow(NamedTuple):
    """A version of a subject."""

    subject: str
    version: int
    schema_id: int
    kind: str
    text: str

    @property
    def pretty(self) -> str:
        """The text for people: JSON indented."""
        return pretty(self.kind, self.text)


class DiffLine(NamedTuple):
    """A line of a difference: `add`, `cut` or `same`."""

    kind: str
    text: str


class Registry:
    """A registry, for one login."""

    def __init__(self, registry: SchemaRegistry, login: Login) -> None:
        self._registry = registry
        self._login = login

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The document of a reply. Raises RemoteError."""
        try:
            return await self._registry.ask(self._login, method, path, body)
        except GatewayError as error:
            raise RemoteError(str(error), error.code) from error

    async def latest(self) -> list[SchemaRow]:
        """The latest version of each subject."""
        found = await self.ask("GET", "/schemas?latestOnly=true")
        return [_row(document) for document in found]

    async def versions(self, subject: str) -> list[int]:
        """The versions of a subject."""
        found: list[int] = await self.ask("GET", f"/subjects/{_part(subject)}/versions")
        return found

    async def version(self, subject: str, version: int) -> SchemaRow:
        """One version."""
        return _row(await self.ask("GET", f"/subjects/{_part(subject)}/versions/{version}"))

    async def level(self, subject: str = "") -> str:
        """The compatibility level of a subject, or the one that is common."""
        path = f"/config/{_part(subject)}?defaultToGlobal=true" if subject else "/config"
        return str((await self.ask("GET", path))["compatibilityLevel"])

    async def set_level(self, subject: str, level: str) -> None:
        """Set it."""
        path = f"/config/{_part(subject)}" if subject else "/config"
        await self.ask("PUT", path, {"compatibility": level})

    async def check(self, subject: str, kind: str, text: str) -> list[str]:
        """Why a schema does not fit behind the latest version; nothing if it does."""
        path = f"/compatibility/subjects/{_part(subject)}/versions/latest?verbose=true"
        found = await self.ask("POST", path, {"schema": text, "schemaType": kind})
        if found["is_compatible"]:
            return []
        messages = [str(message) for message in found.get("messages") or []]
        return [m for m in messages if not m.startswith(CONTEXT)] or ["it is not compatible"]

    async def register(self, subject: str, kind: str, text: str) -> int:
        """Register a version; its id."""
        path = f"/subjects/{_part(subject)}/versions"
        found = await self.ask("POST", path, {"schema": text, "schemaType": kind})
        return int(found["id"])

    async def delete(self, subject: str) -> None:
        """Delete a subject: softly, as the registry's own tools do at first."""
        await self.ask("DELETE", f"/subjects/{_part(subject)}")


def pretty(kind: str, text: str) -> str:
    """A schema's text for people."""
    if kind == "PROTOBUF":
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def difference(former: SchemaRow, later: SchemaRow) -> list[DiffLine]:
    """The lines of both versions."""
    lines = difflib.ndiff(former.pretty.splitlines(), later.pretty.splitlines())
    kinds = {"+ ": "add", "- ": "cut", "  ": "same"}
    return [DiffLine(kinds[line[:2]], line) for line in lines if line[:2] in kinds]


def _row(document: dict[str, Any]) -> SchemaRow:
    return SchemaRow(
        str(document["subject"]),
        int(document["version"]),
        int(document["id"]),
        str(document.get("schemaType") or "AVRO"),
        str(document["schema"]),
    )


def _part(subject: str) -> str:
    return quote(subject.encode("utf-8", "replace"), safe="")
