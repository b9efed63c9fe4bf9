"""v3: resources with their addresses, as Kafka's REST proxy writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest.documents import shown
from headwater_gateway.rest.endpoints import RestRequest

PREFIXES = ("/v3", "/kafka/v3")
"""Of Kafka's REST proxy, and of Confluent Server and Cloud."""
Row = dict[str, Any]


class ClusterIds:
    """The cluster's id, asked for once: it never changes."""

    def __init__(self) -> None:
        self._id = ""

    async def own(self, request: RestRequest) -> str:
        """The id of the cluster that this gateway serves."""
        if not self._id:
            self._id = (await request.admin.describe_cluster()).cluster_id or ""
        return self._id

    async def of_path(self, request: RestRequest) -> Cluster:
        """The cluster of the path. Raises GatewayError (404) for another one."""
        wanted, own = request.part("cluster_id"), await self.own(request)
        if wanted != own:
            raise GatewayError(404, 404, f"Cluster {shown(wanted)} cannot be found.")
        return Cluster(request, own)


class Cluster:
    """A cluster in a request: writes resources with addresses that the client can follow."""

    def __init__(self, request: RestRequest, cluster_id: str) -> None:
        self.id = cluster_id
        path = request.http.scope["path"]
        prefix = next(p for p in reversed(PREFIXES) if path.startswith(p))
        self._base = f"{request.base_url}{prefix}/clusters"

    def url(self, *parts: object) -> str:
        """An address below the cluster; without parts its own."""
        return "/".join([self._base, quote(self.id, safe=""), *(_escaped(p) for p in parts)])

    def related(self, *parts: object) -> Row:
        """A link."""
        return {"related": self.url(*parts)}

    def resource(self, kind: str, address: str, name: str, fields: Mapping[str, Any]) -> Row:
        """One resource; `name`: that of its kind and its parents, as `topic=a/partition=0`."""
        crn = f"crn:///kafka={self.id}" + (f"/{name}" if name else "")
        return {
            "kind": kind,
            "metadata": {"self": address, "resource_name": crn},
            "cluster_id": self.id,
            **fields,
        }

    def collection(self, kind: str, address: str, rows: Iterable[Row]) -> Row:
        """A list of resources, whole."""
        metadata = {"self": address, "next": None}
        return {"kind": kind, "metadata": metadata, "data": list(rows)}


def _escaped(part: object) -> str:
    return quote(str(part), safe=":")


def one_named(
    rows: Iterable[Row], field: str, name: object, error: Callable[[], GatewayError]
) -> Row:
    """The resource of that name. Raises `error`."""
    found = next((row for row in rows if row[field] == name), None)
    if found is None:
        raise error()
    return found
