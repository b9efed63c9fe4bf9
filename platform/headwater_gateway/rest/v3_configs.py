"""v3: configs of topics, of brokers, and the cluster-wide defaults of brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from headwater.client.admin.client import ResourceType
from headwater.client.values import ConfigEntry
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest.documents import Document, shown
from headwater_gateway.rest.endpoints import RestRequest, Routes
from headwater_gateway.rest.v3_clusters import CLUSTER, live_broker
from headwater_gateway.rest.v3_resources import Cluster, ClusterIds, Row, one_named
from headwater_gateway.rest.v3_topics import TOPIC, described

CLUSTER_WIDE = ""
"""The name of the resource that holds the defaults of all brokers."""


@dataclass(frozen=True, slots=True)
class Holder:
    """What has configs."""

    kind: str
    """Of its configs, as `KafkaTopicConfig`."""
    resource_type: ResourceType
    name: str
    path: tuple[object, ...]
    """Of its configs, below the cluster."""
    crn: str
    fields: dict[str, Any]


Find = Callable[[RestRequest], Awaitable[Holder]]
"""The holder of the path. Raises GatewayError, KafkaError."""


class Configs:
    """The routes of configs."""

    def __init__(self, ids: ClusterIds) -> None:
        self._ids = ids

    def add_to(self, routes: Routes, prefix: str) -> None:
        """Add the routes under `prefix`."""
        holders: tuple[tuple[str, Find], ...] = (
            (f"{prefix}{TOPIC}/configs", topic_holder),
            (f"{prefix}{CLUSTER}/brokers/{{broker_id}}/configs", broker_holder),
            (f"{prefix}{CLUSTER}/broker-configs", cluster_holder),
        )
        for path, find in holders:
            self._add(routes, path, find)

    def _add(self, routes: Routes, path: str, find: Find) -> None:
        async def listed(request: RestRequest) -> Any:
            cluster = await self._ids.of_path(request)
            holder = await find(request)
            rows = await _rows(request, cluster, holder)
            return cluster.collection(f"{holder.kind}List", cluster.url(*holder.path), rows)

        async def one(request: RestRequest) -> Any:
            cluster = await self._ids.of_path(request)
            holder = await find(request)
            rows = await _rows(request, cluster, holder)
            return one_named(rows, "name", request.part("name"), lambda: _not_found(request))

        async def altered(request: RestRequest) -> Any:
            await self._ids.of_path(request)
            holder = await find(request)
            document = await request.document()
            changes = dict(change_of(row) for row in document.objects("data"))
            validate_only = document.flag("validate_only")
            await request.admin.alter_configs(
                holder.resource_type, holder.name, changes, validate_only=validate_only
            )

        async def put(request: RestRequest) -> Any:
            await self._ids.of_path(request)
            holder = await find(request)
            changes = {request.part("name"): (await request.document()).setting("value")}
            await request.admin.alter_configs(holder.resource_type, holder.name, changes)

        async def reset(request: RestRequest) -> Any:
            await self._ids.of_path(request)
            holder = await find(request)
            changes = {request.part("name"): None}
            await request.admin.alter_configs(holder.resource_type, holder.name, changes)

        routes.read(path, listed)
        routes.write("POST", f"{path}:alter", altered)
        routes.read(f"{path}/{{name}}", one)
        routes.write("PUT", f"{path}/{{name}}", put)
        routes.write("DELETE", f"{path}/{{name}}", reset)


async def topic_holder(request: RestRequest) -> Holder:
    """The topic of the path."""
    name = (await described(request)).name
    path = ("topics", name, "configs")
    return Holder("KafkaTopicConfig", "topic", name, path, f"topic={name}", {"topic_name": name})


async def broker_holder(request: RestRequest) -> Holder:
    """The broker of the path."""
    node = (await live_broker(request)).node_id
    path = ("brokers", node, "configs")
    return Holder(
        "KafkaBrokerConfig", "broker", str(node), path, f"broker={node}", {"broker_id": node}
    )


async def cluster_holder(request: RestRequest) -> Holder:
    """The defaults of all brokers."""
    path = ("broker-configs",)
    fields = {"config_type": "BROKER"}
    return Holder("KafkaClusterConfig", "broker", CLUSTER_WIDE, path, "", fields)


def change_of(row: Document) -> tuple[str, str | None]:
    """A change of one config: its new value, None to reset it. Raises GatewayError (422)."""
    operation = row.text("operation", "SET").upper()
    if operation == "DELETE":
        return row.text("name"), None
    if operation != "SET":
        raise row.wrong("operation", "SET or DELETE")
    return row.text("name"), row.setting("value")


async def _rows(request: RestRequest, cluster: Cluster, holder: Holder) -> list[Row]:
    found = await request.admin.describe_configs(holder.resource_type, holder.name, patient=False)
    return [_config(cluster, holder, entry) for _name, entry in sorted(found.items())]


def _config(cluster: Cluster, holder: Holder, entry: ConfigEntry) -> Row:
    synonyms: list[dict[str, str | None]] = [
        {"name": entry.name, "value": entry.value, "source": entry.source}
    ]
    if not entry.is_default and entry.default is not None:
        synonyms.append({"name": entry.name, "value": entry.default, "source": "DEFAULT_CONFIG"})
    fields = {
        **holder.fields,
        "name": entry.name,
        "value": entry.value,
        "is_default": entry.is_default,
        "is_read_only": entry.read_only,
        "is_sensitive": entry.is_sensitive,
        "source": entry.source,
        "synonyms": synonyms,
    }
    crn = "/".join(filter(None, (holder.crn, f"config={entry.name}")))
    return cluster.resource(holder.kind, cluster.url(*holder.path, entry.name), crn, fields)


def _not_found(request: RestRequest) -> GatewayError:
    return GatewayError(404, 404, f"Config {shown(request.part('name'))} cannot be found.")
