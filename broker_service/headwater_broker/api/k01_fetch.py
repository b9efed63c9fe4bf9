"""Fetch, versions 4 to 18: a fast path for consumers' plain fetches, `DelayedFetch` for the rest.

The request is parsed in place and the response written by struct: no codec.
"""

from __future__ import annotations

from headwater.wire.apis.k01_fetch import FetchRequest, FetchResponse
from headwater_broker.api.fetch.delayed_fetch import DelayedFetch
from headwater_broker.api.fetch.fast_path import answer_plain
from headwater_broker.api.fetch.request_codec import FetchFrame, parse_fetch, parse_plain
from headwater_broker.api.fetch.response_codec import with_throttle_time
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import handles_raw
from headwater_broker.api.replies import Answer
from headwater_broker.quota.client_quotas import RequestQuota


@handles_raw(FetchRequest, FetchResponse, versions=(4, 18), with_throttle_time=with_throttle_time)
def fetch(
    peer: Peer, view: memoryview, at: int, end: int, version: int, correlation_id: int,
    quota: RequestQuota | None = None,
) -> Answer:  # fmt: skip
    """Answer at once when there is enough, an error, or no time to wait; park otherwise."""
    plain = parse_plain(view, at, end, version) if quota is None else None
    answer = None if plain is None else answer_plain(peer, plain, version, correlation_id)
    if answer is not None:
        return answer
    frame = parse_fetch(view[:end], at, end, version) if plain is None else FetchFrame.of(plain)
    return DelayedFetch(peer, frame, version, correlation_id, quota).start()
