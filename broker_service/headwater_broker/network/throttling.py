"""Requests while client quotas are set: measure, tell throttle_time_ms, read no more (KIP-219).

Time is that of handlers on the broker's one loop, without what they await. Connections of brokers
are exempt: those that fetch, or ask for offsets, as a replica.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.schema import Message, decode, encode
from headwater_broker.api.admin.forwarding import CLUSTER
from headwater_broker.api.fetch_quota import LimitedFetch, tell_fetch
from headwater_broker.api.k00_produce import FLEXIBLE as PRODUCE_FLEXIBLE
from headwater_broker.api.k01_fetch import fetch
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import ApiRow
from headwater_broker.api.replies import Answer, ParkedReply, Part
from headwater_broker.quota.client_quotas import Budget

PRODUCE, FETCH = 0, 1
REPLICA_ID_FIRST = {2: 0, 23: 3}
"""API key -> first version whose body begins with the replica id: ListOffsets,
OffsetForLeaderEpoch."""

_INT32 = struct.Struct(">i")


def handle_raw(
    peer: Peer, row: ApiRow, view: memoryview, body: int, end: int, version: int,
    correlation_id: int, request_bytes: int,
) -> Answer:  # fmt: skip
    """Run Produce or Fetch, and charge the client for it."""
    clock = peer.services.clock
    budget = peer.services.quotas.of(peer.session.principal.name, peer.client_id)
    delay_ms = 0
    started = clock.monotonic()
    if row.key == FETCH:
        answer: Answer = fetch(peer, view, body, end, version, correlation_id, LimitedFetch)
    else:
        assert row.raw is not None
        answer = row.raw(peer, view, body, end, version, correlation_id)
        if row.key == PRODUCE and budget.produce is not None:
            delay_ms = budget.produce.record(request_bytes)
    delay_ms = max(delay_ms, _request_delay_ms(peer, budget, clock.monotonic() - started))
    if not delay_ms:
        return answer
    peer.mute(delay_ms)
    return _told(answer, row, version, delay_ms)


def charge(peer: Peer, response: Message, spent_s: float) -> Message:
    """Charge the client for a general request; the response that tells it to wait."""
    budget = peer.services.quotas.of(peer.session.principal.name, peer.client_id)
    delay_ms = _request_delay_ms(peer, budget, spent_s)
    if not delay_ms:
        return response
    peer.mute(delay_ms)
    if not hasattr(response, "throttle_time_ms"):
        return response
    return dataclasses.replace(_any(response), throttle_time_ms=delay_ms)  # type: ignore[no-any-return]


def asks_as_replica(peer: Peer, key: int, version: int, frame: memoryview, body: int) -> bool:
    """True for a general request that a broker sends, and may."""
    if version < REPLICA_ID_FIRST.get(key, version + 1) or len(frame) < body + 4:
        return False
    return int(_INT32.unpack_from(frame, body)[0]) >= 0 and peer.session.allows(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER
    )


def _request_delay_ms(peer: Peer, budget: Budget, spent_s: float) -> int:
    if budget.request is None or peer.is_exempt:
        return 0
    return budget.request.record(100 * spent_s)


def _told(answer: Answer, row: ApiRow, version: int, delay_ms: int) -> Answer:
    if answer is None:
        return None

    def tell(parts: Sequence[Part]) -> Sequence[Part]:
        if not parts:
            return parts
        if row.key == FETCH:
            return tell_fetch(parts, version, delay_ms)
        return [_tell_produce(_joined(parts), row, version, delay_ms)]

    if isinstance(answer, ParkedReply):
        answer.amend(tell)
        return answer
    return _joined(tell([answer])) if isinstance(answer, bytes) else list(tell(answer))


def _joined(parts: Sequence[Part]) -> bytes:
    return b"".join(part for part in parts if isinstance(part, bytes))


def _tell_produce(data: bytes, row: ApiRow, version: int, delay_ms: int) -> bytes:
    """The field lies behind the rows: read and written anew."""
    at = 9 if version >= PRODUCE_FLEXIBLE else 8
    response = decode(row.response, version, data[at:])
    body = encode(dataclasses.replace(_any(response), throttle_time_ms=delay_ms), version)
    return data[:at] + body


def _any(value: Any) -> Any:
    return value
