"""Admin requests go to the controller (KIP-590); what clients see then is awaited here.

The handler has asked the authorizer; the controller decides on the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.schema import Message, decode, encode
from headwater_broker.api.context import RequestContext, Services
from headwater_broker.metadata.cache import MetadataDelta

M = TypeVar("M", bound=Message)

CLUSTER = "kafka-cluster"
FORWARD_MARGIN_MS = 5_000
"""How much longer than the client's own timeout an answer of the controller is awaited."""
FORWARD_TIMEOUT_MIN_MS = 15_000


async def forward(ctx: RequestContext, request: Message, reply: type[M], timeout_ms: int) -> M:
    """Have the controller run `request`; its reply. Raises KafkaError(REQUEST_TIMED_OUT).

    An election of a controller meanwhile delays the answer, it does not fail it.
    """
    body = encode(request, ctx.api_version)
    limit = max(timeout_ms + FORWARD_MARGIN_MS, FORWARD_TIMEOUT_MIN_MS)
    principal = f"{ctx.principal.kind}:{ctx.principal.name}"
    answer = await ctx.broker.controller.forward(
        request.api_key, ctx.api_version, body, principal, limit
    )
    return decode(reply, ctx.api_version, answer)


async def forward_in_time(
    ctx: RequestContext, request: Message, reply: type[M], timeout_ms: int
) -> M:
    """As `forward`, of a change: without any time for it nothing is changed, as in KRaft.

    Raises KafkaError(REQUEST_TIMED_OUT).
    """
    if timeout_ms <= 0:
        text = f"timeout_ms is {timeout_ms}: nothing was done"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
    return await forward(ctx, request, reply, timeout_ms)


def may_on_cluster(ctx: RequestContext, operation: Operation) -> bool:
    """Ask for a right on the cluster itself."""
    return ctx.allowed(operation, ResourceType.CLUSTER, CLUSTER)


def require_on_cluster(ctx: RequestContext, operation: Operation) -> None:
    """Raises KafkaError(CLUSTER_AUTHORIZATION_FAILED)."""
    if not may_on_cluster(ctx, operation):
        text = f"no {operation.name} on the cluster"
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)


def may_on_topic(ctx: RequestContext, operation: Operation, topic: str) -> bool:
    """Ask for a right on one topic."""
    return ctx.allowed(operation, ResourceType.TOPIC, topic)


async def await_view(services: Services, holds: Callable[[], bool], timeout_ms: int) -> bool:
    """Wait until this broker's own view shows it; False when the time is over."""
    if holds():
        return True
    loop = asyncio.get_running_loop()
    shown: asyncio.Future[None] = loop.create_future()

    def look(_change: MetadataDelta) -> None:
        if not shown.done() and holds():
            shown.set_result(None)

    services.view.on_change.append(look)
    try:
        await asyncio.wait_for(shown, max(timeout_ms, 0) / 1000)
    except TimeoutError:
        return False
    finally:
        services.view.on_change.remove(look)
    return True


async def unseen_leaders(
    services: Services, wanted: Mapping[str, int], timeout_ms: int
) -> list[str]:
    """Clients ask this broker for metadata next: wait until it knows the leaders of this many
    partitions of each topic. The topics of which it does not when the time is over."""
    if await await_view(services, lambda: have_leaders(services, wanted.items()), timeout_ms):
        return []
    return [t for t, count in wanted.items() if not have_leaders(services, [(t, count)])]


def ms_left(services: Services, began_s: float, timeout_ms: int) -> int:
    """Of a client's timeout, for what it shall see after the forward. `began_s`: monotonic."""
    return timeout_ms - int((services.clock.monotonic() - began_s) * 1000)


def have_leaders(services: Services, topics: Iterable[tuple[str, int]]) -> bool:
    """Every (topic, partitions) is in the view, each partition with a leader or a reason."""
    for name, count in topics:
        view = services.view.topics.get(name)
        if view is None or len(view.partitions) < count:
            return False
        if any(p.leader_id < 0 and not p.offline_reason for p in view.partitions.values()):
            return False
    return True
