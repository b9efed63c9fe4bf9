"""The history of a topic: the versions of its Delta table, and jumps between them and offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from headwater.errors import UsageError
from headwater_gateway.console.addresses import address
from headwater_gateway.console.fields import Fields
from headwater_gateway.console.history.table_place import locate_table
from headwater_gateway.console.history.versions import (
    HistoryPage,
    Jump,
    history_page,
    jump_to_offset,
    jump_to_version,
)
from headwater_gateway.console.shell import Shell
from headwater_tier.delta import TableAccessError, TableStateError
from headwater_tier.table_names import TableLocation

UNREADABLE = (UsageError, TableAccessError, TableStateError)


def routes(shell: Shell) -> list[Route]:
    """The routes of this view."""
    return [shell.view("/topics/{topic}/history", HistoryPages(shell).show)]


class HistoryPages:
    """The list of versions."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def show(self, request: Request) -> Response:
        """The versions, with the one that a jump leads to."""
        topic, admin = request.path_params["topic"], self._shell.clients(request).admin
        described = (await admin.describe_topics([topic], patient=False))[topic]
        partitions = [one.partition for one in described.partitions]
        page: HistoryPage | None = None
        jump: Jump | None = None
        problem, location = "", None
        try:
            location = await locate_table(admin, topic)
            query = Fields(request.query_params)
            before = query.number("before") if query.optional("before") else None
            jump = await _jump(location, request.query_params, partitions)
            if jump is not None and before is None:
                before = jump.version + 4
            page = await asyncio.to_thread(history_page, location, partitions, before)
        except UNREADABLE as error:
            problem = str(error)
        if jump is not None and request.query_params.get("then") == "messages":
            return RedirectResponse(_as_of(topic, page, jump), 303)
        return self._shell.page(
            request,
            "history/history.html",
            topic=topic,
            partitions=partitions,
            page=page,
            jump=jump,
            problem=problem,
            location=location,
            given=request.query_params,
            ends_text=_ends_text,
        )


async def _jump(
    location: TableLocation, query: Mapping[str, str], partitions: list[int]
) -> Jump | None:
    fields = Fields(query)
    if fields.optional("version"):
        wanted = fields.number("version")
        return await asyncio.to_thread(jump_to_version, location, wanted, partitions)
    if fields.optional("offset"):
        partition = fields.number("partition", most=2**31 - 1, default=0)
        if partition not in partitions:
            raise UsageError(f"partition is {partition}: there are 0 to {len(partitions) - 1}")
        offset = fields.number("offset")
        return await asyncio.to_thread(jump_to_offset, location, partition, offset)
    return None


def _as_of(topic: str, page: HistoryPage | None, jump: Jump) -> str:
    rows = [] if page is None else [row for row in page.rows if row.version == jump.version]
    ends = _ends_text(rows[0].ends) if rows else ""
    return address("topics", topic, "messages", src="table", cursor=ends)


def _ends_text(ends: Mapping[int, int]) -> str:
    """`0:900,1:950`, as the message browser's cursor has it."""
    return ",".join(f"{partition}:{end}" for partition, end in sorted(ends.items()))
