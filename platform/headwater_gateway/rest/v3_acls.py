"""v3: ACLs, searched, added and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, TypeVar
from urllib.parse import urlencode

from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, AclFilter, PatternType, PermissionType
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest.documents import Document, bad_request, shown
from headwater_gateway.rest.endpoints import Reply, RestRequest, Routes
from headwater_gateway.rest.v3_clusters import CLUSTER
from headwater_gateway.rest.v3_resources import Cluster, ClusterIds, Row

ACLS = f"{CLUSTER}/acls"
ACLS_MAX = 1_000
"""Of one batch."""
E = TypeVar("E", bound=IntEnum)


class Acls:
    """The routes of ACLs."""

    def __init__(self, ids: ClusterIds) -> None:
        self._ids = ids

    def add_to(self, routes: Routes, prefix: str) -> None:
        """Add the routes under `prefix`."""
        routes.read(prefix + ACLS, self.search)
        routes.write("POST", prefix + ACLS, self.create)
        routes.write("POST", f"{prefix}{ACLS}:batch", self.create_batch)
        routes.write("DELETE", prefix + ACLS, self.delete)

    async def search(self, request: RestRequest) -> Any:
        """The ACLs that the parameters select."""
        cluster = await self._ids.of_path(request)
        found = await request.admin.describe_acls(filter_of(request.http.query_params))
        address = cluster.url("acls")
        return cluster.collection("KafkaAclList", address, (_acl(cluster, a) for a in found))

    async def create(self, request: RestRequest) -> Any:
        """One ACL."""
        await self._ids.of_path(request)
        await request.admin.create_acls([binding_of(await request.document())])
        return Reply(None, 201)

    async def create_batch(self, request: RestRequest) -> Any:
        """Several at once."""
        await self._ids.of_path(request)
        rows = (await request.document()).objects("data")
        if len(rows) > ACLS_MAX:
            raise bad_request(f"{len(rows)} ACLs: send up to {ACLS_MAX} at once")
        await request.admin.create_acls([binding_of(row) for row in rows])
        return Reply(None, 201)

    async def delete(self, request: RestRequest) -> Any:
        """The ACLs that the parameters select; an empty selection would be all of them."""
        cluster = await self._ids.of_path(request)
        given = request.http.query_params
        for name in ("resource_type", "pattern_type", "operation", "permission"):
            if not given.get(name):
                raise bad_request(f"{name} is missing: a deletion names what goes")
        found = await request.admin.delete_acls([filter_of(given)])
        return {"data": [_acl(cluster, acl) for acl in found]}


def filter_of(given: Mapping[str, str]) -> AclFilter:
    """The filter of query parameters. Raises GatewayError (400)."""
    return AclFilter(
        _code(ResourceType, given.get("resource_type") or "ANY", "resource_type"),
        given.get("resource_name") or None,
        _code(PatternType, given.get("pattern_type") or "ANY", "pattern_type"),
        given.get("principal") or None,
        given.get("host") or None,
        _code(Operation, given.get("operation") or "ANY", "operation"),
        _code(PermissionType, given.get("permission") or "ANY", "permission"),
    )


def binding_of(row: Document) -> AclBinding:
    """The ACL of a body. Raises GatewayError."""
    return AclBinding(
        _code(ResourceType, row.text("resource_type"), "resource_type"),
        row.text("resource_name"),
        _code(PatternType, row.text("pattern_type"), "pattern_type"),
        row.text("principal"),
        row.text("host"),
        _code(Operation, row.text("operation"), "operation"),
        _code(PermissionType, row.text("permission"), "permission"),
    )


def _code(kind: type[E], text: str, name: str) -> E:
    found = kind.__members__.get(text.upper())
    if found is None:
        names = ", ".join(kind.__members__)
        raise GatewayError(400, 400, f"{name} is {shown(text)}: give one of {names}")
    return found


def _acl(cluster: Cluster, acl: AclBinding) -> Row:
    fields = {
        "resource_type": acl.resource_type.name,
        "resource_name": acl.name,
        "pattern_type": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }
    address = f"{cluster.url('acls')}?{urlencode(fields)}"
    name = f"acl?{urlencode(fields)}"
    return cluster.resource("KafkaAcl", address, name, fields)
