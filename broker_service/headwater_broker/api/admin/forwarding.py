"""Forwarding of admin requests to the controller (KIP-590), and waits for their effect here.

Handlers check the rights; the controller checks everything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import CLUSTER_NAME
from headwater.wire.schema import Message, decode, encode
from headwater_broker.api.context import RequestContext, Services
from headwater_broker.metadata.cache import MetadataDelta

M = TypeVar("M", bound=Message)

FORWARD_MARGIN_MS = 5_000
"""How much longer than the client's own timeout the controller's response is awaited."""
FORWARD_TIMEOUT_MIN_MS = 15_000


async def forward(ctx: RequestContext, request: Message, reply: type[M], timeout_ms: int) -> M:
    """Send `request` to the controller; its response. Raises KafkaError(REQUEST_TIMED_OUT).

    A controller election in between delays the response, but does not fail it.
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
    """`forward` a change; with a timeout of 0 or less nothing is changed, as in KRaft.

    Raises KafkaError(REQUEST_TIMED_OUT).
    """
    if timeout_ms <= 0:
        text = f"timeout_ms is {timeout_ms}: nothing was changed"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
    return await forward(ctx, request, reply, timeout_ms)


def may_on_cluster(ctx: RequestContext, operation: Operation) -> bool:
    """True when the principal has this right on the cluster."""
    return ctx.allowed(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def require_on_cluster(ctx: RequestContext, operation: Operation) -> None:
    """Raises KafkaError(CLUSTER_AUTHORIZATION_FAILED)."""
    if not may_on_cluster(ctx, operation):
        text = f"no {operation.name} on the cluster"
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)


def may_on_topic(ctx: RequestContext, operation: Operation, topic: str) -> bool:
    """True when the principal has this right on the topic."""
    return ctx.allowed(operation, ResourceType.TOPIC, topic)


async def await_view(services: Services, holds: Callable[[], bool], timeout_ms: int) -> bool:
    """Wait until `holds` is true of this broker's metadata; False after `timeout_ms`."""
    if holds():
        return True
    loop = asyncio.get_running_loop()
    seen: asyncio.Future[None] = loop.create_future()

    def check(_change: MetadataDelta) -> None:
        if not seen.done() and holds():
            seen.set_result(None)

    services.view.on_change.append(check)
    try:
        await asyncio.sleep(0)  # `wait_for` needs a task (`runtime.first_step`)
        await asyncio.wait_for(seen, max(timeout_ms, 0) / 1000)
    except TimeoutError:
        return False
    finally:
        services.view.on_change.remove(check)
    return True


async def topics_without_leaders(
    services: Services, wanted: Mapping[str, int], timeout_ms: int
) -> list[str]:
    """Wait until this broker knows the leaders of so many partitions of each topic: clients ask it
    for metadata next. Returns the topics whose leaders it does not know after `timeout_ms`."""
    if await await_view(services, lambda: have_leaders(services, wanted.items()), timeout_ms):
        return []
    return [t for t, count in wanted.items() if not have_leaders(services, [(t, count)])]


def ms_left(services: Services, began_s: float, timeout_ms: int) -> int:
    """The time left of a client's timeout. `began_s`: monotonic time of its request."""
    return timeout_ms - int((services.clock.monotonic() - began_s) * 1000)


def have_leaders(services: Services, topics: Iterable[tuple[str, int]]) -> bool:
    """True when each (topic, partition count) is known, each partition with a leader or the reason
    why it has none."""
    for name, count in topics:
        view = services.view.topics.get(name)
        if view is None or len(view.partitions) < count:
            return False
        if any(p.leader_id < 0 and not p.offline_reason for p in view.partitions.values()):
            return False
    return True
