"""`SchemaRegistry`: where serializers register and find schemas (Confluent's REST).

    registry = SchemaRegistry("https://registry:8081", {"basic.auth.user.info": "env:LOGIN"})

Threads may share it. What was asked once is not asked again.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from headwater.client.errors import SerializerUnavailableError
from headwater.client.serializers.values import Context
from headwater.errors import UsageError
from headwater_tier.typed.decoding import RegisteredSchema
from headwater_tier.typed.quarantine_reasons import SchemaUnavailableError
from headwater_tier.typed.registry_client import RegistryClient
from headwater_tier.typed.registry_http import RegistryServer, registry_properties

Subject = Callable[[Context], str]
"""Where the schema of a place is registered (Kafka's subject name strategy)."""


def topic_subject(at: Context) -> str:
    """TOPIC-key or TOPIC-value (TopicNameStrategy)."""
    return f"{at.topic}-{at.field}"


class Reference(NamedTuple):
    """A schema that another one refers to by `name`."""

    name: str
    subject: str
    version: int


class SchemaRegistry:
    """A schema registry, for serializers."""

    def __init__(self, url: str, security: Mapping[str, str] | None = None) -> None:
        """`url`: one, or several of one registry with commas. `security`: Confluent's keys
        (`basic.auth.*`, `bearer.auth.*`, `ssl.*`). A login goes over https, or to this machine.

        Raises UsageError.
        """
        self._reads = RegistryClient(url, security)
        given = registry_properties(security or {})
        self._servers = [
            RegistryServer(one, given) for one in filter(None, url.replace(" ", "").split(","))
        ]
        self._ids: dict[tuple[str, str, str, bool], tuple[int, int]] = {}

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema. Raises ValueError for an unknown id, SerializerUnavailableError."""
        try:
            found = self._reads.by_id(schema_id) if schema_id >= 0 else None
        except SchemaUnavailableError as error:
            raise SerializerUnavailableError(str(error)) from error
        if found is None:
            raise ValueError(f"the registry has no schema {schema_id}")
        return found

    def is_known(self, subject: str, kind: str, text: str, *, register: bool) -> bool:
        """True when `id_of` asks nobody."""
        return (subject, kind, text, register) in self._ids

    def id_of(
        self,
        subject: str,
        kind: str,
        text: str,
        references: Sequence[Reference] = (),
        *,
        register: bool = True,
    ) -> int:
        """The id of a schema in a subject; it is registered there if it is not and `register`.

        Raises UsageError when the registry refuses it: it is not compatible, or may not be
        registered. Raises SerializerUnavailableError.
        """
        return self._entry(subject, kind, text, references, register=register)[0]

    def version_of(
        self, subject: str, kind: str, text: str, references: Sequence[Reference], *, register: bool
    ) -> int:
        """The version of a schema in a subject; as `id_of`."""
        schema_id, version = self._entry(subject, kind, text, references, register=register)
        if version < 0:
            body = _body(kind, text, references)
            version = self._ask(f"/subjects/{quote(subject, safe='')}", body, subject)["version"]
            self._ids[subject, kind, text, register] = (schema_id, version)
        return version

    def _entry(
        self, subject: str, kind: str, text: str, references: Sequence[Reference], *, register: bool
    ) -> tuple[int, int]:
        """(id, version or -1)."""
        place = (subject, kind, text, register)
        known = self._ids.get(place)
        if known is None:
            path = f"/subjects/{quote(subject, safe='')}" + ("/versions" if register else "")
            answer = self._ask(path, _body(kind, text, references), subject)
            known = self._ids[place] = (int(answer["id"]), int(answer.get("version", -1)))
        return known

    def _ask(self, path: str, body: dict[str, Any], subject: str) -> dict[str, Any]:
        failures = []
        for server in self._servers:
            try:
                status, answer = server.ask("POST", path, body)
            except SchemaUnavailableError as error:
                failures.append(str(error))
                continue
            if status == http.client.OK and isinstance(answer, dict) and "id" in answer:
                return answer
            told = answer.get("message") if isinstance(answer, dict) else None
            text = f"the schema registry {server.shown}: subject {subject}: {told or status}"
            if status >= http.client.INTERNAL_SERVER_ERROR:
                raise SerializerUnavailableError(text)
            raise UsageError(text)
        raise SerializerUnavailableError("; ".join(failures))


def _body(kind: str, text: str, references: Sequence[Reference]) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": text, "schemaType": kind}
    if references:
        body["references"] = [reference._asdict() for reference in references]
    return body
