"""SQL over topics and their tables: the page, and the stream of one query."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from headwater_gateway.console.addresses import address
from headwater_gateway.console.fields import Fields
from headwater_gateway.console.messages.browser import Browser, Viewer
from headwater_gateway.console.messages.event_stream import EventStream
from headwater_gateway.console.script_answers import with_problems
from headwater_gateway.console.shell import Shell
from headwater_gateway.console.sql.queries import SUFFIX, Queries

ROWS_DEFAULT = 10_000
ROWS_MAX = 500_000


def routes(shell: Shell, browser: Callable[[], Browser]) -> list[BaseRoute]:
    """The routes of this view. `browser`: gives the Browser of a running console."""
    pages = SqlPages(shell, browser)
    return [
        shell.view("/sql", pages.show),
        Route("/sql/run", with_problems(pages.run), methods=["GET"], name="run SQL"),
    ]


class SqlPages:
    """The page, and its queries."""

    def __init__(self, shell: Shell, browser: Callable[[], Browser]) -> None:
        self._shell = shell
        self._browser = browser
        self._queries: Queries | None = None

    async def show(self, request: Request) -> Response:
        """The page; the query in its address is run by its script."""
        query = request.query_params.get("q", "")
        topic = request.query_params.get("topic", "")
        rows = _rows(request)
        run = address("sql", "run", q=query, rows=rows) if query else ""
        return self._shell.page(
            request,
            "sql/sql.html",
            query=query or _example(topic),
            rows=rows,
            run=run,
            topic=topic,
            suffix=SUFFIX,
        )

    async def run(self, request: Request) -> Response:
        """The events of a query; it ends when the browser goes."""
        if self._queries is None:
            self._queries = Queries(self._browser(), self._shell.services.clock)
        queries = self._queries
        viewer = Viewer(request.state.login, self._shell.clients(request), "")
        query, rows = request.query_params.get("q", ""), _rows(request)
        return EventStream(lambda: queries.events(viewer, query, rows))


def _rows(request: Request) -> int:
    return Fields(request.query_params).number("rows", least=1, most=ROWS_MAX, default=ROWS_DEFAULT)


def _example(topic: str) -> str:
    quoted = '"' + topic.replace('"', '""') + '"' if topic else ""
    return f"SELECT * FROM {quoted}\nORDER BY timestamp DESC\nLIMIT 100" if topic else ""
