"""Requests to a schema registry over HTTP or HTTPS, with Confluent's keys for logins. Blocking.

A password or a token is not sent in clear but to this machine.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from headwater.errors import UsageError
from headwater.security.jaas import parse_jaas
from headwater.security.secret import resolved
from headwater.security.tls_context import client_context
from headwater.sockets import is_loopback
from headwater_tier.typed.quarantine_reasons import SchemaUnavailableError

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
V1 = "application/vnd.schemaregistry.v1+json"


class RegistryServer:
    """One URL of a registry."""

    def __init__(
        self,
        url: str,
        properties: Mapping[str, str],
        *,
        name: str = URL_KEY,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`properties` as `registry_properties` gives them; `name` is the option that had `url`.

        Raises UsageError for a URL that is none, and for a login that would go in clear.
        """
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            self._host = ""
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not self._host:
            raise UsageError(f"{name} {url.rpartition('@')[2][:200]!r}: use http://host:port")
        self._path = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        self.shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{self._path}"
        login = _authorization(properties, unquote(parts.netloc.rpartition("@")[0]))
        is_encrypted = parts.scheme == "https"
        if login and not is_encrypted and not is_loopback(self._host):
            what = "token" if login.startswith("Bearer") else "password"
            raise UsageError(f"{name}: {self.shown} would get the {what} in clear: use https")
        self._headers = {"Accept": f"{V1}, application/json", "Content-Type": V1}
        if login:
            self._headers["Authorization"] = login
        tls = {name: text for name, text in properties.items() if name.startswith("ssl.")}
        self._tls: ssl.SSLContext | None = client_context(tls) if is_encrypted else None

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and document of the answer; None for one that is no JSON.

        Raises SchemaUnavailableError when the registry does not answer.
        """
        content = None if body is None else json.dumps(body)
        connection = self._connection()
        try:
            connection.request(method, self._path + path, content, self._headers)
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
        try:
            return answer.status, json.loads(data)
        except (ValueError, RecursionError):
            return answer.status, None

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=self._tls
        )


def registry_properties(given: Mapping[str, str]) -> dict[str, str]:
    """The registry's own keys before those that it shares with the brokers, secrets resolved."""
    own = {
        name.removeprefix(PREFIX): text for name, text in given.items() if name.startswith(PREFIX)
    }
    merged = {**given, **own}
    return {k: resolved(k, text) if k in SECRETS else text for k, text in merged.items()}


def _authorization(properties: Mapping[str, str], url_user_info: str) -> str:
    """The header that shows who asks; empty without credentials."""
    bearer = properties.get(BEARER_SOURCE, "STATIC_TOKEN" if BEARER_TOKEN in properties else "")
    if bearer == "STATIC_TOKEN":
        if not properties.get(BEARER_TOKEN):
            raise UsageError(f"{BEARER_TOKEN} is not set, which {BEARER_SOURCE}={bearer} needs")
        return f"Bearer {properties[BEARER_TOKEN]}"
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
        return ""
    return f"Basic {base64.b64encode(info.encode()).decode()}"


def _sasl_user_info(properties: Mapping[str, str]) -> str:
    options = parse_jaas(properties[JAAS]).options if properties.get(JAAS) else {}
    user = options.get("username") or properties.get("sasl.username", "")
    secret = options.get("password") or properties.get("sasl.password", "")
    if not user or not secret:
        raise UsageError(f"{BASIC_SOURCE} is SASL_INHERIT, but {JAAS} has no user and password")
    return f"{user}:{resolved(f'password of {JAAS}', secret)}"
