"""BrokerStatus: readiness and the status document of this broker."""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k10009_broker_status import BrokerStatusRequest, BrokerStatusResponse
from headwater_broker.api.admin.forwarding import require_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(BrokerStatusRequest, BrokerStatusResponse)
async def broker_status(ctx: RequestContext, request: BrokerStatusRequest) -> BrokerStatusResponse:
    """Describe on the cluster."""
    try:
        require_on_cluster(ctx, Operation.DESCRIBE)
    except KafkaError as error:
        return BrokerStatusResponse(error_code=error.code, error_message=error.detail)
    controls = ctx.controls
    return BrokerStatusResponse(
        ready=controls.is_ready(),
        broker_id=ctx.broker.broker_id,
        document=await controls.status(),
    )
