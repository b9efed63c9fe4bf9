"""The page of completeness: produced against consumed, tiered, mirrored, by topic and minute.

Counting every record is a job of its own (`headwater audit --every 60 --to`): this reads its topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.client.values import ConsumerRecord
from headwater_gateway.console.completeness.report import Minute, Report, report_of
from headwater_gateway.console.listing import Column, listing
from headwater_gateway.console.messages.address import Address
from headwater_gateway.console.messages.browser import Browser, Viewer
from headwater_gateway.console.shell import Shell, is_part
from headwater_gateway.console.shown import moment
from headwater_tier.audit.report_topic import REPORT_TOPIC

OFFSETS_READ = 30_000
"""The newest ones; a minute is written about once for each look while it is open."""
FRESH_S = 15.0
WAIT_S = 5.0
REPORT = "report"
COLUMNS = (
    Column("state", "State", lambda r: (r.state, -r.minute_ms)),
    Column("minute", "Minute (UTC)", lambda r: -r.minute_ms),
    Column("topic", "Topic", lambda r: r.topic),
    Column("produced", "Produced", lambda r: r.produced, is_number=True),
)


def routes(shell: Shell, browser: Callable[[], Browser]) -> list[BaseRoute]:
    """The route of this view. `browser`: gives the Browser of a running console."""
    return [shell.view("/completeness", CompletenessPage(shell, browser).show)]


class CompletenessPage:
    """The minutes of a report topic."""

    def __init__(self, shell: Shell, browser: Callable[[], Browser]) -> None:
        self._shell = shell
        self._browser = browser

    async def show(self, request: Request) -> Response:
        """The minutes that differ first; without a report the command that writes one."""
        name = request.query_params.get(REPORT) or REPORT_TOPIC
        query = {k: request.query_params.get(k, "") for k in (REPORT, "q", "sort")}
        report, is_there = Report((), (), 0), True
        try:
            report = await self._report(request, name) or report
        except UnknownTopicOrPartitionError:
            is_there = False
        found = listing(
            ("completeness",), query, report.minutes, COLUMNS, _words, is_whole=is_part(request)
        )
        return self._shell.page(
            request,
            "completeness/completeness.html",
            list=found,
            report=report,
            name=name,
            is_there=is_there,
        )

    async def _report(self, request: Request, name: str) -> Report | None:
        login, clients = request.state.login, self._shell.clients(request)
        await clients.admin.describe_topics([name], patient=False)  # raises where it is not there

        async def load() -> Report:
            viewer, records = Viewer(login, clients, name), list[ConsumerRecord]()
            async for some in self._browser().newest_records(viewer, Address(), OFFSETS_READ):
                records += some
            return await asyncio.to_thread(report_of, records)

        key = (login, "completeness", name)
        return await self._shell.snapshots.get(key, load, fresh_s=FRESH_S, wait_s=WAIT_S)


def _words(row: Minute) -> str:
    places = [count.place for count in row.counts]
    return " ".join([row.topic, row.state.text, moment(row.minute_ms), *places])
