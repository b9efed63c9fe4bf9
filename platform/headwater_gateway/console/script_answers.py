"""Routes that a page's script asks: their errors are JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headwater.errors import HeadwaterError
from headwater_gateway.console.shell import status_of
from headwater_gateway.console.shown import visible

Answer = Callable[[Request], Awaitable[Response]]


def with_problems(answer: Answer) -> Answer:
    """The answer, or `{"problem": ...}` with the error's status."""

    async def asked(request: Request) -> Response:
        try:
            return await answer(request)
        except HeadwaterError as error:
            return JSONResponse({"problem": visible(str(error))}, status_of(error))

    return asked
