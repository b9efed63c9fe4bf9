"""ShareFetch, versions 1 and 2: records for a member of a share group (KIP-932).

Records are locked for the member, which acknowledges them with a later ShareFetch or with
ShareAcknowledge. Whole record batches are sent as they are stored; `acquired_records` names the
offsets in them that were acquired. Version 2: record-limit mode (KIP-1206), renewed locks
(KIP-1222).
"""

from __future__ import annotations

from headwater.wire.apis.k78_share_fetch import ShareFetchRequest, ShareFetchResponse
from headwater.wire.schema import decoder
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import handles_raw
from headwater_broker.api.replies import Answer
from headwater_broker.api.share.delayed_share_fetch import DelayedShareFetch
from headwater_broker.api.share.response_codec import with_throttle_time
from headwater_broker.quota.client_quotas import RequestQuota


@handles_raw(
    ShareFetchRequest, ShareFetchResponse, versions=(1, 2), with_throttle_time=with_throttle_time
)
def share_fetch(
    peer: Peer, view: memoryview, at: int, end: int, version: int, correlation_id: int,
    quota: RequestQuota | None = None,
) -> Answer:  # fmt: skip
    """Answer at once when there are records, an error, or no time to wait; park otherwise."""
    request, _ = decoder(ShareFetchRequest, version)(memoryview(bytes(view[at:end])), 0)
    shares = peer.services.shares
    return DelayedShareFetch(peer, shares, request, version, correlation_id, quota).start()
