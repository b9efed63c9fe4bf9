"""Schemas from a registry with Confluent's REST (Confluent's CachedSchemaRegistryClient).

An id's schema never changes and is kept for ever; that there is none is believed for 5 s. A
registry that does not answer raises: nobody may take its silence for a missing schema.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import quote, unquote, urlsplit

from headwater.clock import Clock
from headwater.errors import UsageError
from headwater.security.jaas import parse_jaas
from headwater.security.secret import resolved
from headwater.security.tls_context import client_context
from headwater.system import SystemClock
from headwater_tier.typed.decoding import RegisteredSchema, SchemaUnavailableError

URL_KEY = "schema.registry.url"
PREFIX = "schema.registry."
"""Of keys that are the registry's alone, as `schema.registry.ssl.truststore.location`."""
BASIC_SOURCE = "basic.auth.credentials.source"
BASIC_INFO = "basic.auth.user.info"
BEARER_SOURCE = "bearer.auth.credentials.source"
BEARER_TOKEN = "bearer.auth.token"
JAAS = "sasl.jaas.config"
SECRETS = (BASIC_INFO, BEARER_TOKEN, "ssl.keystore.password", "ssl.key.password",
           "ssl.truststore.password", "ssl.keystore.key")  # fmt: skip
TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024
NOT_FOUND_S = 5.0
MISSING_MAX = 10_000
"""Ids that are remembered as unknown; the oldest go first."""
REFERENCES_MAX = 1000
REFERENCES_DEPTH_MAX = 50
"""Of references of references: a schema that goes on does not parse, and its records do not fit."""
DEFAULT_TYPE = "AVRO"
_NOT_FOUND_CODES = (40401, 40402, 40403)


class RegistryClient:
    """Schemas by id over HTTP or HTTPS (`headwater_tier.typed.decoding.SchemaSource`)."""

    def __init__(
        self, url: str, security: Mapping[str, str] | None = None, clock: Clock | None = None
    ) -> None:
        """`url`: one, or several of one registry with commas. `security`: Confluent's keys
        (`basic.auth.*`, `bearer.auth.*`, `ssl.*`), with or without `schema.registry.` before.

        Raises UsageError that names the key and a remedy.
        """
        given = _properties(security or {})
        self._servers = [
            _Server(one, given) for one in filter(None, url.replace(" ", "").split(","))
        ]
        if not self._servers:
            raise UsageError(f"{URL_KEY} is empty: set it to http://host:8081")
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
                return server.get(path)
            except SchemaUnavailableError as error:
                failures.append(str(error))
        raise SchemaUnavailableError("; ".join(failures))

    def _refuse(self, what: str) -> NoReturn:
        named = ", ".join(server.shown for server in self._servers)
        raise SchemaUnavailableError(f"the schema registry {named} {what}")


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


class _Server:
    """One URL of the registry."""

    def __init__(self, url: str, properties: Mapping[str, str]) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            self._host = ""
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not self._host:
            raise UsageError(f"{URL_KEY} {url.rpartition('@')[2][:200]!r}: use http://host:port")
        self._path = parts.path.rstrip("/")
        self.shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{self._path}"
        user_info = parts.netloc.rpartition("@")[0]
        self._headers = {
            "Accept": "application/vnd.schemaregistry.v1+json, application/json",
            **_authorization(properties, unquote(user_info)),
        }
        tls = {name: text for name, text in properties.items() if name.startswith("ssl.")}
        self._tls: ssl.SSLContext | None = client_context(tls) if parts.scheme == "https" else None

    def get(self, path: str) -> dict[str, Any] | None:
        """The JSON object of status 200; None for a 404 with the registry's error code."""
        status, data = self._request(path)
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            answer = None
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
            f"the schema registry {self.shown} answers {path} with status {status}{remedy}"
        )

    def _request(self, path: str) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            connection.request("GET", self._path + path, headers=self._headers)
            answer = connection.getresponse()
            data = answer.read(ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            raise SchemaUnavailableError(
                f"the schema registry {self.shown} does not answer: {error!r}"
            ) from None
        finally:
            connection.close()
        if len(data) > ANSWER_BYTES_MAX:
            raise SchemaUnavailableError(
                f"the schema registry {self.shown} answers more than {ANSWER_BYTES_MAX} bytes"
            )
        return answer.status, data

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=TIMEOUT_S, context=self._tls
        )


def registry_url(properties: Mapping[str, str]) -> str:
    """The URL that a properties file names; empty without."""
    return properties.get(URL_KEY, "")


def _properties(given: Mapping[str, str]) -> dict[str, str]:
    """The registry's own keys before those that it shares with the brokers, secrets resolved."""
    own = {
        name.removeprefix(PREFIX): text for name, text in given.items() if name.startswith(PREFIX)
    }
    merged = {**given, **own}
    return {k: resolved(k, text) if k in SECRETS else text for k, text in merged.items()}


def _authorization(properties: Mapping[str, str], url_user_info: str) -> dict[str, str]:
    """The header that shows who asks; none without credentials."""
    bearer = properties.get(BEARER_SOURCE, "STATIC_TOKEN" if BEARER_TOKEN in properties else "")
    if bearer == "STATIC_TOKEN":
        if not properties.get(BEARER_TOKEN):
            raise UsageError(f"{BEARER_TOKEN} is not set, which {BEARER_SOURCE}={bearer} needs")
        return {"Authorization": f"Bearer {properties[BEARER_TOKEN]}"}
    if bearer:
        raise UsageError(f"{BEARER_SOURCE} is {bearer!r}: use STATIC_TOKEN")
    source = properties.get(BASIC_SOURCE, "USER_INFO" if BASIC_INFO in properties else "URL")
    if source == "USER_INFO":
        info = properties.get(BASIC_INFO, "")
        if ":" not in info:
            raise UsageError(f"{BASIC_INFO} is not user:password, which {BASIC_SOURCE} needs")
    elif source == "SASL_INHERIT":
        info = _sasl_user_info(properties)
    elif source == "URL":
        info = url_user_info
    else:
        raise UsageError(f"{BASIC_SOURCE} is {source!r}: use USER_INFO, URL or SASL_INHERIT")
    if not info:
        return {}
    return {"Authorization": f"Basic {base64.b64encode(info.encode()).decode()}"}


def _sasl_user_info(properties: Mapping[str, str]) -> str:
    options = parse_jaas(properties[JAAS]).options if properties.get(JAAS) else {}
    user = options.get("username") or properties.get("sasl.username", "")
    secret = options.get("password") or properties.get("sasl.password", "")
    if not user or not secret:
        raise UsageError(f"{BASIC_SOURCE} is SASL_INHERIT, but {JAAS} has no user and password")
    return f"{user}:{resolved(f'password of {JAAS}', secret)}"
