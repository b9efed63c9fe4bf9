"""The page of completeness over doubles: what differs first, the command where nobody counts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from headwater.client.errors import kafka_error
from headwater.client.values import ConsumerRecord
from headwater.errors import ErrorCode
from headwater_gateway.console.addresses import address
from headwater_tier.audit.minutes import MinuteRow
from headwater_tier.audit.report_topic import REPORT_TOPIC, document
from unit.console.consoles import Console, FakeAdmin, FakeClients, topic
from unit.console_messages.memory_logs import FakeConsumer

MINUTE_MS = 1_764_000_000_000
HOSTILE = "<script>alert(1)</script>\u202e"
ROWS = [
    MinuteRow("flights", MINUTE_MS + 60_000, 40, {"table": 40}, True),
    MinuteRow("flights", MINUTE_MS, 100, {"table": 97}, True),
    MinuteRow(HOSTILE, MINUTE_MS + 120_000, 5, {HOSTILE: 1}, False),
]


class ReportClients(FakeClients):
    """Clients with a report of one partition."""

    def consumer(self, *topics: str, **options: Any) -> FakeConsumer:
        values = [json.dumps(document(row)).encode() for row in ROWS] + [b"no minute"]
        log = [
            ConsumerRecord(REPORT_TOPIC, 0, offset, 0, 0, b"k", value, [], 0)
            for offset, value in enumerate(values)
        ]
        return FakeConsumer({0: log}, {0: len(log)})


def console(admin: FakeAdmin) -> Console:
    page = Console(admin)
    clients: Any = page.services.clients
    clients.clients = ReportClients(admin)
    asyncio.run(page.part.close())
    asyncio.run(page.part.start(page.services))
    return page


def test_what_differs_comes_first_and_links_its_records() -> None:
    admin = FakeAdmin(describe_topics={REPORT_TOPIC: topic(REPORT_TOPIC, 1)}, describe_configs={})
    text = console(admin).get("/completeness")
    states = [text.index(f">{state}</span>") for state in ("differs", "open", "equal")]
    assert states == sorted(states)
    assert ">-3</span>" in text and "1 records of audit-minutes are no minutes" in text
    link = address("topics", "flights", "messages", from_=f"ts:{MINUTE_MS}")
    assert link in text
    assert "<script>alert" not in text and "\u202e" not in text


def test_the_filter_finds_topics_places_and_states() -> None:
    admin = FakeAdmin(describe_topics={REPORT_TOPIC: topic(REPORT_TOPIC, 1)}, describe_configs={})
    page = console(admin)
    assert ">equal</span>" not in page.get("/completeness", q="flights differs")
    assert ">equal</span>" in page.get("/completeness", q="table equal")


def test_without_a_report_it_gives_the_command() -> None:
    missing = kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "audit-minutes does not exist")
    page = Console(FakeAdmin(describe_topics=missing))
    assert "headwater audit TOPIC --group GROUP --table --every 60 --to " in page.get(
        "/completeness"
    )
    assert "--to mine" in page.get("/completeness", report="mine")


def test_who_may_not_read_the_report_is_told() -> None:
    refused = kafka_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
    reply = Console(FakeAdmin(describe_topics=refused)).browser.get("/console/completeness")
    assert reply.status_code == 403
