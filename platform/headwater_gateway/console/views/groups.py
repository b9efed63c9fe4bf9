"""The groups: state, members, lag and why they lag."""

from __future__ import annotations

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from headwater.client.errors import GroupIdNotFoundError, kafka_error
from headwater.client.values import GroupDescription, GroupListing
from headwater.errors import ErrorCode
from headwater_gateway.console.addresses import address
from headwater_gateway.console.lag.sampler import GroupSamples
from headwater_gateway.console.lag.verdict import Finding
from headwater_gateway.console.lag.window import GroupWindow
from headwater_gateway.console.listing import Column, listing
from headwater_gateway.console.shell import Shell, is_part
from headwater_gateway.console.views.group_writes import GroupWrites

SERIES_MAX = 5
DEAD = "Dead"


class Row(NamedTuple):
    """A group in the list."""

    name: str
    state: str
    kind: str
    members: int | None
    topics: list[str]
    lag: int | None
    finding: Finding | None
    window: GroupWindow | None

    @property
    def rank(self) -> int:
        """Of the verdict; groups without one last."""
        return 99 if self.finding is None else int(self.finding.verdict)

    @property
    def trend(self) -> list[int]:
        """The lag at each sample."""
        return [] if self.window is None else self.window.totals()


COLUMNS = (
    Column("name", "Group", lambda r: r.name),
    Column("verdict", "Verdict", lambda r: r.rank),
    Column("state", "State", lambda r: r.state),
    Column("members", "Members", lambda r: r.members, is_number=True),
    Column("lag", "Lag", lambda r: r.lag, is_number=True),
)


def routes(shell: Shell) -> list[Route]:
    """The routes of these views."""
    pages = GroupPages(shell)
    return [
        shell.view("/groups", pages.show_all),
        shell.view("/group", pages.show),
        shell.view("/groups/{name:path}", pages.of_name),
        shell.view("/group/lag.json", pages.trend),
        *GroupWrites(shell).routes(),
    ]


class GroupPages:
    """The list, one group, and the series of its chart."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def _samples(self, request: Request) -> GroupSamples:
        return await self._shell.sampler.of(request.state.login)

    async def show_all(self, request: Request) -> Response:
        """All groups."""
        samples = await self._samples(request)
        rows = [_row(listed, samples) for listed in samples.listings]
        query = {k: request.query_params.get(k, "") for k in ("q", "sort")}
        found = listing(
            ("groups",),
            query,
            rows,
            COLUMNS,
            lambda r: " ".join([r.name, r.state, *r.topics]),
            is_whole=is_part(request),
        )
        return self._shell.page(request, "groups.html", list=found, samples=samples)

    async def of_name(self, request: Request) -> Response:
        """`/groups/NAME`, which people write: its page has the name in the query."""
        return RedirectResponse(address("group", id=request.path_params["name"]), 307)

    async def show(self, request: Request) -> Response:
        """One group."""
        name = request.query_params.get("id", "")
        samples = await self._samples(request)
        group = samples.groups.get(name) or await self._described(request, name)
        window = samples.windows.get(name, GroupWindow())
        return self._shell.page(
            request,
            "group.html",
            group=group,
            partitions=window.partitions(),
            finding=window.worst(),
            lag=window.lag,
            sample_count=window.sample_count,
            problem=samples.problem,
        )

    async def _described(self, request: Request, name: str) -> GroupDescription:
        if not name:
            raise _no_group(name)
        found = await self._shell.clients(request).admin.describe_groups([name])
        group: GroupDescription = found[name]
        if group.state == DEAD:
            raise _no_group(name)
        return group

    async def trend(self, request: Request) -> Response:
        """The lag over the window, by topic: the largest ones."""
        samples = await self._samples(request)
        window = samples.windows.get(request.query_params.get("id", ""), GroupWindow())
        trend = window.trend()
        rows = sorted(trend.by_topic.items(), key=lambda r: max(v or 0 for v in r[1]))
        series = [{"label": topic, "values": values} for topic, values in rows[::-1][:SERIES_MAX]]
        return JSONResponse({"times": trend.times_s, "series": series})


def _row(listed: GroupListing, samples: GroupSamples) -> Row:
    name = listed.group_id
    group, window = samples.groups.get(name), samples.windows.get(name)
    if group is None or window is None:
        return Row(name, listed.state, listed.group_type, None, [], None, None, None)
    partitions = window.partitions()
    topics = sorted({row.partition.topic for row in partitions})
    finding = window.worst()
    members = len(group.members)
    return Row(name, group.state, listed.group_type, members, topics, window.lag, finding, window)


def _no_group(name: str) -> GroupIdNotFoundError:
    problem = (
        f"there is no group {name!r}: it has neither members nor committed offsets. Groups, on the "
        "left, lists those that are there"
    )
    error = kafka_error(ErrorCode.GROUP_ID_NOT_FOUND, problem)
    assert isinstance(error, GroupIdNotFoundError)
    return error
