"""Schemas for decoding, asked of the registry with the login of whoever looks."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from headwater_gateway.app.parts import GatewayError, GatewaySettings, Login
from headwater_gateway.app.settings import OWN_REGISTRY
from headwater_gateway.registry.clients import SchemaRegistry
from headwater_tier.typed.decoding import SchemaSource
from headwater_tier.typed.quarantine_reasons import SchemaUnavailableError
from headwater_tier.typed.registry_client import RegistryClient, RegistryReader
from headwater_tier.typed.registry_http import BASIC_INFO, BASIC_SOURCE, BEARER_SOURCE, BEARER_TOKEN
from headwater_tier.typed.without_registry import WithoutRegistry

CLIENTS_MAX = 100
OWN_S_MAX = 10.0


class SchemaLookup:
    """A client of the registry per login, kept with what it has seen."""

    def __init__(self, settings: GatewaySettings, registry: SchemaRegistry, salt: bytes) -> None:
        self._settings = settings
        self._registry = registry
        self._salt = salt
        self._clients: OrderedDict[bytes, SchemaSource] = OrderedDict()

    def of(self, login: Login) -> SchemaSource:
        """The schemas that this user may read; children's questions are answered from threads, the
        call itself is made on the loop. Raises UsageError for a URL that is none."""
        if not self._settings.schema_registry:
            return WithoutRegistry()
        digest = login.digest(self._salt)
        found = self._clients.get(digest)
        if found is None:
            found = self._clients[digest] = self._new(login)
            if len(self._clients) > CLIENTS_MAX:
                self._clients.popitem(last=False)
        return found

    def _new(self, login: Login) -> SchemaSource:
        if self._settings.schema_registry == OWN_REGISTRY:
            return RegistryReader([OwnServer(self._registry, login, asyncio.get_running_loop())])
        return RegistryClient(self._settings.schema_registry, self._security(login))

    def _security(self, login: Login) -> dict[str, str]:
        """The registry's keys; whose request it is takes the place of who the gateway is."""
        properties = dict(self._settings.properties)
        kind, _, proof = login.authorization().partition(" ")
        if kind == "Basic":
            info = f"{login.name}:{login.secret}"
            return {**properties, BASIC_SOURCE: "USER_INFO", BASIC_INFO: info}
        if kind == "Bearer":
            return {**properties, BEARER_SOURCE: "STATIC_TOKEN", BEARER_TOKEN: proof}
        return properties


class OwnServer:
    """The registry of this process as a blocking client asks it (`RegistryEndpoint`): from another
    thread than the loop's, and without a socket, as the gateway's own certificate proves nothing
    to it."""

    shown = "of this gateway"

    def __init__(
        self, registry: SchemaRegistry, login: Login, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._registry = registry
        self._login = login
        self._loop = loop

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """See the port."""
        answer = asyncio.run_coroutine_threadsafe(
            self._registry.ask(self._login, method, path, body), self._loop
        )
        try:
            return 200, answer.result(OWN_S_MAX)
        except GatewayError as error:
            return error.status, {"error_code": error.code, "message": str(error)}
        except TimeoutError:
            answer.cancel()
            raise SchemaUnavailableError(
                f"the schema registry {self.shown} does not answer within {OWN_S_MAX:.0f} s"
            ) from None
