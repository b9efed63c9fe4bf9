"""What the gateway lets in: hosts, origins, media types, sizes, sessions; headers of replies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headwater.testing.clocks import ManualClock
from headwater_gateway.app.audit import Audit
from headwater_gateway.app.bodies import BodyBudget, BodyHold
from headwater_gateway.app.parts import Face, GatewayError, Login
from unit.gateway.gateways import ALICE, FakeConnector, Gateway, TestPart, running

JSON = {"Content-Type": "application/json"}
OWN = "http://localhost:8082"


async def echo(request: Request) -> Response:
    """Who asked, and how long the body is."""
    body = await request.body()
    return JSONResponse({"who": request.state.login.name, "size": len(body)})


async def broken(request: Request) -> Response:
    """A fault of ours."""
    raise ZeroDivisionError("a secret detail")


ROUTES = [
    Route("/echo", echo, methods=["GET", "POST", "DELETE"]),
    Route("/broken", broken),
    Route("/names/{name}", echo),
]
PAGE_ROUTES = [
    Route("/", echo),
    Route("/login", echo, methods=["GET", "POST"]),
    Route("/topics", echo, methods=["GET", "POST"]),
]


def tried(
    work: Callable[[Gateway], Awaitable[Any]],
    connector: FakeConnector | None = None,
    **settings: Any,
) -> Any:
    """Run `work` with a gateway of both faces."""

    async def run() -> Any:
        parts = [TestPart(ROUTES), TestPart(PAGE_ROUTES, Face.PAGES)]
        async with running(parts, connector, **settings) as gateway:
            return await work(gateway)

    return asyncio.run(run())


def asked(
    method: str, path: str, connector: FakeConnector | None = None, auth: Any = None, **kwargs: Any
) -> httpx.Response:
    """The reply to one request."""
    settings = kwargs.pop("settings", {})

    async def work(gateway: Gateway) -> httpx.Response:
        async with gateway.client(auth=auth) as client:
            return await client.request(method, path, **kwargs)

    reply = tried(work, connector, **settings)
    assert isinstance(reply, httpx.Response)
    return reply


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8082", "[::1]:8082", "10.1.2.3"])
def test_own_hosts(host: str) -> None:
    assert asked("GET", "/echo", headers={"Host": host}).json()["who"] == "ANONYMOUS"


@pytest.mark.parametrize("path", ["/echo", "/health", "/console/topics", "/console/login", "/"])
@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "evil.example:8082"])
def test_a_strange_host_is_refused_everywhere(host: str, path: str) -> None:
    reply = asked("GET", path, headers={"Host": host})
    assert reply.status_code == 421
    assert "--allowed-host" in reply.text


def test_an_allowed_host() -> None:
    settings = {"allowed_hosts": ("gateway.example",)}
    reply = asked("GET", "/echo", headers={"Host": "gateway.example"}, settings=settings)
    assert reply.status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://localhost:8082", "http://localhost:9999"]
)
@pytest.mark.parametrize("path", ["/echo", "/console/topics"])
def test_a_strange_origin_is_refused(origin: str, path: str) -> None:
    for method in ("GET", "POST"):
        reply = asked(method, path, headers={**JSON, "Origin": origin}, content=b"{}")
        assert reply.status_code == 403, method


def test_what_another_site_has_a_browser_ask_is_refused() -> None:
    """A browser would add the password that its user once gave (HTTP authentication)."""
    reply = asked("GET", "/echo", headers={"Sec-Fetch-Site": "cross-site"})
    assert reply.status_code == 403


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None],
)
def test_a_body_that_is_not_json_is_refused(kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    reply = asked("POST", "/echo", headers=headers, content=b'{"a":1}')
    assert [reply.status_code, reply.json()["error_code"]] == [415, 415]


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "application/vnd.kafka.json.v2+json"]
)
def test_json_and_its_kinds(kind: str) -> None:
    reply = asked("POST", "/echo", headers={"Content-Type": kind}, content=b'{"a":1}')
    assert reply.json()["size"] == 7


def test_a_request_without_a_body_needs_no_kind() -> None:
    assert asked("DELETE", "/echo").status_code == 200
    assert asked("POST", "/echo").status_code == 200


def test_a_long_body_is_refused_declared_or_not() -> None:
    settings = {"body_bytes_max": 1000}
    declared = asked("POST", "/echo", headers=JSON, content=b"x" * 1001, settings=settings)

    async def pieces() -> Any:
        for _ in range(20):
            yield b"x" * 100

    streamed = asked("POST", "/echo", headers=JSON, content=pieces(), settings=settings)
    assert [declared.status_code, streamed.status_code] == [413, 413]
    assert asked("POST", "/echo", headers=JSON, content=b"x" * 1000, settings=settings).is_success


def test_the_bodies_of_all_requests_have_a_limit_together() -> None:
    budget = BodyBudget(100)
    first, second = BodyHold(budget), BodyHold(budget)
    first.set(60)
    second.set(40)
    with pytest.raises(GatewayError) as refused:
        second.set(41)
    assert refused.value.status == 429
    first.set(0)
    second.set(100)


def test_a_fault_shows_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    reply = asked("GET", "/broken")
    assert reply.status_code == 500
    assert reply.json()["error_code"] == 500
    assert "secret detail" not in reply.text
    assert "secret detail" in caplog.text


def test_errors_have_the_proxys_form() -> None:
    assert asked("GET", "/nothing").json() == {"error_code": 404, "message": "Not Found"}
    assert asked("PUT", "/echo", headers=JSON, content=b"{}").json()["error_code"] == 405


def test_a_name_may_hold_a_slash() -> None:
    assert asked("GET", "/names/a%2Fb").status_code == 200
    assert asked("GET", "/names/a/b").status_code == 404


def test_headers_of_api_and_pages() -> None:
    for path in ("/echo", "/nothing", "/health"):
        headers = asked("GET", path).headers
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    headers = asked("GET", "/console/").headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert "strict-transport-security" not in headers


def test_a_login_is_asked_of_each_request() -> None:
    settings = {"has_login": True}
    reply = asked("GET", "/echo", settings=settings)
    assert [reply.status_code, reply.json()["error_code"]] == [401, 40101]
    assert reply.headers["www-authenticate"].startswith("Basic")
    assert asked("GET", "/echo", auth=ALICE, settings=settings).json()["who"] == "alice"
    wrong = httpx.BasicAuth("alice", "wrong")
    assert asked("GET", "/echo", auth=wrong, settings=settings).status_code == 401
    assert asked("GET", "/health", settings=settings).json() == {"status": "up"}


@pytest.mark.parametrize("password", ["file:/etc/passwd", "env:HOME", ""])
def test_a_reference_to_a_secret_is_no_password(password: str) -> None:
    connector = FakeConnector()
    auth = httpx.BasicAuth("alice", password)
    reply = asked("GET", "/echo", connector, auth, settings={"has_login": True})
    assert reply.status_code == 401
    assert not connector.opened


def test_a_bearer_token_is_passed_through() -> None:
    connector = FakeConnector()
    connector.password = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJib2IifQ."
    headers = {"Authorization": f"Bearer {connector.password}"}
    reply = asked("GET", "/echo", connector, headers=headers, settings={"has_login": True})
    assert reply.json()["who"] == "bob"
    options = connector.opened[0].login.properties("PLAIN")
    assert options["sasl.mechanism"] == "OAUTHBEARER"
    assert f'token="{connector.password}"' in options["sasl.jaas.config"]
    quoted = {"Authorization": 'Bearer a" username="admin'}
    assert asked("GET", "/echo", headers=quoted, settings={"has_login": True}).status_code == 401


def test_brokers_that_do_not_answer() -> None:
    connector = FakeConnector()
    connector.is_down = True
    reply = asked("GET", "/echo", connector, ALICE, settings={"has_login": True})
    assert [reply.status_code, reply.json()["error_code"]] == [503, 50302]


def test_the_api_reads_no_cookie() -> None:
    async def work(gateway: Gateway) -> int:
        session = gateway.services.sessions.begin(Login.anonymous())
        headers = {"Cookie": f"headwater-session={session.cookie}"}
        async with gateway.client() as client:
            return (await client.get("/echo", headers=headers)).status_code

    assert tried(work, has_login=True) == 401


def test_pages_send_to_the_login() -> None:
    reply = asked("GET", "/console/topics", settings={"has_login": True})
    assert reply.status_code == 303
    assert reply.headers["location"] == "/console/login?next=/console/topics"
    assert asked("GET", "/console/login", settings={"has_login": True}).status_code == 200
    swap = asked("GET", "/console/", headers={"HX-Request": "true"}, settings={"has_login": True})
    assert [swap.status_code, swap.headers["hx-redirect"]] == [401, "/console/login?next=/console/"]


def test_a_page_of_an_open_cluster_begins_a_session() -> None:
    reply = asked("GET", "/console/")
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith("headwater-session=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    browser = {"Accept": "text/html,application/xhtml+xml"}
    assert asked("GET", "/", headers=browser).headers["location"] == "/console/"
    assert asked("GET", "/").status_code == 404  # a program's: there is no REST in this test


def test_the_cookie_over_tls() -> None:
    cookie = asked("GET", "/console/", settings={"is_tls": True}).headers["set-cookie"]
    assert cookie.startswith("__Host-headwater-session=")
    assert "Secure" in cookie
    assert "Path=/" in cookie
    assert "Domain" not in cookie


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 200),
        ({"X-CSRF-Token": "wrong"}, 403),
        ({"X-CSRF-Token": ""}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": ""}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_a_pages_write_needs_origin_and_token(change: dict[str, str], status: int) -> None:
    async def work(gateway: Gateway) -> int:
        async with gateway.client() as client:
            await client.get("/console/")
            session = gateway.services.sessions.find(client.cookies["headwater-session"])
            assert session is not None
            headers = {"Origin": OWN, "X-CSRF-Token": session.csrf, **change}
            headers = {name: text for name, text in headers.items() if text}
            return (await client.post("/console/topics", headers=headers)).status_code

    assert tried(work) == status


def test_a_session_ends_half_an_hour_after_its_last_request() -> None:
    async def work(gateway: Gateway) -> list[int]:
        session = gateway.services.sessions.begin(Login("alice"))
        headers = {"Cookie": f"headwater-session={session.cookie}"}
        found = []
        async with gateway.client() as client:
            for minutes in (29, 29, 31):
                gateway.clock.advance(minutes * 60_000)
                found.append((await client.get("/console/topics", headers=headers)).status_code)
        return found

    assert tried(work, has_login=True) == [200, 200, 303]


def test_every_write_leaves_an_audit_line() -> None:
    async def work(gateway: Gateway) -> list[str]:
        async with gateway.client() as client:
            await client.get("/echo")
            await client.post("/echo?x=1", headers=JSON, content=b"{}")
            await client.post("/nothing%0aPrincipal", headers=JSON, content=b"{}")
        return [str(line) for line in gateway.services.audit.recent()]

    begin, end = "Principal = User:ANONYMOUS asked the gateway: POST", "from host = 127.0.0.1: HTTP"
    assert tried(work) == [
        f"{begin} /nothing\\u000aPrincipal {end} 404",
        f"{begin} /echo {end} 200",
    ]


def test_who_has_not_logged_in_leaves_no_line_of_a_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headwater.audit")

    async def work(gateway: Gateway) -> list[str]:
        async with gateway.client() as client:
            for n in range(50):
                stranger = httpx.BasicAuth(f"{'x' * 9_000}{n}", "guess")
                reply = await client.post("/echo", auth=stranger)
                assert reply.status_code == 401
            assert (await client.post("/echo")).status_code == 401
            await client.post("/echo", auth=ALICE)
            gateway.clock.advance(1_000)
            await client.get("/echo", auth=("mallory", "guess"))
        return [str(line) for line in gateway.services.audit.recent()]

    [line] = tried(work, has_login=True)
    assert line.startswith("Principal = User:alice asked")
    first, own, last = (record.getMessage() for record in caplog.records)
    assert first.startswith("Principal = User:xxx") and len(first) < 500
    assert "refused a login at the gateway from host = 127.0.0.1" in first
    assert own == line
    assert "User:mallory" in last and last.endswith("(49 more logins were refused before)")


def test_long_names_are_cut_and_stay_apart() -> None:
    audit = Audit(ManualClock())
    for end in "ab":
        audit.wrote(Login("x" * 16_000 + end), "h" * 16_000, "something")
    second, first = audit.recent()
    assert first.principal != second.principal and len(str(first)) < 700


def test_parts_begin_and_end_with_the_gateway() -> None:
    part = TestPart(ROUTES)

    async def run() -> bool:
        async with running([part]):
            return part.is_started

    assert asyncio.run(run())
    assert not part.is_started
