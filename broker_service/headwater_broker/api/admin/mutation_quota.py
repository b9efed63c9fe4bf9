"""The quota of topic changes in CreateTopics, CreatePartitions and DeleteTopics (KIP-599).

Kafka's controller measures it; here each broker does, as it does client quotas of bytes.
"""

from __future__ import annotations

from headwater_broker.api.context import RequestContext
from headwater_broker.quota.controller_mutation import MutationQuota

STRICT_SINCE = {19: 6, 20: 5, 37: 3}
"""API key -> the first version whose clients know THROTTLING_QUOTA_EXCEEDED."""
EXCEEDED = "the quota controller_mutation_rate is exceeded: try again after the throttle time"


def mutation_quota(ctx: RequestContext, key: int) -> MutationQuota:
    """The quota of the client that sent this request."""
    return ctx.broker.quotas.mutations_of(
        ctx.principal.name, ctx.client_id or "", is_strict=ctx.api_version >= STRICT_SINCE[key]
    )
