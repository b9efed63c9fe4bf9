"""REST as a part of the gateway: v2 and v3 of Kafka's REST proxy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.routing import BaseRoute

from headwater_gateway.app.parts import Face, GatewaySettings, Services
from headwater_gateway.registry.clients import SchemaRegistry
from headwater_gateway.rest.consumers import Consumers
from headwater_gateway.rest.endpoints import JSON, V2, RestRequest, Routes
from headwater_gateway.rest.schemas import Codecs
from headwater_gateway.rest.sending import Sender
from headwater_gateway.rest.v2_consumers import Consuming
from headwater_gateway.rest.v2_produce import Producing
from headwater_gateway.rest.v2_topics import topic_routes
from headwater_gateway.rest.v3_acls import Acls
from headwater_gateway.rest.v3_clusters import Clusters
from headwater_gateway.rest.v3_configs import Configs
from headwater_gateway.rest.v3_groups import Groups
from headwater_gateway.rest.v3_records import Records
from headwater_gateway.rest.v3_resources import PREFIXES, ClusterIds
from headwater_gateway.rest.v3_topics import Topics


class _Running:
    """What the routes use while the gateway runs."""

    def __init__(self, services: Services, registry: SchemaRegistry) -> None:
        settings = services.settings
        self.services = services
        self.codecs = Codecs(registry, services.clock)
        self.sender = Sender(services.clock)
        self.consumers = Consumers(
            services.clock, per_login=settings.consumers_max, idle_s=settings.consumer_idle_s
        )


class RestPart:
    """The part."""

    name = "rest"
    face = Face.API

    def __init__(self, settings: GatewaySettings, registry: SchemaRegistry) -> None:
        self._writes = not settings.is_read_only
        self._registry = registry
        self._state: _Running | None = None

    @property
    def _running(self) -> _Running:
        assert self._state is not None, "routes are called between start and close"
        return self._state

    async def start(self, services: Services) -> None:
        """See the port."""
        self._state = _Running(services, self._registry)
        self._state.consumers.start()

    def end_idle_consumers(self) -> None:
        """End the consumers without a request of late; it happens by itself each second."""
        self._running.consumers.end_idle()

    async def close(self) -> None:
        """The consumers leave their groups."""
        if self._state is not None:
            await self._state.consumers.close()

    def routes(self) -> Sequence[BaseRoute]:
        """See the port."""
        return [*self._v2(), *self._v3()]

    def _v2(self) -> Sequence[BaseRoute]:
        routes = Routes(lambda: self._running.services, V2, writes=self._writes)
        routes.read("/", root)
        topic_routes(routes)
        Producing(lambda: self._running.sender, lambda: self._running.codecs).add_to(routes)
        Consuming(
            lambda: self._running.consumers,
            lambda: self._running.codecs,
            lambda: self._running.services.entropy,
        ).add_to(routes)
        return routes.rows

    def _v3(self) -> Sequence[BaseRoute]:
        routes = Routes(lambda: self._running.services, JSON, writes=self._writes)
        ids = ClusterIds()
        for prefix in PREFIXES:
            Clusters(ids).add_to(routes, prefix)
            Topics(ids).add_to(routes, prefix)
            Configs(ids).add_to(routes, prefix)
            Acls(ids).add_to(routes, prefix)
            Groups(ids).add_to(routes, prefix)
            Records(ids, lambda: self._running.sender, lambda: self._running.codecs).add_to(
                routes, prefix
            )
        return routes.rows


async def root(request: RestRequest) -> Any:
    """That there is something."""
    return {}
