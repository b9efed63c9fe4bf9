"""The pages of the message browser over doubles: what they link, refuse and leave out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.client.errors import (
    AuthorizationError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from headwater.client.values import ConsumerRecord, RecordMetadata
from headwater_gateway.console.history.table_source import TableSource
from headwater_gateway.console.messages.topic_reader import TopicReader
from unit.console.consoles import Console, FakeAdmin, FakeClients, topic
from unit.console_messages.memory_logs import FakeConsumer

HOSTILE = b"<script>alert(1)</script>\xff"
RECORDS = [
    ConsumerRecord("t", 0, 0, 1000, 0, b"k", b'{"a": 1}', [("h", b"1")], 0),
    ConsumerRecord("t", 0, 1, 1001, 0, None, HOSTILE, [], 0),
    ConsumerRecord("t", 0, 2, 1002, 0, None, b"x" * 100_000, [], 0),
]


@dataclass
class Delivered:
    """A delivery that is there."""

    sent: tuple[Any, ...]

    def __await__(self) -> Any:
        yield from ()
        return RecordMetadata("t", 0, 17, 0)


class FakeProducer:
    """Notes what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def send(self, name: str, value: bytes | None, **more: Any) -> Delivered:
        self.sent.append((name, value, more))
        return Delivered(self.sent[-1])


class LogClients(FakeClients):
    """Clients with a log of one partition."""

    def __init__(self, admin: FakeAdmin) -> None:
        super().__init__(admin)
        self.made = FakeProducer()

    def consumer(self, *topics: str, **options: Any) -> FakeConsumer:
        assert not topics and "group_id" not in options
        return FakeConsumer({0: RECORDS}, {0: len(RECORDS)})

    async def producer(self) -> FakeProducer:
        return self.made


def console(*, read_only: bool = False) -> Console:
    admin = FakeAdmin(describe_topics={"t": topic("t", 1)}, describe_configs={})
    made = Console(admin, read_only=read_only)
    made.services.clients.clients = LogClients(admin)  # type: ignore[attr-defined]
    return made


@pytest.fixture
def page() -> Console:
    return console()


def test_a_bad_address_is_a_page_that_says_why(page: Console) -> None:
    reply = page.browser.get("/console/topics/t/messages?from=yesterday")
    assert reply.status_code == 400
    assert "offset:N" in reply.text and 'data-stream=""' in reply.text


def test_an_unknown_topic_is_no_page(page: Console) -> None:
    error = UnknownTopicOrPartitionError("no topic x")
    page.admin.answers["describe_topics"] = error
    assert page.browser.get("/console/topics/x/produce").status_code == 404


def test_bytes_are_a_file_whatever_they_hold(page: Console) -> None:
    reply = page.browser.get("/console/topics/t/messages/0/1/raw")
    assert reply.content == HOSTILE
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["content-disposition"].startswith("attachment")


def test_pieces_of_a_long_value(page: Console) -> None:
    found = page.browser.get("/console/topics/t/messages/0/2/piece?at=96000").json()
    assert (len(found["text"]), found["next"]) == (4000, None)
    for bad in ("at=-1", "at=x", "side=header"):
        reply = page.browser.get(f"/console/topics/t/messages/0/2/piece?{bad}")
        assert reply.status_code == 400 and reply.json()["problem"]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("messages/0/9/detail", "which has [0, 3)"),
        ("messages/7/0/detail", "no partition 7"),
        ("messages/export?format=xls", "ndjson"),
        ("messages/export?from=live", "has no end"),
        ("messages/stream?p=x", "p="),
    ],
)
def test_what_the_script_asks_in_vain_is_told_as_json(page: Console, path: str, told: str) -> None:
    reply = page.browser.get(f"/console/topics/t/{path}")
    assert reply.status_code == 400 and told in reply.json()["problem"]


def test_a_query_with_bad_rows_is_told_as_json(page: Console) -> None:
    reply = page.browser.get("/console/sql/run?q=SELECT+1&rows=many")
    assert reply.status_code == 400 and "rows is 'many'" in reply.json()["problem"]


def test_a_record_is_sent_again_byte_for_byte(page: Console) -> None:
    fields = {"resend": "0:1", "as_it_is": "1", "target": "t", "partition": ""}
    plan = page.plan("/topics/t/produce", fields)
    reply = page.confirm("/topics/t/produce", plan)
    assert reply.status_code == 303
    clients: Any = page.services.clients
    assert clients.clients.made.sent == [
        ("t", HOSTILE, {"key": None, "headers": [], "partition": None})
    ]


def test_a_record_to_edit_is_a_form_and_a_large_one_is_not(page: Console) -> None:
    assert "&#34;a&#34;: 1" in page.get("/topics/t/produce", resend="0:0")
    assert "3c 73 63" in page.get("/topics/t/produce", resend="0:1")
    assert "too large to be edited" in page.get("/topics/t/produce", resend="0:2")


def test_read_only_has_no_way_to_produce() -> None:
    closed = console(read_only=True)
    assert "Produce" not in closed.get("/topics/t/messages/0/0")
    assert closed.browser.get("/console/topics/t/produce").status_code == 404
    assert closed.browser.post("/console/topics/t/produce", data={}).status_code == 404


class ClosedConsumer(FakeConsumer):
    """Of a user who may describe the topic and not read it."""

    async def getmany(self, timeout_ms: int, max_records: int) -> list[ConsumerRecord]:
        raise AuthorizationError("ann may not read t")


class SilentConsumer(FakeConsumer):
    """Of brokers whose answers do not come."""

    def statistics(self) -> SimpleNamespace:
        return SimpleNamespace(fetches=0)


def test_a_table_stays_closed_until_the_brokers_have_answered() -> None:
    reader = TopicReader(SilentConsumer({0: RECORDS}, {0: len(RECORDS)}), "t")
    with pytest.raises(KafkaTimeoutError, match="stays closed"):
        asyncio.run(reader.check_read([0]))


@pytest.mark.parametrize("source", ["table", "log"])
@pytest.mark.parametrize("path", ["stream?from=oldest", "export?from=oldest"])
def test_who_may_not_read_the_topic_reads_no_table_of_it(
    page: Console, monkeypatch: pytest.MonkeyPatch, source: str, path: str
) -> None:
    def closed(_clients: LogClients, *topics: str, **options: Any) -> FakeConsumer:
        return ClosedConsumer({0: RECORDS}, {0: len(RECORDS)})

    def opened(*_: Any) -> None:
        raise AssertionError("the table is opened")

    monkeypatch.setattr(LogClients, "consumer", closed)
    monkeypatch.setattr(TableSource, "open", opened)
    reply = page.browser.get(f"/console/topics/t/messages/{path}&src={source}")
    assert "ann may not read t" in reply.text
    assert "event: rows" not in reply.text


def test_a_topic_without_a_table_says_what_to_do(page: Console) -> None:
    assert "headwater.tables.uri" in page.get("/topics/t/history")
