"""The base of each view: rendered pages, the clients of the user, plans and confirmations."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from headwater.client.errors import (
    GroupIdNotFoundError,
    KafkaTimeoutError,
    NoBrokersAvailableError,
    UnknownTopicOrPartitionError,
)
from headwater.errors import ErrorCode, HeadwaterError, KafkaError, UsageError
from headwater_gateway.app.parts import Clients, GatewayError, Services, Session
from headwater_gateway.console.lag.sampler import LagSampler
from headwater_gateway.console.navigation import SECTIONS, current_path
from headwater_gateway.console.plans import (
    FIELDS,
    OWN_FIELDS,
    SEAL,
    Plan,
    Seals,
    StateMovedError,
    packed,
    unpacked,
)
from headwater_gateway.console.rendering import Templates
from headwater_gateway.console.snapshots import Snapshots
from headwater_gateway.registry.remote import RemoteError

log = logging.getLogger(__name__)
DONE = "done"
HTMX = "hx-request"
SHOWN_CHARS = 200
FORM_FIELDS_MAX = 1_000
FORM_PART_BYTES_MAX = 4 * 1024 * 1024


View = Callable[[Request], Awaitable[Response]]
MakePlan = Callable[[Request, Mapping[str, str]], Awaitable[Plan]]


class Shell:
    """Renders pages and guards writes; shared by all views."""

    def __init__(self, templates: Templates, *, read_only: bool = False) -> None:
        self._templates = templates
        self._services: Services | None = None
        self._seals: Seals | None = None
        self._snapshots: Snapshots | None = None
        self._sampler: LagSampler | None = None
        self.read_only = read_only
        """True: no write route exists."""

    def start(self, services: Services) -> None:
        """Begin with what the gateway gives."""
        self._services = services
        self._seals = Seals(services.entropy)
        self._snapshots = Snapshots(services.clock)
        self._sampler = LagSampler(services)

    async def close(self) -> None:
        """End what runs in the background."""
        if self._services is not None:
            await self.snapshots.close()
            await self.sampler.close()

    @property
    def services(self) -> Services:
        """What the gateway gives; of a running gateway only."""
        assert self._services is not None, "the console has not started"
        return self._services

    @property
    def seals(self) -> Seals:
        """The seals of this process's plans."""
        assert self._seals is not None, "the console has not started"
        return self._seals

    @property
    def snapshots(self) -> Snapshots:
        """Answers of the cluster that pages share."""
        assert self._snapshots is not None, "the console has not started"
        return self._snapshots

    @property
    def sampler(self) -> LagSampler:
        """The lag of groups over the last minutes."""
        assert self._sampler is not None, "the console has not started"
        return self._sampler

    def clients(self, request: Request) -> Clients:
        """The clients of whoever asks: brokers decide what they may do."""
        return self.services.clients.of(request.state.login)

    def page(
        self, request: Request, template: str, *, status: int = 200, **values: Any
    ) -> Response:
        """A page from a template, which extends `layout.html`."""
        given = {
            "here": _here(request),
            "current": current_path(request.url.path),
            "sections": SECTIONS,
            "login": _login_name(request),
            "token": _csrf(request),
            "read_only": self.read_only,
            "has_login": self.services.settings.has_login,
            "servers": self.services.settings.bootstrap_servers,
            "done": self.seals.verified(request.query_params.get(DONE, "")),
            **values,
        }
        text = self._templates.render(template, given)
        return Response(text, status, media_type="text/html")

    def view(self, path: str, show: View) -> Route:
        """The route of a page that only reads, below `/console`. Its errors become pages too."""

        async def answer(request: Request) -> Response:
            return await self._answered(request, show)

        return Route(path, answer, methods=["GET"], name=path)

    def unknown(self) -> Route:
        """The route of every other address: a page that says what to do."""

        async def show(request: Request) -> Response:
            shown = request.url.path[:SHOWN_CHARS]
            problem = f"there is no page {shown}: choose a view; `?` lists their keys"
            raise GatewayError(404, 404, problem)

        async def answer(request: Request) -> Response:
            return await self._answered(request, show)

        return _GetsOnly("/{path:path}", answer, methods=["GET"], name="unknown page")

    def write(self, path: str, make_plan: MakePlan) -> list[Route]:
        """The route of a write: a form posted there gets its plan, the plan's own form does it.

        `make_plan(request, fields)` is called at both steps. No route at all with `--read-only`.
        """
        if self.read_only:
            return []

        async def answer(request: Request) -> Response:
            return await self._answered(request, lambda r: self._write(r, make_plan))

        return [Route(path, answer, methods=["POST"], name=f"write {path}")]

    async def _write(self, request: Request, make_plan: MakePlan) -> Response:
        form = await _form(request)
        seal = form.get(SEAL, "")
        try:
            fields = unpacked(form[FIELDS]) if FIELDS in form else _own(form)
        except ValueError as error:
            raise UsageError(f"{error}: go back and send it again") from error
        plan = await make_plan(request, fields)
        if not seal:
            return self._plan_page(request, fields, plan)
        try:
            self.seals.use(seal, _owner(request), _target(request), fields, plan)
        except StateMovedError as error:
            return self._plan_page(request, fields, plan, status=409, moved=str(error))
        secrets = {secret.name: form.get(secret.name, "") for secret in plan.secrets}
        return await self._confirmed(request, plan, secrets)

    async def _confirmed(
        self, request: Request, plan: Plan, secrets: Mapping[str, str]
    ) -> Response:
        try:
            done = await plan.apply(secrets)
        except HeadwaterError as error:
            self._audit(request, plan, f"failed: {error}")
            raise
        self._audit(request, plan, "done")
        mark = "&" if "?" in plan.back else "?"
        done_query = urlencode({DONE: self.seals.signed(done)})
        return redirected(request, f"{plan.back}{mark}{done_query}")

    def _audit(self, request: Request, plan: Plan, outcome: str) -> None:
        what = "; ".join([plan.title, *(str(change) for change in plan.changes)])
        self.services.audit.wrote(request.state.login, host_of(request), what, outcome)

    def _plan_page(
        self,
        request: Request,
        fields: Mapping[str, str],
        plan: Plan,
        *,
        status: int = 200,
        moved: str = "",
    ) -> Response:
        seal = self.seals.seal(_owner(request), _target(request), fields, plan)
        return self.page(
            request,
            "plan.html",
            status=status,
            plan=plan,
            fields=packed(fields),
            seal=seal,
            moved=moved,
            target=_target(request),
        )

    async def _answered(self, request: Request, show: View) -> Response:
        try:
            return await show(request)
        except HeadwaterError as error:
            if isinstance(error, GatewayError) and error.status == 401:
                raise  # the gateway sends the browser to the login
            return self.page(
                request,
                "error.html",
                status=status_of(error),
                problem=str(error),
                title=_named(error),
            )


class _GetsOnly(Route):
    """A route that is not there for other methods: they get 404, not 405."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """See Route."""
        found, values = super().matches(scope)
        return (Match.NONE, {}) if found is Match.PARTIAL else (found, values)


def is_part(request: Request) -> bool:
    """True when a page that is open asks for a part of itself anew."""
    return HTMX in request.headers


def host_of(request: Request) -> str:
    """The address of whose request it is."""
    return request.client.host if request.client else ""


def redirected(request: Request, target: str) -> Response:
    """Send the browser to another page, whether it asks itself or by htmx."""
    if is_part(request):
        return Response(status_code=200, headers={"HX-Redirect": target})
    return RedirectResponse(target, 303)


def status_of(error: HeadwaterError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, GatewayError):
        return error.status
    if isinstance(error, RemoteError):
        return _registry_status(error.code)
    if isinstance(error, KafkaError) and error.code.name.endswith(REFUSED):
        return 403
    if isinstance(error, KafkaError) and error.code in ASKED_WRONGLY:
        return 400
    for kind, status in STATUSES:
        if isinstance(error, kind):
            return status
    return 400  # its message says what to do


def _registry_status(code: int) -> int:
    """Of a registry's error code: 404xx, 409xx, 422xx, or an HTTP status."""
    status = code if code < 1_000 else code // 100
    if status in (401, 403, 404):
        return 403 if status == 401 else status
    return 400 if status in (409, 422) else 502


STATUSES: tuple[tuple[type[HeadwaterError], int], ...] = (
    (UsageError, 400),
    (UnknownTopicOrPartitionError, 404),
    (GroupIdNotFoundError, 404),
    (StateMovedError, 409),
    (KafkaTimeoutError, 503),
    (NoBrokersAvailableError, 503),
    (KafkaError, 502),
)
REFUSED = "AUTHORIZATION_FAILED"
ASKED_WRONGLY = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.SECURITY_DISABLED,
    }
)
"""What the brokers refuse because of what was asked."""
TITLES = {
    400: "That does not work",
    403: "Not allowed",
    404: "Not found",
    409: "The state has moved",
    502: "It was refused",
    503: "The cluster does not answer",
}


def _named(error: HeadwaterError) -> str:
    return TITLES.get(status_of(error), "Something went wrong")


def _login_name(request: Request) -> str:
    return str(request.state.login.name)


def _session(request: Request) -> Session | None:
    session: Session | None = getattr(request.state, "session", None)
    return session


def _csrf(request: Request) -> str:
    session = _session(request)
    return "" if session is None else session.csrf


def _owner(request: Request) -> str:
    """What a plan is bound to: the session and its login."""
    return f"{_login_name(request)}\0{_csrf(request)}"


def _here(request: Request) -> str:
    """The page's own address, without the message that is shown once."""
    query = [(k, v) for k, v in request.query_params.multi_items() if k != DONE]
    return _with_query(request.url.path, query)


def _target(request: Request) -> str:
    return _with_query(request.url.path, list(request.query_params.multi_items()))


async def _form(request: Request) -> dict[str, str]:
    form = await request.form(
        max_fields=FORM_FIELDS_MAX, max_files=0, max_part_size=FORM_PART_BYTES_MAX
    )
    return {name: value for name, value in form.items() if isinstance(value, str)}


def _with_query(path: str, query: list[tuple[str, str]]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _own(form: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in form.items() if name not in OWN_FIELDS}
