"""A topic's tab of producers: who writes, whose transaction is open, and what it holds back."""

from __future__ import annotations

from headwater.client.errors import kafka_error
from headwater.client.values import ProducerDescription, TopicPartition
from headwater.errors import ErrorCode
from headwater_gateway.console.addresses import address
from headwater_gateway.console.views.topic_producers import rows_of
from unit.console.consoles import Console, topic
from unit.console.full_cluster import HOSTILE, PRODUCERS, full_admin


def link(*parts: object, **query: object) -> str:
    return f'href="{address(*parts, **query)}"'.replace("&", "&amp;")


def test_an_open_transaction_is_named_and_led_to() -> None:
    text = Console(full_admin()).get("/topics/flights/producers")
    assert link("transaction", id=HOSTILE) in text
    assert link("topics", "flights", "messages", p=1, from_="offset", offset=900) in text
    assert "holds 100" in text, "from the last stable offset to the high watermark"
    assert link("topics", "flights", "producers") in text, "the tab is there"
    assert "<b>2</b><span>producers</span>" in text
    assert "<b>1</b><span>open transactions</span>" in text
    assert "<b>1</b><span>hold readers</span>" in text


def test_leaders_are_asked_and_partitions_without_one_are_told() -> None:
    admin = full_admin(describe_topics={"lost": topic("lost", 2, leader=-1)})
    text = Console(admin).get("/topics/lost/producers")
    assert "2 of its partitions have no leader" in text
    assert "No idempotent producer has written here" in text
    admin = full_admin()
    Console(admin).get("/topics/flights/producers")
    [(asked,)] = admin.named("describe_producers")
    assert asked == [TopicPartition("flights", p) for p in range(3)]


def test_producers_are_filtered_and_sorted_by_the_address() -> None:
    console = Console(full_admin())
    assert "No producer matches" in console.get("/topics/flights/producers", q="9999")
    only = console.get("/topics/flights/producers", q="open")
    assert '<td class="number">7</td>' in only and '<td class="number">8</td>' not in only
    last = console.get("/topics/flights/producers", sort="producer")
    assert last.index(">7</td>") < last.index(">8</td>")


def test_without_rights_on_transactions_the_leaders_answer_is_shown() -> None:
    refused = kafka_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
    admin = full_admin(transaction_blockers=refused, list_transactions=refused)
    text = Console(admin).get("/topics/flights/producers")
    assert link("topics", "flights", "messages", p=1, from_="offset", offset=900) in text
    refused = kafka_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "flights")
    reply = Console(full_admin(describe_producers=refused)).browser.get(
        address("topics", "flights", "producers")
    )
    assert reply.status_code == 403


def test_a_blocker_of_another_producer_is_not_taken_for_this_one() -> None:
    """A transaction ended and another began between the two answers."""
    blocker = full_admin().answers["transaction_blockers"][0]
    later = ProducerDescription(7, 0, 50, 1, 1, 950)
    tp = TopicPartition("flights", 1)
    [row] = rows_of({tp: [later]}, [], [blocker])
    assert (row.open_from, row.blocker, row.transactional_id) == (950, None, None)
    [row, ended] = rows_of({tp: PRODUCERS}, [], [blocker])
    assert row.blocker is blocker and ended.blocker is None
    assert (row.last_sequence, ended.last_sequence) == (41, None)
