"""The gateway as one ASGI application: guards, login and clients around the parts' routes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater_gateway.app.bodies import BodyBudget, BodyHold, declared_length, limited
from headwater_gateway.app.errors import GatewayError, too_large, unauthorized
from headwater_gateway.app.guard import SAFE_METHODS, Guard, check_forwarded
from headwater_gateway.app.login import Login, login_of
from headwater_gateway.app.metrics import CONTENT_TYPE, ROUTE, GatewayMetrics, ShellMetrics
from headwater_gateway.app.parts import (
    CSRF_HEADER,
    LOGIN_PATH,
    OPEN_PATHS,
    PAGES,
    Face,
    Part,
    Services,
)
from headwater_gateway.app.security_headers import with_security_headers
from headwater_gateway.app.sessions import Session, Sessions

COOKIES_CHARS_MAX = 8_192
HEALTH = "/health"
METRICS = "/metrics"
REALM = 'Basic realm="headwater", charset="UTF-8"'

log = logging.getLogger(__name__)


class GatewayApp:
    """The application; `lifespan` begins and ends the parts."""

    def __init__(self, parts: Sequence[Part], services: Services, guard: Guard) -> None:
        """Parts come in this order when their routes overlap."""
        self._parts = parts
        self._services = services
        self._guard = guard
        self._bodies = BodyBudget()
        api: list[BaseRoute] = [Route(METRICS, self._show_metrics, methods=["GET"])]
        pages: list[BaseRoute] = []
        for part in parts:
            (pages if part.face is Face.PAGES else api).extend(part.routes())
        shell = ShellMetrics(services.clients, self._bodies)
        self._metrics = GatewayMetrics(services.clock, api, pages, shell)
        self._api = Router(api, redirect_slashes=False)
        self._pages = Router([Mount(PAGES, routes=pages)])
        self._has_pages = bool(pages)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """The parts are at work within it; the server enters it."""
        async with AsyncExitStack() as stack:
            self._services.clients.start()
            stack.push_async_callback(self._services.clients.close)
            for part in self._parts:
                stack.push_async_callback(part.close)
                await part.start(self._services)
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        scope["state"] = {**scope.get("state", {})}
        scope["app"] = self  # routers raise what they do not find, instead of a reply of their own
        is_page = self._is_page(scope)
        is_tls = self._services.settings.is_reached_by_tls
        request = _Request(scope, BodyHold(self._bodies), is_page=is_page)
        began_s = self._services.clock.monotonic()

        def begun(status: int) -> None:
            self._audit(request, f"HTTP {status}")
            self._metrics.answered(scope, status, began_s)

        reply = Reply(with_security_headers(send, is_page=is_page, is_tls=is_tls), begun)
        try:
            await self._answer(request, receive, reply)
        except GatewayError as error:
            await self._refuse(request, error, receive, reply)
        except HTTPException as error:
            refused = GatewayError(error.status_code, error.status_code, str(error.detail))
            await self._refuse(request, refused, receive, reply)
        except ClientDisconnect:
            log.debug("a client went away: %s %s", request.method, request.path)
        except Exception as error:
            log.exception("%s %s failed", request.method, ascii(request.path))
            refused = GatewayError(500, 500, f"Internal Server Error: {type(error).__name__}")
            await self._refuse(request, refused, receive, reply)
        finally:
            request.body.set(0)
            if not reply.status:
                self._audit(request, "no reply")
                self._metrics.answered(scope, 0, began_s)

    async def _show_metrics(self, request: Request) -> Response:
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    def _is_page(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if path == "/":  # of both: a browser asks for HTML
            return self._has_pages and "text/html" in Headers(scope=scope).get("accept", "")
        return path == PAGES or path.startswith(f"{PAGES}/")

    async def _answer(self, request: _Request, receive: Receive, reply: Reply) -> None:
        headers, method = request.headers, request.method
        self._guard.check(method, headers)
        if self._services.settings.trusted_proxies:
            check_forwarded(headers)
        limit = self._services.settings.body_bytes_max
        length = declared_length(headers.get("content-length", ""))
        has_body = length > 0 or "transfer-encoding" in headers
        if length > limit:
            raise too_large(limit)
        scope = request.scope
        received = limited(scope, receive, limit, request.body)
        if not request.is_page:
            if request.path == HEALTH:
                scope[ROUTE] = HEALTH
                await JSONResponse({"status": "up"})(scope, received, reply)
                return
            self._guard.check_program(method, headers, has_body=has_body)
            # Routes are matched by the path as it was sent, so that a name may hold a slash.
            raw: bytes = scope.get("raw_path") or request.path.encode()
            scope["path"] = raw.partition(b"?")[0].decode("latin-1").rstrip("/") or "/"
            await self._served(self._api, request, self._login(headers), received, reply)
            return
        if request.path == "/":
            await RedirectResponse(f"{PAGES}/", 303)(scope, received, reply)
            return
        await self._answer_page(request, received, reply)

    async def _answer_page(self, request: _Request, receive: Receive, reply: Reply) -> None:
        session = self._session(request.headers)
        is_open = _is_open(request.path)
        has_login = self._services.settings.has_login
        if session is None and not has_login and request.method in SAFE_METHODS and not is_open:
            session = self._services.sessions.begin(Login.anonymous())
            reply.new_session(self._services.sessions, session)
        # The login form comes before a session: the same origin is asked of it alone.
        token = request.headers.get(CSRF_HEADER, "")
        has_token = is_open if session is None else session.accepts(token) or is_open
        self._guard.check_page(request.method, request.headers, has_token=has_token)
        request.scope["state"]["session"] = session
        if session is None and not is_open:
            raise unauthorized("log in")
        login = Login.anonymous() if session is None else session.login
        if is_open:
            request.scope["state"]["login"] = login
            await self._pages(request.scope, receive, reply)
            return
        await self._served(self._pages, request, login, receive, reply)

    async def _served(
        self, router: ASGIApp, request: _Request, login: Login, receive: Receive, reply: Reply
    ) -> None:
        async with self._services.clients.lease(login, request.host):
            request.login = request.scope["state"]["login"] = login
            await router(request.scope, receive, reply)

    def _login(self, headers: Headers) -> Login:
        if not self._services.settings.has_login:
            return Login.anonymous()
        return login_of(headers.get("authorization", ""))

    def _session(self, headers: Headers) -> Session | None:
        text = headers.get("cookie", "")
        if len(text) > COOKIES_CHARS_MAX:
            return None
        try:
            found = SimpleCookie(text).get(self._services.sessions.cookie_name)
        except CookieError:
            return None
        return None if found is None else self._services.sessions.find(found.value)

    async def _refuse(
        self, request: _Request, error: GatewayError, receive: Receive, reply: Reply
    ) -> None:
        if reply.status:  # the client sees a reply that breaks off
            log.warning("a reply of %s broke off: %s", ascii(request.path), error)
            raise error
        response: Response
        if request.is_page and error.status == 401:
            target = quote(request.path, safe="/")
            login = f"{LOGIN_PATH}?next={target}"
            response = RedirectResponse(login, 303)
            if "hx-request" in request.headers:
                response = Response(status_code=401, headers={"HX-Redirect": login})
        elif request.is_page:
            response = PlainTextResponse(str(error), error.status)
        else:
            response = error_response(error)
        await response(request.scope, receive, reply)

    def _audit(self, request: _Request, outcome: str) -> None:
        """A write by a program, before it sees the reply; the console notes its own changes, by
        what they were."""
        if request.method in SAFE_METHODS or request.login is None or request.is_page:
            return
        what = f"{request.method} {request.path}"
        self._services.audit.wrote(request.login, request.host, what, outcome)


class _Request:
    """What the shell knows of a request."""

    def __init__(self, scope: Scope, body: BodyHold, *, is_page: bool) -> None:
        self.scope = scope
        self.body = body
        self.headers = Headers(scope=scope)
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.is_page = is_page
        self.login: Login | None = None
        """Who asks, once the brokers have taken the login."""
        client = scope.get("client")
        self.host: str = client[0] if client else ""


class Reply:
    """`send`, with the status once it is sent."""

    def __init__(self, send: Send, on_start: Callable[[int], None]) -> None:
        """`on_start(status)` is called before the status is sent."""
        self._send = send
        self._on_start = on_start
        self._cookie: tuple[bytes, bytes] | None = None
        self.status = 0

    def new_session(self, sessions: Sessions, session: Session) -> None:
        """Give the browser this session's cookie."""
        response = Response()
        sessions.set_cookie(response, session)
        value = response.headers["set-cookie"].encode("latin-1")
        self._cookie = (b"set-cookie", value)

    async def __call__(self, message: Message) -> None:
        """ASGI's send."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._on_start(self.status)
            if self._cookie is not None:
                message["headers"] = [*message.get("headers", ()), self._cookie]
        await self._send(message)


def error_response(error: GatewayError) -> Response:
    """The body of an error, as Kafka's REST proxy writes it."""
    document = {"error_code": error.code, "message": str(error)}
    response = JSONResponse(document, error.status)
    if error.status == 401:
        response.headers["WWW-Authenticate"] = REALM
    if error.status in (429, 503):
        response.headers["Retry-After"] = "1"
    if error.status in (408, 413):
        response.headers["Connection"] = "close"
    return response


def _is_open(path: str) -> bool:
    return any(path == p or (p.endswith("/") and path.startswith(p)) for p in OPEN_PATHS)
