"""Schemas from a registry with Confluent's REST (Confluent's CachedSchemaRegistryClient).

An id's schema never changes and is kept for ever; that there is none is believed for 5 s. A
registry that does not answer raises: nobody may take its silence for a missing schema.
"""

from __future__ import annotations

import http.client
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol
from urllib.parse import quote

from headwater.clock import Clock
from headwater.errors import UsageError
from headwater.system import SystemClock
from headwater_tier.typed.decoding import RegisteredSchema
from headwater_tier.typed.quarantine_reasons import SchemaUnavailableError
from headwater_tier.typed.registry_http import (
    BASIC_INFO,
    BEARER_TOKEN,
    URL_KEY,
    RegistryServer,
    registry_properties,
)

NOT_FOUND_S = 5.0
MISSING_MAX = 10_000
"""Ids that are remembered as unknown; the oldest go first."""
REFERENCES_MAX = 1000
REFERENCES_DEPTH_MAX = 50
"""Of references of references: a schema that goes on does not parse, and its records do not fit."""
DEFAULT_TYPE = "AVRO"
_NOT_FOUND_CODES = (40401, 40402, 40403)


class RegistryEndpoint(Protocol):
    """A server of the registry."""

    @property
    def shown(self) -> str:
        """Its name in errors."""
        ...

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and document of the answer. Raises SchemaUnavailableError without one."""
        ...


class RegistryReader:
    """Schemas by id (`headwater_tier.typed.decoding.SchemaSource`) of servers of one registry."""

    def __init__(self, servers: Sequence[RegistryEndpoint], clock: Clock | None = None) -> None:
        """The first server that answers is believed."""
        self._servers = servers
        self._by_id: dict[int, RegisteredSchema] = {}
        self._unknown = UnknownIds(clock or SystemClock())

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        """See the port."""
        found = self._by_id.get(schema_id)
        if found is not None:
            return found
        if self._unknown.has(schema_id):
            return None
        answer = self._get(f"/schemas/ids/{schema_id}")
        if answer is None:
            self._unknown.add(schema_id)
            return None
        self._by_id[schema_id] = schema = self._schema(schema_id, answer)
        return schema

    def latest(self, subject: str) -> RegisteredSchema | None:
        """See the port."""
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")
        if answer is None:
            return None
        schema_id = answer.get("id")
        if not isinstance(schema_id, int):
            self._refuse("has no id for a subject's latest schema")
        return self._schema(schema_id, answer)

    def _schema(self, schema_id: int, answer: Mapping[str, Any]) -> RegisteredSchema:
        text, kind = answer.get("schema"), answer.get("schemaType") or DEFAULT_TYPE
        if not isinstance(text, str) or not isinstance(kind, str):
            self._refuse(f"has no text for schema {schema_id}")
        found: dict[str, str] = {}
        self._add_references(answer, found, set())
        return RegisteredSchema(schema_id, kind, text, tuple(found.items()))

    def _add_references(
        self,
        answer: Mapping[str, Any],
        found: dict[str, str],
        seen: set[tuple[str, Any]],
        depth: int = 0,
    ) -> None:
        """Add the texts of all schemas that this one refers to, referred ones first."""
        for reference in answer.get("references") or ():
            name, subject, version = (reference.get(k) for k in ("name", "subject", "version"))
            if (
                (subject, version) in seen
                or len(seen) >= REFERENCES_MAX
                or depth > REFERENCES_DEPTH_MAX
            ):
                continue
            seen.add((subject, version))
            row = self._get(f"/subjects/{quote(str(subject), safe='')}/versions/{version}")
            if row is None or not isinstance(row.get("schema"), str):
                self._refuse(f"has no version {version} of {subject}, which a schema refers to")
            self._add_references(row, found, seen, depth + 1)
            found[str(name)] = row["schema"]

    def _get(self, path: str) -> dict[str, Any] | None:
        """The answer as an object; None when the registry knows no such thing."""
        failures: list[str] = []
        for server in self._servers:
            try:
                return _answered(server, path)
            except SchemaUnavailableError as error:
                failures.append(str(error))
        raise SchemaUnavailableError("; ".join(failures))

    def _refuse(self, what: str) -> NoReturn:
        named = ", ".join(server.shown for server in self._servers)
        raise SchemaUnavailableError(f"the schema registry {named} {what}")


class RegistryClient(RegistryReader):
    """Schemas by id over HTTP or HTTPS."""

    def __init__(
        self, url: str, security: Mapping[str, str] | None = None, clock: Clock | None = None
    ) -> None:
        """`url`: one, or several of one registry with commas. `security`: Confluent's keys
        (`basic.auth.*`, `bearer.auth.*`, `ssl.*`), with or without `schema.registry.` before.

        Raises UsageError that names the key and a remedy.
        """
        given = registry_properties(security or {})
        urls = list(filter(None, url.replace(" ", "").split(",")))
        if not urls:
            raise UsageError(f"{URL_KEY} is empty: set it to http://host:8081")
        super().__init__([RegistryServer(one, given) for one in urls], clock)


class UnknownIds:
    """Ids that the registry did not have a moment ago: a bounded number of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: OrderedDict[int, float] = OrderedDict()

    def add(self, schema_id: int) -> None:
        """Believe it for NOT_FOUND_S."""
        self._until_s[schema_id] = self._clock.monotonic() + NOT_FOUND_S
        self._until_s.move_to_end(schema_id)
        if len(self._until_s) > MISSING_MAX:
            self._until_s.popitem(last=False)

    def has(self, schema_id: int) -> bool:
        """True while that is believed."""
        now_s = self._clock.monotonic()
        return now_s < self._until_s.get(schema_id, now_s)


def registry_url(properties: Mapping[str, str]) -> str:
    """The URL that a properties file names; empty without."""
    return properties.get(URL_KEY, "")


def _answered(server: RegistryEndpoint, path: str) -> dict[str, Any] | None:
    """The JSON object of status 200; None for a 404 with the registry's error code."""
    status, answer = server.ask("GET", path)
    if status == http.client.OK and isinstance(answer, dict):
        return answer
    code = answer.get("error_code") if isinstance(answer, dict) else None
    if status == http.client.NOT_FOUND and code in _NOT_FOUND_CODES:
        return None
    remedy = ""
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        remedy = f": set {BASIC_INFO} or {BEARER_TOKEN} of a user that may read subjects"
    elif status == http.client.NOT_FOUND:
        remedy = f": check that {URL_KEY} is a schema registry"
    raise SchemaUnavailableError(
        f"the schema registry {server.shown} answers {path} with status {status}{remedy}"
    )
