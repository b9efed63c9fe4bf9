"""ShareGroupHeartbeat: refused. Share groups (KIP-932) are not served yet.

The key is advertised so that a share consumer fails at once.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k76_share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles

REFUSAL = "this broker serves no share groups: use a consumer group"


@handles(ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse)
def share_group_heartbeat(
    ctx: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """UNSUPPORTED_VERSION, which is fatal to share consumers."""
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, REFUSAL)
