"""The console in the gateway's shell: log in, log out, and what other sites cannot do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from headwater_gateway.app.settings import GatewaySettings
from headwater_gateway.console.part import ConsolePart
from headwater_gateway.rest.registry_port import NoRegistry
from unit.console.full_cluster import full_admin
from unit.gateway.gateways import PASSWORD, FakeConnector, running

ORIGIN = "http://localhost:8082"
FORM = {"user": "alice", "password": PASSWORD}
CONFIG = {"key": "retention.ms", "value": "7"}
Act = Callable[[httpx.AsyncClient], Awaitable[None]]


def with_browser(act: Act, *, has_login: bool, admin: Any = None) -> None:
    """Run `act` with a client that keeps cookies and names its origin, as browsers do."""

    async def run() -> None:
        part = ConsolePart(GatewaySettings("127.0.0.1:9092", has_login=has_login), NoRegistry())
        connector = FakeConnector(admin or full_admin(alter_configs=None))
        async with (
            running([part], connector, has_login=has_login) as gateway,
            gateway.client(headers={"Origin": ORIGIN}) as browser,
        ):
            await act(browser)

    asyncio.run(run())


def token(page: httpx.Response) -> str:
    found = re.search(r"X-CSRF-Token&#34;:&#34;(\w+)", page.text)
    assert found is not None
    return found[1]


def test_a_login_begins_a_session_and_goes_on() -> None:
    async def act(browser: httpx.AsyncClient) -> None:
        sent = await browser.get("/console/topics")
        assert sent.status_code == 303
        assert sent.headers["location"].startswith("/console/login?next=")
        form = await browser.get(sent.headers["location"])
        assert form.status_code == 200 and 'name="password"' in form.text
        done = await browser.post(sent.headers["location"], data=FORM)
        assert done.status_code == 303 and done.headers["location"] == "/console/topics"
        page = await browser.get("/console/topics")
        assert "alice" in page.text and "Log out" in page.text
        left = await browser.post("/console/logout", headers={"X-CSRF-Token": token(page)})
        assert left.status_code == 303
        assert (await browser.get("/console/topics")).status_code == 303

    with_browser(act, has_login=True)


@pytest.mark.parametrize("form", [{**FORM, "password": "wrong"}, {"user": "", "password": ""}, {}])
def test_a_login_that_the_brokers_refuse_stays_on_the_form(form: dict[str, str]) -> None:
    async def act(browser: httpx.AsyncClient) -> None:
        reply = await browser.post("/console/login", data=form)
        assert reply.status_code == 401
        assert 'role="alert"' in reply.text and "set-cookie" not in reply.headers
        assert "wrong" not in reply.text

    with_browser(act, has_login=True)


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example",
        "/console/../../x",
        "/other",
        "/console/\\evil",
        "",
    ],
)
def test_after_the_login_only_pages_of_the_console_follow(target: str) -> None:
    async def act(browser: httpx.AsyncClient) -> None:
        reply = await browser.post("/console/login", params={"next": target}, data=FORM)
        found = reply.headers["location"]
        assert found.startswith("/console/")
        assert "evil" not in found

    with_browser(act, has_login=True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"X-CSRF-Token": "0" * 64}, 403),
        ({"X-CSRF-Token": "its", "Origin": "http://evil.example"}, 403),
        ({"X-CSRF-Token": "its", "Origin": "null"}, 403),
        ({"X-CSRF-Token": "its", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"X-CSRF-Token": "its"}, 200),
    ],
)
def test_a_change_needs_the_sessions_token_and_this_origin(
    headers: dict[str, str], status: int
) -> None:
    admin = full_admin(alter_configs=None)

    async def act(browser: httpx.AsyncClient) -> None:
        page = await browser.get("/console/topics/flights/configs")
        given = {k: token(page) if v == "its" else v for k, v in headers.items()}
        reply = await browser.post("/console/topics/flights/configs", data=CONFIG, headers=given)
        assert reply.status_code == status, reply.text
        assert bool(admin.named("alter_configs")) is (status == 200)

    with_browser(act, has_login=False, admin=admin)


def test_pages_carry_a_policy_without_inline_scripts_and_are_not_kept() -> None:
    async def act(browser: httpx.AsyncClient) -> None:
        page = await browser.get("/console/")
        policy = page.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "unsafe" not in policy
        assert page.headers["cache-control"] == "no-store"
        # Another policy has browsers send `Origin: null` with same-origin writes.
        assert page.headers["referrer-policy"] == "same-origin"

    with_browser(act, has_login=False)
