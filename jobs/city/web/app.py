"""The pages' HTTP: two pages, one stream of events each, and the door for instructions.

It writes nothing but instructions, and only for a request that comes from its own pages: the Host
is checked (DNS rebinding), the body has to be JSON (no form can send that), and an Origin, if there
is one, has to be its own. It listens on loopback only: there is no login here.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from city.fields import (
    STATISTICS_INSTRUCTIONS,
    VIDEO_INSTRUCTIONS,
    WATCH_INSTRUCTIONS,
    VideoInstruction,
)
from city.instructions import (
    INSTRUCTION_ID,
    CountInstruction,
    StopInstruction,
    parse_instruction,
)
from city.lookup import Checkpoint
from city.web.tail import Tail
from headwater import Producer, RecordMetadata
from headwater.errors import HeadwaterError, UsageError

HERE = Path(__file__).parent
SECTIONS = {
    "traffic": frozenset(
        ("clock", "flow", "counts", "latency", "quality", "ranking", "alarms"),
    ),
    "police": frozenset(("clock", "tracks", "track:", "alarms", "videos")),
}
BODY_BYTES_MAX = 16_384
SEND_TIMEOUT_S = 10.0
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Call = Callable[[Request], Awaitable[Response]]


class CityPages:
    """The pages over one tail and one producer."""

    def __init__(
        self,
        tail: Tail,
        producer: Producer,
        checkpoints: list[Checkpoint],
        videos: Path | None = None,
        clips: Path | None = None,
    ) -> None:
        """`videos`: the folder of the videos that may be analysed; `clips`: of what came of it."""
        self._tail = tail
        self._producer = producer
        self._checkpoints = checkpoints
        self._videos = videos
        self._clips = clips
        self._templates = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True)

    def app(self, hosts: frozenset[str]) -> Starlette:
        """The ASGI application; it answers requests to `hosts` only."""

        def guarded(call: Call) -> Call:
            async def answer(request: Request) -> Response:
                if request.headers.get("host", "") not in hosts:
                    return _refusal(421, "this host is not served here")
                response = await call(request)
                response.headers.update(HEADERS)
                return response

            return answer

        routes = [
            Route("/", guarded(partial(self._page, page="traffic"))),
            Route("/police", guarded(partial(self._page, page="police"))),
            Route("/events/{page}", guarded(self._events)),
            Route("/checkpoints.json", guarded(self._lookup)),
            Route("/instructions", guarded(self._instruct), methods=["POST"]),
            Route("/clips/{name}", guarded(self._clip)),
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ]
        return Starlette(routes=routes)

    async def _page(self, _request: Request, page: str) -> Response:
        files = sorted(self._videos.glob("*.npy")) if self._videos is not None else []
        template = self._templates.get_template(f"{page}.html")
        return HTMLResponse(template.render(page=page, videos=[file.stem for file in files]))

    async def _lookup(self, _request: Request) -> Response:
        return JSONResponse([asdict(checkpoint) for checkpoint in self._checkpoints])

    async def _events(self, request: Request) -> Response:
        sections = SECTIONS.get(request.path_params["page"])
        if sections is None:
            return _refusal(404, "no such page")
        if self._tail.is_full:
            return _refusal(503, "too many pages are open: close one")
        headers = {"X-Accel-Buffering": "no"}
        stream = self._tail.events(sections)
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def _clip(self, request: Request) -> Response:
        name = Path(request.path_params["name"]).name
        file = None if self._clips is None else self._clips / name
        if file is None or file.suffix != ".gif" or not file.is_file():
            return _refusal(404, "no such clip")
        return Response(file.read_bytes(), media_type="image/gif")

    async def _instruct(self, request: Request) -> Response:
        origin = request.headers.get("origin")
        if origin is not None and origin != f"http://{request.headers['host']}":
            return _refusal(403, "an instruction comes from these pages, not from another site")
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _refusal(415, "an instruction is sent as application/json")
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > BODY_BYTES_MAX:
                return _refusal(413, f"an instruction has at most {BODY_BYTES_MAX:,} bytes")
        try:
            topic, key, value = self._instruction(body)
            place = await run_in_threadpool(self._send, topic, key, value)
        except UsageError as e:
            return _refusal(400, str(e))
        except HeadwaterError as e:
            return _refusal(503, str(e))
        return JSONResponse({"topic": topic, "offset": place.offset}, status_code=201)

    def _send(self, topic: str, key: str, value: bytes) -> RecordMetadata:
        return self._producer.send(topic, value, key=key).result(SEND_TIMEOUT_S)

    def _instruction(self, body: bytes) -> tuple[str, str, bytes]:
        """Topic, key and value of what a page has sent. Raises UsageError."""
        try:
            told = json.loads(body)
        except ValueError as e:
            raise UsageError("an instruction is a JSON object: this is none") from e
        if isinstance(told, dict) and told.get("action") == "analyse":
            return self._analyse(told)
        instruction = parse_instruction(body)
        topic = WATCH_INSTRUCTIONS
        if isinstance(instruction, CountInstruction):
            topic = STATISTICS_INSTRUCTIONS
        is_stop = isinstance(instruction, StopInstruction)
        if is_stop and instruction.instruction_id in self._tail.state.asked_counts:
            topic = STATISTICS_INSTRUCTIONS
        return topic, instruction.instruction_id, instruction.value()

    def _analyse(self, told: dict[str, Any]) -> tuple[str, str, bytes]:
        identity, video = told.get("instruction_id"), told.get("video_id")
        if not isinstance(identity, str) or not INSTRUCTION_ID.fullmatch(identity):
            raise UsageError("instruction_id: 1 to 64 letters, digits, dots, dashes, underscores")
        folder = self._videos
        files = {} if folder is None else {file.stem: file for file in folder.glob("*.npy")}
        if not isinstance(video, str) or video not in files:
            raise UsageError(f"video {video!r} is not in storage: there are {', '.join(files)}")
        url = files[video].resolve().as_uri()
        instruction = VideoInstruction(identity, video, url, "police")
        return VIDEO_INSTRUCTIONS, identity, instruction.to_wire()


def _refusal(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status_code=status)
