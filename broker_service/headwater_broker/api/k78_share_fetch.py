"""ShareFetch: refused, as `k76_share_group_heartbeat` is."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k78_share_fetch import ShareFetchRequest, ShareFetchResponse
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles

REFUSAL = "this broker serves no share fetches yet"


@handles(ShareFetchRequest, ShareFetchResponse)
def share_fetch(ctx: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse:
    """UNSUPPORTED_VERSION."""
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, REFUSAL)
