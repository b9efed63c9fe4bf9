"""ListConfigResources: the names of what has configs (KIP-1142).

Topics and brokers are listed all, groups only if they have a config of their own, as in Kafka.
Behaviour: a principal without DESCRIBE_CONFIGS on the cluster gets CLUSTER_AUTHORIZATION_FAILED.
Version 0 (ListClientMetricsResources) asks for client metrics, of which there are none here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from headwater_broker.api.admin.config_authorization import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from headwater_broker.api.admin.forwarding import may_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.metadata.cache import MetadataCache

_NAMES: dict[int, Callable[[MetadataCache], Iterable[str]]] = {
    TOPIC_RESOURCE: lambda view: view.topics,
    BROKER_RESOURCE: lambda view: map(str, view.brokers),
    BROKER_LOGGER_RESOURCE: lambda view: map(str, view.brokers),
    CLIENT_METRICS_RESOURCE: lambda view: (),
    GROUP_RESOURCE: lambda view: view.group_configs,
}


@handles(ListConfigResourcesRequest, ListConfigResourcesResponse)
def list_config_resources(
    ctx: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """The resources of the types that are asked for; none asked for: of all types."""
    if not may_on_cluster(ctx, Operation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = (CLIENT_METRICS_RESOURCE,) if ctx.api_version == 0 else request.resource_types
    kinds = sorted(set(asked)) if asked else sorted(_NAMES)
    if any(kind not in _NAMES for kind in kinds):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in kinds
            for name in sorted(_NAMES[kind](ctx.broker.view))
        ),
    )
