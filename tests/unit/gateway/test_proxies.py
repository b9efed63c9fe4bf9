"""Behind a proxy that ends TLS: whose X-Forwarded-* headers count, and what they change."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headwater.errors import UsageError
from headwater_gateway.app.parts import Face, Login
from headwater_gateway.command import addresses
from unit.gateway.gateways import ALICE, TestPart, running

PROXY = "127.0.0.1"
NAME = "gateway.example"
FORWARDED = {"Host": NAME, "X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}


async def told(request: Request) -> Response:
    """What the gateway knows of who asks."""
    assert request.client is not None
    return JSONResponse({"url": str(request.base_url), "host": request.client.host})


def asked(
    method: str, path: str, headers: dict[str, str], proxies: tuple[str, ...] = (PROXY,)
) -> tuple[httpx.Response, list[str]]:
    """The reply, and the hosts of the audit lines. httpx asks from 127.0.0.1."""

    async def run() -> tuple[httpx.Response, list[str]]:
        routes = [Route("/told", told, methods=["GET", "POST"])]
        parts = [TestPart(routes), TestPart(routes, Face.PAGES)]
        settings: dict[str, Any] = {
            "trusted_proxies": proxies, "allowed_hosts": (NAME,), "has_login": True
        }  # fmt: skip
        async with running(parts, **settings) as gateway, gateway.client(auth=ALICE) as client:
            reply = await client.request(method, path, headers=headers)
            return reply, [line.host for line in gateway.services.audit.recent()]

    return asyncio.run(run())


def test_the_proxy_tells_scheme_and_client() -> None:
    reply, hosts = asked("POST", "/told", FORWARDED | {"Origin": f"https://{NAME}"})
    assert reply.json() == {"url": f"https://{NAME}/", "host": "203.0.113.7"}
    assert hosts == ["203.0.113.7"]
    assert reply.headers["strict-transport-security"]


def test_of_a_chain_the_last_address_that_is_no_proxy_counts() -> None:
    chain = {"X-Forwarded-For": "198.51.100.1, 203.0.113.7, 10.9.0.4"}
    reply, _ = asked("GET", "/told", FORWARDED | chain, (PROXY, "10.9.0.0/16"))
    assert reply.json()["host"] == "203.0.113.7", "what a client writes itself is passed over"


@pytest.mark.parametrize("proxies", [(), ("10.1.2.3",)], ids=["none", "another"])
def test_headers_of_others_change_nothing(proxies: tuple[str, ...]) -> None:
    reply, _ = asked("GET", "/told", FORWARDED, proxies)
    assert reply.json() == {"url": f"http://{NAME}/", "host": "127.0.0.1"}


def test_what_the_proxy_took_over_plain_http_is_refused() -> None:
    reply, _ = asked("GET", "/told", FORWARDED | {"X-Forwarded-Proto": "http"})
    assert reply.status_code == 403 and "over https" in reply.text


def test_a_host_that_only_a_header_names_is_strange() -> None:
    headers = FORWARDED | {"Host": "evil.example", "X-Forwarded-Host": NAME}
    assert asked("GET", "/told", headers)[0].status_code == 421


def test_the_cookie_is_for_tls_alone() -> None:
    async def run() -> str:
        async with running([], has_login=True, trusted_proxies=(PROXY,)) as gateway:
            sessions, reply = gateway.services.sessions, Response()
            sessions.set_cookie(reply, sessions.begin(Login("alice")))
            return reply.headers["set-cookie"]

    cookie = asyncio.run(run())
    assert cookie.startswith("__Host-headwater-session=") and "Secure" in cookie


def test_an_origin_without_tls_is_strange() -> None:
    reply, _ = asked("POST", "/told", FORWARDED | {"Origin": f"http://{NAME}"})
    assert reply.status_code == 403


@pytest.mark.parametrize("text", ["*", "proxy.example", "10.0.0.1/8", ""])
def test_a_proxy_is_named_by_its_address(text: str) -> None:
    with pytest.raises(UsageError, match="give the address of the proxy"):
        addresses(click.Context(click.Command("x")), None, (text,))
