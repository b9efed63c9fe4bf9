"""Log in and out: the user's own SASL login, which the brokers check."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from headwater_gateway.app.login import password_login
from headwater_gateway.app.parts import LOGIN_PATH, GatewayError
from headwater_gateway.console.addresses import ROOT, address
from headwater_gateway.console.shell import Shell, host_of, redirected

FIELD_CHARS_MAX = 4_096


def routes(shell: Shell) -> list[Route]:
    """The routes of this view. They exist with `--read-only` too: a login changes no cluster."""
    page = LoginPage(shell)
    return [
        Route(LOGIN_PATH.removeprefix(ROOT), page.show, methods=["GET"], name="login"),
        Route(LOGIN_PATH.removeprefix(ROOT), page.enter, methods=["POST"], name="log in"),
        Route("/logout", page.leave, methods=["POST"], name="log out"),
    ]


class LoginPage:
    """The form, and what it does."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def show(self, request: Request) -> Response:
        """The form; who has a session already is sent on."""
        if request.state.session is not None:
            return RedirectResponse(_next(request), 303)
        return self._shell.page(request, "login.html", problem="", user="")

    async def enter(self, request: Request) -> Response:
        """Check the login at the brokers, begin a session."""
        services = self._shell.services
        form = await request.form(max_fields=8, max_files=0, max_part_size=FIELD_CHARS_MAX)
        user, password = str(form.get("user", "")), str(form.get("password", ""))
        try:
            login = password_login(user, password)
            async with services.clients.lease(login, host_of(request)):
                session = services.sessions.begin(login)
        except GatewayError as error:
            return self._shell.page(
                request, "login.html", status=error.status, problem=str(error), user=user
            )
        response = RedirectResponse(_next(request), 303)
        services.sessions.set_cookie(response, session)
        return response

    async def leave(self, request: Request) -> Response:
        """End the session."""
        sessions = self._shell.services.sessions
        if request.state.session is not None:
            sessions.end(request.state.session)
            self._shell.sampler.forget(request.state.login)
        response = redirected(request, LOGIN_PATH)
        sessions.clear_cookie(response)
        return response


def _next(request: Request) -> str:
    """Where to go after the login: a page of this console, whatever the address says."""
    wanted = request.query_params.get("next", "")
    is_own = wanted.startswith(f"{ROOT}/") and wanted.isprintable() and "\\" not in wanted
    return wanted if is_own else address()
