"""Writes: a plan first, then the confirmation of exactly that plan, once, in an unmoved state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from headwater.client.errors import kafka_error
from headwater.errors import ErrorCode
from headwater_gateway.app.login import Login
from headwater_gateway.console.plans import Change, Plan, Secret
from headwater_gateway.console.shell import Shell
from unit.console.consoles import Console

PATH = "/things/set"
HOSTILE = '"><script>alert(1)</script>\u202e\n'


class Things:
    """A cluster with one setting."""

    def __init__(self) -> None:
        self.value = "old"
        self.secrets: list[Mapping[str, str]] = []
        self.refusal: Exception | None = None

    def routes(self, shell: Shell) -> list[Route]:
        async def plan(request: Request, fields: Mapping[str, str]) -> Plan:
            async def apply(secrets: Mapping[str, str]) -> str:
                if self.refusal is not None:
                    raise self.refusal
                self.secrets.append(secrets)
                self.value = fields["value"]
                return f"set to {fields['value']}"

            asked = (Secret("password", "Password"),) if "asks" in fields else ()
            change = Change("thing", self.value, fields["value"])
            return Plan("Set thing", (change,), self.value, apply, "/console/?x=1", secrets=asked)

        return shell.write(PATH, plan)


def console(things: Things, **options: Any) -> Console:
    return Console(more=things.routes, **options)


def test_a_plan_changes_nothing_and_names_the_change() -> None:
    things = Things()
    reply = console(things).browser.post(f"/console{PATH}", data={"value": "new"})
    assert reply.status_code == 200
    assert "<del>old</del>" in reply.text and "<ins>new</ins>" in reply.text
    assert things.value == "old"


def test_the_confirmation_does_it_and_is_audited() -> None:
    things = Things()
    page = console(things)
    reply = page.confirm(PATH, page.plan(PATH, {"value": "new"}))
    assert reply.status_code == 303
    assert things.value == "new"
    [line] = page.services.audit.recent()
    assert (line.principal, line.what, line.outcome) == (
        "User:ann",
        "Set thing; thing: 'old' -> 'new'",
        "done",
    )
    told = page.browser.get(reply.headers["location"]).text
    assert "set to new" in told


def test_htmx_is_sent_on_by_a_header() -> None:
    page = console(Things())
    plan = page.plan(PATH, {"value": "new"})
    reply = page.browser.post(f"/console{PATH}", data=plan, headers={"HX-Request": "true"})
    assert reply.status_code == 200
    assert reply.headers["HX-Redirect"].startswith("/console/?x=1&done=")


def test_a_moved_state_is_409_with_a_new_plan() -> None:
    things = Things()
    page = console(things)
    plan = page.plan(PATH, {"value": "new"})
    things.value = "moved"
    reply = page.confirm(PATH, plan)
    assert reply.status_code == 409
    assert "<del>moved</del>" in reply.text
    assert things.value == "moved"
    assert page.services.audit.recent() == []


def test_a_plan_is_good_for_once() -> None:
    things = Things()
    page = console(things)
    plan = page.plan(PATH, {"value": "old"})
    assert page.confirm(PATH, plan).status_code == 303
    assert page.confirm(PATH, plan).status_code == 409


def test_a_plan_is_of_one_login_and_one_change() -> None:
    things = Things()
    page = console(things)
    plan = page.plan(PATH, {"value": "new"})
    other = page.plan(PATH, {"value": "other"})
    assert page.confirm(PATH, {**plan, "fields": other["fields"]}).status_code == 409
    page.shell.login = Login("bob")
    assert page.confirm(PATH, plan).status_code == 409
    assert page.confirm(PATH, {"fields": plan["fields"]}).status_code == 200
    assert page.confirm(PATH, {**plan, "seal": "x.y"}).status_code == 409
    assert things.value == "old"


def test_secrets_are_asked_for_by_the_confirmation_only() -> None:
    things = Things()
    page = console(things)
    plan = page.plan(PATH, {"value": "new", "asks": "1"})
    assert page.confirm(PATH, plan, password="hunter2").status_code == 303
    assert things.secrets == [{"password": "hunter2"}]
    assert "hunter2" not in str(page.services.audit.recent())


def test_hostile_fields_come_back_as_they_were_and_never_as_markup() -> None:
    things = Things()
    page = console(things)
    text = page.browser.post(f"/console{PATH}", data={"value": HOSTILE}).text
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert page.confirm(PATH, page.plan(PATH, {"value": HOSTILE})).status_code == 303
    assert things.value == HOSTILE


def test_a_refusal_of_the_brokers_is_a_page_and_an_audit_line() -> None:
    things = Things()
    page = console(things)
    plan = page.plan(PATH, {"value": "new"})
    things.refusal = kafka_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic <b>")
    reply = page.confirm(PATH, plan)
    assert reply.status_code == 403
    assert "topic &lt;b&gt;" in reply.text
    assert page.services.audit.recent()[0].outcome.startswith("failed: ")


def test_a_damaged_form_is_400() -> None:
    page = console(Things())
    assert page.confirm(PATH, {"fields": "%%%", "seal": "x"}).status_code == 400


def test_read_only_has_no_route_that_writes() -> None:
    page = console(Things(), read_only=True)
    assert page.browser.post(f"/console{PATH}", data={"value": "new"}).status_code == 404
    writing = [r.path for r in page.part.routes() if "POST" in (getattr(r, "methods", None) or ())]
    assert writing == ["/login", "/logout"]


def test_nothing_but_a_signed_message_is_told() -> None:
    page = console(Things())
    assert "you were hacked" not in page.get("/", done="0123456789.you were hacked")
