"""Changes made through this gateway, each with its user."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation
from headwater_gateway.app.audit import principal_of
from headwater_gateway.console.listing import Column, listing
from headwater_gateway.console.shell import Shell, is_part

COLUMNS = (
    Column("when", "When", lambda r: -r.at_ms),
    Column("principal", "Who", lambda r: r.principal),
    Column("what", "What", lambda r: r.what),
    Column("outcome", "Outcome", lambda r: r.outcome),
)


def routes(shell: Shell) -> list[Route]:
    """The route of this view."""

    async def show(request: Request) -> Response:
        lines = shell.services.audit.recent()
        is_all = await _sees_all(shell, request)
        if not is_all:
            own = principal_of(request.state.login)
            lines = [line for line in lines if line.principal == own]
        query = {k: request.query_params.get(k, "") for k in ("q", "sort")}
        found: Any = listing(("audit",), query, lines, COLUMNS, _words, is_whole=is_part(request))
        return shell.page(request, "audit.html", list=found, is_all=is_all)

    return [shell.view("/audit", show)]


async def _sees_all(shell: Shell, request: Request) -> bool:
    """Who may alter the cluster sees what others did."""
    try:
        rights = await shell.clients(request).admin.cluster_operations()
    except KafkaError:
        return False
    return Operation.ALTER in rights


def _words(line: Any) -> str:
    return f"{line.principal} {line.what} {line.outcome} {line.host}"
