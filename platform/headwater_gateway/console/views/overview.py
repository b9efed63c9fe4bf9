"""The overview: the cluster at a glance."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater_gateway.console.shell import Shell


def routes(shell: Shell) -> list[Route]:
    """The routes of this view."""

    async def show(request: Request) -> Response:
        admin = shell.clients(request).admin
        cluster, topics, groups = await asyncio.gather(
            admin.describe_cluster(), admin.describe_topics(), admin.list_groups()
        )
        partitions = [p for t in topics.values() for p in t.partitions]
        return shell.page(
            request,
            "overview.html",
            cluster=cluster,
            topics=topics,
            groups=groups,
            partitions=partitions,
            leaderless=[p for p in partitions if p.leader < 0],
            under_replicated=[p for p in partitions if len(p.isr) < len(p.replicas)],
        )

    return [shell.view("/", show)]
