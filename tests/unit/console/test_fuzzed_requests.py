"""Any address and any form: an answer below 500, and nothing done without a plan."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from headwater_gateway.console.addresses import ROOT, address
from unit.console.consoles import Console
from unit.console.full_cluster import HOSTILE, full_admin

NAMES = (
    "q",
    "sort",
    "id",
    "topic",
    "subject",
    "version",
    "against",
    "edit",
    "set",
    "done",
    "internal",
)
FIELDS = (
    *("name", "partitions", "replication", "configs", "before", "partition", "replicas", "to"),
    *("value", "topic", "key", "reset", "principal", "permission", "operation", "resource"),
    *("pattern", "host", "delete", "user", "mechanism", "quota", "client-id", "ip", "level"),
    *("kind", "schema", "subject", "first_offset", "fields", "seal"),
)
TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["", "0", "-1", "1" * 400, "flights", "READ", "TOPIC", "LITERAL", HOSTILE, "\ud800"]
    ),
)
VALIDATED = ("create_topics", "create_partitions", "alter_configs")
"""What a plan asks the brokers to validate."""
CONSOLE = Console(full_admin(**dict.fromkeys(VALIDATED)))
OTHERS = ("/static", "/login", "/logout")
READERS = ("/messages", "/history", "/sql")
"""Pages that read records: their own tests bring records of every kind."""


def paths(method: str) -> list[str]:
    """The console's routes of a method."""
    routes = [r for r in CONSOLE.part.routes() if isinstance(r, Route)]
    found = [r.path for r in routes if method in (r.methods or ())]
    return [p for p in found if not p.startswith(OTHERS) and not any(w in p for w in READERS)]


def filled(path: str, text: str) -> str:
    """The address of a route whose parts are this text."""
    parts = [text if part.startswith("{") else part for part in path.strip("/").split("/")]
    return address(*parts) if path != "/" else f"{ROOT}/"


def encoded(rows: dict[str, str]) -> str:
    return urlencode({k: v.encode("utf-8", "surrogatepass") for k, v in rows.items()})


ADDRESSES = (
    st.sampled_from(paths("GET")), TEXTS, st.dictionaries(st.sampled_from(NAMES), TEXTS, max_size=4)
)  # fmt: skip


@pytest.mark.parametrize("examples", [300, pytest.param(1500, marks=pytest.mark.long)])
def test_any_address_is_answered(examples: int) -> None:
    settings(max_examples=examples, deadline=None)(given(*ADDRESSES)(address_is_answered))()


def address_is_answered(path: str, part: str, query: dict[str, str]) -> None:
    reply = CONSOLE.browser.get(f"{filled(path, part or 'x')}?{encoded(query)}")
    assert reply.status_code < 500 or reply.status_code in (502, 503), reply.text


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(paths("POST")),
    TEXTS,
    st.dictionaries(st.sampled_from(FIELDS), TEXTS, max_size=8),
)
def test_any_form_is_a_plan_or_a_refusal(path: str, part: str, fields: dict[str, str]) -> None:
    before = len(CONSOLE.services.audit.recent())
    reply = CONSOLE.browser.post(
        f"{filled(path, part or 'x')}?id={part and 'app'}",
        content=encoded(fields),
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert reply.status_code < 500 or reply.status_code in (502, 503), reply.text
    assert reply.status_code != 303
    assert len(CONSOLE.services.audit.recent()) == before
