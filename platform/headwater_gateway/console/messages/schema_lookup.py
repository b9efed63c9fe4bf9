"""Schemas for decoding, asked of the registry with the login of whoever looks."""

from __future__ import annotations

from collections import OrderedDict

from headwater_gateway.app.parts import GatewaySettings, Login
from headwater_tier.typed.decoding import SchemaSource
from headwater_tier.typed.registry_client import RegistryClient
from headwater_tier.typed.registry_http import BASIC_INFO, BASIC_SOURCE, BEARER_SOURCE, BEARER_TOKEN
from headwater_tier.typed.without_registry import WithoutRegistry

OWN = "own"
CLIENTS_MAX = 100


class SchemaLookup:
    """A client of the registry per login, kept with what it has seen."""

    def __init__(self, settings: GatewaySettings, salt: bytes) -> None:
        self._settings = settings
        self._salt = salt
        self._clients: OrderedDict[bytes, RegistryClient] = OrderedDict()

    def of(self, login: Login) -> SchemaSource:
        """The schemas that this user may read. Raises UsageError for a URL that is none."""
        if not self._settings.schema_registry:
            return WithoutRegistry()
        digest = login.digest(self._salt)
        found = self._clients.get(digest)
        if found is None:
            found = self._clients[digest] = RegistryClient(self._url(), self._security(login))
            if len(self._clients) > CLIENTS_MAX:
                self._clients.popitem(last=False)
        return found

    def _url(self) -> str:
        given = self._settings.schema_registry
        return self._settings.url if given == OWN else given

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
