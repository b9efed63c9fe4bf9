"""The routes of the message browser: pages, the stream, one record, exports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from headwater.client.values import ConsumerRecord
from headwater.errors import UsageError
from headwater_gateway.app.parts import Services
from headwater_gateway.console.addresses import address
from headwater_gateway.console.messages.address import Address, From, parse_address
from headwater_gateway.console.messages.browser import EXPORT_ROWS_MAX, Browser, Viewer
from headwater_gateway.console.messages.decoding import CHOICES
from headwater_gateway.console.messages.event_stream import EventStream
from headwater_gateway.console.messages.jobs import Render
from headwater_gateway.console.messages.produce import ProducePages
from headwater_gateway.console.messages.rows import CSV_COLUMNS, csv_line, piece_of
from headwater_gateway.console.messages.schema_lookup import SchemaLookup
from headwater_gateway.console.messages.shown_text import time_of
from headwater_gateway.console.messages.worker_pool import WorkerPool
from headwater_gateway.console.script_answers import with_problems
from headwater_gateway.console.shell import Shell
from headwater_gateway.registry.clients import SchemaRegistry

EXPORTS = {"ndjson": Render.NDJSON, "csv": Render.CSV}
SIDES = ("key", "value")


class Messages:
    """The message browser's views."""

    def __init__(self, shell: Shell, registry: SchemaRegistry) -> None:
        self._shell = shell
        self._registry = registry
        self._pool = WorkerPool()
        self._browser: Browser | None = None

    def start(self, services: Services) -> None:
        """Begin. The workers start when somebody opens the browser."""
        salt = services.entropy.randbytes(32)
        schemas = SchemaLookup(services.settings, self._registry, salt)
        self._browser = Browser(self._pool, schemas, services.clock)

    async def close(self) -> None:
        """End the workers."""
        await self._pool.close()

    @property
    def browser(self) -> Browser:
        """What reads; of a running console only."""
        assert self._browser is not None, "the console has not started"
        return self._browser

    def routes(self) -> list[BaseRoute]:
        """All routes of messages."""
        root = "/topics/{topic}/messages"
        one = root + "/{partition:int}/{offset:int}"
        return [
            self._shell.view(root, self.browse),
            self._shell.view(one, self.record),
            Route(root + "/stream", with_problems(self.stream), methods=["GET"]),
            Route(root + "/export", with_problems(self.export), methods=["GET"]),
            Route(one + "/detail", with_problems(self.detail), methods=["GET"]),
            Route(one + "/piece", with_problems(self.piece), methods=["GET"]),
            Route(one + "/raw", with_problems(self.raw), methods=["GET"]),
            *ProducePages(self._shell, lambda: self.browser).routes(),
        ]

    def viewer(self, request: Request) -> Viewer:
        """Whose request it is, and of which topic."""
        clients = self._shell.clients(request)
        return Viewer(request.state.login, clients, request.path_params["topic"])

    async def browse(self, request: Request) -> Response:
        """The page; its rows come by the stream."""
        viewer = self.viewer(request)
        partitions = await self.browser.partitions(viewer)
        problem = ""
        try:
            state = parse_address(request.query_params)
            self._pool.start()  # its rows will be asked for in a moment
        except UsageError as error:
            state, problem = Address(), str(error)
        stream = "" if problem else _under(viewer, "stream", state.query())
        return self._shell.page(
            request,
            "messages/browse.html",
            status=400 if problem else 200,
            topic=viewer.topic,
            partitions=len(partitions),
            state=state,
            starts=[kind.value for kind in From],
            choices=CHOICES,
            problem=problem,
            stream=stream,
            given=request.query_params,
            at_text=_at_text(state),
            exports={name: _export_address(viewer, state, name) for name in EXPORTS},
            live=address("topics", viewer.topic, "messages") + "?" + state.query(start=From.LIVE),
        )

    async def stream(self, request: Request) -> Response:
        """The events of one tab."""
        viewer, state = self.viewer(request), parse_address(request.query_params)
        return EventStream(lambda: self.browser.events(viewer, state))

    async def record(self, request: Request) -> Response:
        """The page of one record."""
        viewer = self.viewer(request)
        partition, offset = _place(request)
        await self.browser.partitions(viewer, (partition,))
        state = parse_address(request.query_params)
        return self._shell.page(
            request,
            "messages/record.html",
            topic=viewer.topic,
            partition=partition,
            offset=offset,
            state=state,
            choices=CHOICES,
            detail=_record_address(viewer, partition, offset, "detail") + f"?{state.query()}",
            around=address("topics", viewer.topic, "messages")
            + f"?{state.query(partitions=(partition,), start=From.OFFSET, at=max(0, offset - 10))}",
        )

    async def detail(self, request: Request) -> Response:
        """All of one record as JSON."""
        viewer, state = self.viewer(request), parse_address(request.query_params)
        partition, offset = _place(request)
        found = await self.browser.detail(viewer, state, partition, offset)
        found["address"] = _record_address(viewer, partition, offset)
        return JSONResponse(found)

    async def piece(self, request: Request) -> Response:
        """The next 4 KB of a key or value."""
        blob = _side(await self._read(request), request.query_params)
        given = request.query_params.get("at", "0")
        if not (given.isascii() and given.isdecimal() and len(given) < 12):
            raise UsageError(f"at={given[:40]!r}: use a position in the value")
        kind = "hex" if request.query_params.get("as") == "hex" else "text"
        return JSONResponse(piece_of(blob, int(given), kind))

    async def raw(self, request: Request) -> Response:
        """The bytes of a key or value, to be kept as a file."""
        record = await self._read(request)
        side = request.query_params.get("side", "value")
        name = f"{record.topic}-{record.partition}-{record.offset}-{side}.bin"
        return Response(_side(record, request.query_params), headers=_attachment(name))

    async def export(self, request: Request) -> Response:
        """The messages of an address as a file."""
        viewer = self.viewer(request)
        query = dict(request.query_params)
        name = query.pop("format", "ndjson")
        if name not in EXPORTS:
            raise UsageError(f"format={name[:40]!r}: use {', '.join(EXPORTS)}")
        state = parse_address(query, rows_max=EXPORT_ROWS_MAX)
        if state.start is From.LIVE:
            raise UsageError("a live tail has no end to be exported: choose another start")
        lines = self.browser.lines(viewer, state, EXPORTS[name])
        head = csv_line(CSV_COLUMNS) if name == "csv" else ""
        first = await anext(lines, "")  # an error becomes a reply of its own
        headers = _attachment(f"{viewer.topic}.{name}")
        return StreamingResponse(_encoded(head + first, lines), headers=headers)

    async def _read(self, request: Request) -> ConsumerRecord:
        partition, offset = _place(request)
        return await self.browser.record(self.viewer(request), partition, offset)


async def _encoded(first: str, lines: AsyncGenerator[str, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(lines):
        yield first.encode("utf-8", "replace")
        async for line in lines:
            yield line.encode("utf-8", "replace")


def _at_text(state: Address) -> str:
    if state.start is From.TIME:
        return time_of(state.at)
    return str(state.at) if state.start in (From.OFFSET, From.VERSION) else ""


def _place(request: Request) -> tuple[int, int]:
    return request.path_params["partition"], request.path_params["offset"]


def _side(record: ConsumerRecord, query: Mapping[str, str]) -> bytes:
    side = query.get("side", "value")
    if side not in SIDES:
        raise UsageError(f"side={side[:40]!r}: use key or value")
    return (record.key if side == "key" else record.value) or b""


def _attachment(name: str) -> dict[str, str]:
    """Never shown by a browser, whatever it holds."""
    return {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Type": "application/octet-stream",
    }


def _under(viewer: Viewer, name: str, query: str) -> str:
    return f"{address('topics', viewer.topic, 'messages', name)}?{query}"


def _record_address(viewer: Viewer, partition: int, offset: int, *parts: Any) -> str:
    return address("topics", viewer.topic, "messages", partition, offset, *parts)


def _export_address(viewer: Viewer, state: Address, name: str) -> str:
    return _under(viewer, "export", state.query() + f"&format={name}")
