"""ConsumerGroupHeartbeat: refused. Consumer groups of KIP-848 are not served yet.

The key is advertised so that a consumer with `group.protocol=consumer` fails at once: librdkafka
waits for ever where the key is missing. No client uses the key by default.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles

REFUSAL = "this broker serves the classic group protocol only: set group.protocol=classic"


@handles(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse)
def consumer_group_heartbeat(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """UNSUPPORTED_VERSION, which is fatal to consumers."""
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, REFUSAL)
