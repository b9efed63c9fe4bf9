"""The overview: is the cluster well, and what needs someone's eye."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.client.values import GroupListing, TopicDescription
from headwater.errors import HeadwaterError
from headwater_gateway.console.addresses import address
from headwater_gateway.console.lag.sampler import BRIEF_WAIT_S
from headwater_gateway.console.lag.verdict import Finding, Verdict
from headwater_gateway.console.shell import Shell

TROUBLES_MAX = 20
BLOCKERS_WAIT_S = 0.1


class Trouble(NamedTuple):
    """Something that needs someone's eye."""

    tone: str
    word: str
    name: str
    link: str
    why: str


def routes(shell: Shell) -> list[Route]:
    """The route of this view."""
    return [shell.view("/", Overview(shell).show)]


class Overview:
    """The page."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def show(self, request: Request) -> Response:
        """Figures and troubles."""
        admin = self._shell.clients(request).admin
        blockers_key = (request.state.login, "blockers", "")
        cluster, topics, groups, blockers = await asyncio.gather(
            admin.describe_cluster(),
            admin.describe_topics(),
            admin.list_groups(),
            self._shell.snapshots.get(
                blockers_key, admin.transaction_blockers, wait_s=BLOCKERS_WAIT_S
            ),
        )
        troubles = [
            *_of_topics(topics.values()),
            *_of_blockers(blockers or []),
            *await self._of_groups(request, groups),
        ]
        if cluster.controller_id < 0:
            found = Trouble(
                "bad", "no controller", "cluster", address("brokers"), "none is elected"
            )
            troubles.insert(0, found)
        partitions = [p for t in topics.values() for p in t.partitions]
        return self._shell.page(
            request,
            "overview.html",
            cluster=cluster,
            topics=topics,
            groups=groups,
            partitions=len(partitions),
            leaderless=sum(p.leader < 0 for p in partitions),
            under_replicated=sum(len(p.isr) < len(p.replicas) for p in partitions),
            troubles=troubles[:TROUBLES_MAX],
            left_out=max(0, len(troubles) - TROUBLES_MAX),
        )

    async def _of_groups(self, request: Request, groups: list[GroupListing]) -> list[Trouble]:
        if not groups:
            return []
        try:
            samples = await self._shell.sampler.of(request.state.login, wait_s=BRIEF_WAIT_S)
        except HeadwaterError:
            return []  # the page of the groups says why
        found = [(name, window.worst()) for name, window in sorted(samples.windows.items())]
        bad = [(name, it) for name, it in found if it and it.verdict is not Verdict.FINE]
        return [_of_group(name, it) for name, it in sorted(bad, key=lambda row: row[1].verdict)]


def _of_group(name: str, finding: Finding) -> Trouble:
    is_bad = finding.verdict in (Verdict.GONE, Verdict.LOST, Verdict.BLOCKED, Verdict.STUCK)
    link = address("group", id=name)
    return Trouble("bad" if is_bad else "warn", finding.verdict.name, name, link, finding.reason)


def _of_topics(topics: Any) -> list[Trouble]:
    found = []
    for topic in topics:
        leaderless, behind = _ill(topic)
        link = address("topics", topic.name)
        if leaderless:
            why = f"{leaderless} of {len(topic.partitions)} partitions"
            found.append(Trouble("bad", "no leader", topic.name, link, why))
        elif behind:
            why = f"{behind} of {len(topic.partitions)} partitions"
            found.append(Trouble("warn", "under-replicated", topic.name, link, why))
    return sorted(found)


def _ill(topic: TopicDescription) -> tuple[int, int]:
    return (
        sum(p.leader < 0 for p in topic.partitions),
        sum(len(p.isr) < len(p.replicas) for p in topic.partitions),
    )


def _of_blockers(blockers: list[Any]) -> list[Trouble]:
    return [
        Trouble(
            "bad" if b.is_hanging or b.marker_failure else "warn",
            "open transaction",
            b.transactional_id or f"producer {b.producer_id}",
            address("transactions", topic=b.topic),
            f"holds {b.high_watermark - b.last_stable_offset} records of {b.topic}-{b.partition}",
        )
        for b in blockers
    ]
