"""Throttles clients over a quota: sets throttle_time_ms and mutes the connection (KIP-219).

Requests skip it while no client has a quota. Request time is the time that handlers take on the
broker's one loop, without what they await. Connections of brokers are exempt: those that send Fetch
or ListOffsets as a replica.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import CLUSTER_NAME
from headwater.wire.apis.k00_produce import ProduceRequest
from headwater.wire.schema import Message
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import ApiRow
from headwater_broker.api.replies import Answer, ParkedReply
from headwater_broker.quota.client_quotas import RequestQuota

REPLICA_ID_FIRST = {2: 0, 23: 3}
"""API key -> first version whose body begins with the replica id: ListOffsets,
OffsetForLeaderEpoch."""

_INT32 = struct.Struct(">i")


def handle_raw(
    peer: Peer, row: ApiRow, view: memoryview, body: int, end: int, version: int,
    correlation_id: int, request_bytes: int,
) -> Answer:  # fmt: skip
    """Run the raw handler of `row` with the client's quotas, and throttle the client."""
    assert row.raw is not None
    clock, quota = peer.services.clock, _quota_of(peer)
    started = clock.monotonic()
    answer: Answer = row.raw(peer, view, body, end, version, correlation_id, quota)
    spent_s = clock.monotonic() - started
    delay_ms = 0
    if row.key == ProduceRequest.api_key:
        delay_ms = quota.produce_delay_ms(request_bytes)
    if not peer.is_exempt:
        delay_ms = max(delay_ms, quota.request_delay_ms(spent_s))
    if not delay_ms:
        return answer
    peer.mute(delay_ms)
    return _with_throttle_time(answer, row, version, delay_ms)


def charge(peer: Peer, response: Message, spent_s: float) -> Message:
    """Throttle the client for the time of a general request, or as its handler says (KIP-599); the
    response with throttle_time_ms."""
    delay_ms = int(getattr(response, "throttle_time_ms", 0))
    if not peer.is_exempt:
        delay_ms = max(delay_ms, _quota_of(peer).request_delay_ms(spent_s))
    if not delay_ms:
        return response
    peer.mute(delay_ms)
    if not hasattr(response, "throttle_time_ms"):
        return response
    return dataclasses.replace(_any(response), throttle_time_ms=delay_ms)  # type: ignore[no-any-return]


def asks_as_replica(peer: Peer, key: int, version: int, frame: memoryview, body: int) -> bool:
    """True for a general request that a broker sends and has the right to send."""
    if version < REPLICA_ID_FIRST.get(key, version + 1) or len(frame) < body + 4:
        return False
    return int(_INT32.unpack_from(frame, body)[0]) >= 0 and peer.session.allows(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )


def _quota_of(peer: Peer) -> RequestQuota:
    return peer.services.quotas.of(peer.session.principal.name, peer.client_id)


def _with_throttle_time(answer: Answer, row: ApiRow, version: int, delay_ms: int) -> Answer:
    """The answer with this throttle_time_ms; a parked one gets it when it is complete."""
    amend = row.with_throttle_time
    assert amend is not None
    if answer is None:
        return None
    if isinstance(answer, ParkedReply):
        answer.amend(lambda parts: amend(parts, version, delay_ms) if parts else parts)
        return answer
    return amend([answer] if isinstance(answer, bytes) else answer, version, delay_ms)


def _any(value: Any) -> Any:
    return value
