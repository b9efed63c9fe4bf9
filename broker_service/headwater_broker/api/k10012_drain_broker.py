"""DrainBroker: a controlled shutdown of this broker, which hands its leaderships over first."""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k10012_drain_broker import DrainBrokerRequest, DrainBrokerResponse
from headwater_broker.api.admin.forwarding import require_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(DrainBrokerRequest, DrainBrokerResponse)
def drain_broker(ctx: RequestContext, request: DrainBrokerRequest) -> DrainBrokerResponse:
    """ClusterAction on the cluster, as Kafka's ControlledShutdown."""
    try:
        require_on_cluster(ctx, Operation.CLUSTER_ACTION)
    except KafkaError as error:
        return DrainBrokerResponse(error_code=error.code, error_message=error.detail)
    ctx.controls.stop(f"request of {ctx.principal.kind}:{ctx.principal.name}")
    return DrainBrokerResponse()
