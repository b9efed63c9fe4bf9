"""What the REST routes ask a schema registry: schemas by id or subject, with their references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from headwater_gateway.app.errors import GatewayError
from headwater_gateway.app.login import Login
from headwater_gateway.registry.clients import SchemaRegistry
from headwater_gateway.rest.documents import shown, unprocessable
from headwater_gateway.rest.kafka_errors import INVALID_SCHEMA, SERIALIZATION
from headwater_tier.typed.decoding import RegisteredSchema

REFERENCES_MAX = 1_000
DEPTH_MAX = 50
DEFAULT_TYPE = "AVRO"
NO_REGISTRY = "this gateway has no schema registry: start it with --schema-registry"


class NoRegistry:
    """A gateway without one."""

    async def ask(self, login: Login, method: str, path: str, body: Any = None) -> Any:
        """Raises GatewayError."""
        raise unprocessable(NO_REGISTRY, SERIALIZATION)


async def schema_by_id(registry: SchemaRegistry, login: Login, schema_id: int) -> RegisteredSchema:
    """A schema with the texts that it refers to. Raises GatewayError."""
    answer = await _asked(registry, login, f"/schemas/ids/{schema_id}")
    return await _schema(registry, login, schema_id, answer)


async def schema_of_version(
    registry: SchemaRegistry, login: Login, subject: str, version: int | None
) -> RegisteredSchema:
    """A version of a subject; None: the latest. Raises GatewayError."""
    name = "latest" if version is None else str(version)
    path = f"/subjects/{quote(subject, safe='')}/versions/{name}"
    answer = await _asked(registry, login, path)
    schema_id = answer.get("id")
    if not isinstance(schema_id, int):
        raise _strange(f"no id for {subject}")
    return await _schema(registry, login, schema_id, answer)


async def registered(
    registry: SchemaRegistry, login: Login, subject: str, kind: str, text: str
) -> RegisteredSchema:
    """Register a schema, if it is not there yet. Raises GatewayError."""
    path = f"/subjects/{quote(subject, safe='')}/versions"
    body = {"schema": text, **({} if kind == DEFAULT_TYPE else {"schemaType": kind})}
    try:
        answer = await registry.ask(login, "POST", path, body)
    except GatewayError as error:
        if error.status in (400, 422):
            raise unprocessable(f"Invalid schema: {error}", INVALID_SCHEMA) from error
        raise
    schema_id = answer.get("id") if isinstance(answer, Mapping) else None
    if not isinstance(schema_id, int):
        raise _strange(f"no id for {subject}")
    return RegisteredSchema(schema_id, kind, text)


async def _asked(registry: SchemaRegistry, login: Login, path: str) -> Mapping[str, Any]:
    try:
        answer = await registry.ask(login, "GET", path)
    except GatewayError as error:
        if error.status == 404:
            raise unprocessable(f"Error serializing message. {error}", SERIALIZATION) from error
        raise
    if not isinstance(answer, Mapping):
        raise _strange(shown(answer))
    return answer


async def _schema(
    registry: SchemaRegistry, login: Login, schema_id: int, answer: Mapping[str, Any]
) -> RegisteredSchema:
    text, kind = answer.get("schema"), answer.get("schemaType") or DEFAULT_TYPE
    if not isinstance(text, str) or not isinstance(kind, str):
        raise _strange(f"no text for schema {schema_id}")
    found: dict[str, str] = {}
    await _add_references(registry, login, answer, found, set(), 0)
    return RegisteredSchema(schema_id, kind, text, tuple(found.items()))


async def _add_references(
    registry: SchemaRegistry,
    login: Login,
    answer: Mapping[str, Any],
    found: dict[str, str],
    seen: set[tuple[str, Any]],
    depth: int,
) -> None:
    """Add the texts that a schema refers to, those referred to first."""
    for row in answer.get("references") or ():
        name, subject, version = (row.get(k) for k in ("name", "subject", "version"))
        if (subject, version) in seen:
            continue
        if len(seen) >= REFERENCES_MAX or depth > DEPTH_MAX:
            raise _strange("too many references")
        seen.add((str(subject), version))
        path = f"/subjects/{quote(str(subject), safe='')}/versions/{version}"
        referred = await _asked(registry, login, path)
        await _add_references(registry, login, referred, found, seen, depth + 1)
        found[str(name)] = str(referred.get("schema", ""))


def _strange(detail: str) -> GatewayError:
    return GatewayError(502, 50001, f"the schema registry answers strangely: {detail}")
