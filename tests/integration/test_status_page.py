"""The status port of real brokers: documents, metrics, and the status page in a browser."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headwater import Consumer, Producer
from integration import clients
from integration.cluster import LocalCluster
from integration.headless_browser import dump_dom, find_browser, screenshot

pytestmark = pytest.mark.integration

RECORDS = 3000
KEPT_S = 0.6
"""A little longer than a broker caches its documents."""
PAGE_MS = 4000
BLOCKED_SHOWN_MS = 3000
"""The page shows transactions that are open for so long."""
IDLE_RSS_MAX = 100_000_000


def get(cluster: LocalCluster, path: str, broker_id: int = 0) -> tuple[int, str]:
    connection = http.client.HTTPConnection(
        "127.0.0.1", cluster.spec.slot(broker_id).status_port, timeout=10
    )
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def get_json(cluster: LocalCluster, path: str, broker_id: int = 0) -> Any:
    status, text = get(cluster, path, broker_id)
    assert status == 200, text
    return json.loads(text)


def produce(cluster: LocalCluster, topic: str) -> None:
    with Producer(cluster.bootstrap) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"v" * 100, key=str(number).encode())


class Rows(HTMLParser):
    """The table rows of brokers and partitions: their text, and the widths of their bars."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[str]] = {}
        self.widths: dict[str, list[float]] = {}
        self.texts: list[str] = []
        self._row = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "tr":
            self._row = given.get("data-partition") or ""
            for kind in ("broker", "blocked", "epoch", "share"):
                if (name := given.get(f"data-{kind}")) is not None:
                    self._row = f"{kind} {name}"
            self.rows.setdefault(self._row, [])
        width = re.search(r"width: ([\d.]+)%", given.get("style") or "")
        if tag == "i" and width:
            self.widths.setdefault(self._row, []).append(float(width[1]))

    def handle_endtag(self, tag: str) -> None:
        if tag == "tr":
            self._row = ""

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._row:
            self.rows[self._row].append(data)


def look(cluster: LocalCluster, profile: Path, broker_id: int = 0) -> Rows:
    url = f"http://127.0.0.1:{cluster.spec.slot(broker_id).status_port}/"
    rows = Rows()
    rows.feed(dump_dom(url, profile, PAGE_MS))
    return rows


def wait_seen(cluster: LocalCluster, ready: list[bool], last_event: str) -> None:
    """Wait until both documents of broker 0, which are cached, show the event of broker 2."""

    def seen() -> bool:
        brokers = get_json(cluster, "/cluster.json")["brokers"]
        if [bool(b.get("document", {}).get("ready")) for b in brokers] != ready:
            return False
        events = brokers[0]["document"]["events"]
        return bool(events) and (events[-1]["broker_id"], events[-1]["kind"]) == (2, last_event)

    cluster.wait_until(seen, f"brokers ready: {ready}, broker 2 {last_event}")


def test_documents_metrics_and_health(shared_cluster: LocalCluster) -> None:
    topic = shared_cluster.create_topic("status-documents", partitions=2)
    produce(shared_cluster, topic)
    assert get_json(shared_cluster, "/health") == {"broker_id": 0, "ready": True}
    own = get_json(shared_cluster, "/status.json", 1)
    assert own["broker_id"] == 1 and own["ready"] and own["started_ms"] <= own["now_ms"]
    assert 0 < own["rss_bytes"] < IDLE_RSS_MAX
    for _ in range(50):  # documents are cached for half a second
        cluster = get_json(shared_cluster, "/cluster.json")
        documents = [b["document"] for b in cluster["brokers"]]
        ends = [
            row["high_watermark"]
            for d in documents
            for row in d["hosted"]["partitions"]
            if row["topic"] == topic and row["is_leader"]
        ]
        if len(ends) == 2 and sum(ends) == RECORDS:
            break
        time.sleep(0.2)
    assert [b["broker_id"] for b in cluster["brokers"]] == [0, 1, 2]
    assert sum(d["rates"]["records_in_total"] for d in documents) >= RECORDS
    assert len(ends) == 2 and sum(ends) == RECORDS
    with Consumer(
        topic,
        bootstrap_servers=shared_cluster.bootstrap,
        group_id="looked-at",
        auto_offset_reset="earliest",
    ) as reader:
        assert reader.poll(20_000)
        reader.commit({(topic, 0): 10, (topic, 1): 20})
        time.sleep(KEPT_S)
        documents = [b["document"] for b in get_json(shared_cluster, "/cluster.json")["brokers"]]
        [group] = [g for d in documents for g in d["groups"] if g["group_id"] == "looked-at"]
        assert (group["state"], group["members"]) == ("Stable", 1)
        assert [row["committed_offset"] for row in group["partitions"]] == [10, 20]
        texts = [get(shared_cluster, "/metrics", broker_id)[1] for broker_id in range(3)]
        line = f'headwater_group_lag{{group="looked-at",topic="{topic}"}} {RECORDS - 30}.0'
        assert [line in text for text in texts].count(True) == 1
        # No broker hosts all of this topic: the coordinator asks the others for their ends.
        spread = shared_cluster.create_topic("status-lag", 3, 1)
        produce(shared_cluster, spread)
        reader.commit({(spread, number): 1 for number in range(3)})
        time.sleep(KEPT_S)
        texts = [get(shared_cluster, "/metrics", broker_id)[1] for broker_id in range(3)]
        line = f'headwater_group_lag{{group="looked-at",topic="{spread}"}} {RECORDS - 3}.0'
        assert [line in text for text in texts].count(True) == 1
        fetched = [line for line in texts[0].splitlines() if 'api="FetchFollower"' in line]
        assert any(line.startswith("headwater_request_seconds_count") for line in fetched)
        idle = [line for line in texts[0].splitlines() if line.startswith("headwater_loop_idle_r")]
        assert 0 < float(idle[0].split()[1]) <= 1
    status, text = get(shared_cluster, "/metrics")
    assert status == 200 and "\nprocess_resident_memory_bytes " in text
    assert get(shared_cluster, "/nothing")[0] == 404


def test_the_page_shows_brokers_and_bars(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    find_browser()
    topic = shared_cluster.create_topic("0-status-page", partitions=3)  # the page has 300 rows
    produce(shared_cluster, topic)
    page = look(shared_cluster, tmp_path / "profile")
    for slot in shared_cluster.spec.slots:
        row = page.rows[f"broker {slot.broker_id}"]
        assert slot.address in row and "alive" in row, row
    for partition in range(3):
        name = f"{topic}-{partition}"
        assert "all hot" in page.rows[name]
        assert page.widths[name] == [0.0, 0.0, 100.0, 0.0]  # nothing is tiered: hot, all of it
    picture = tmp_path / "page.png"
    url = f"http://127.0.0.1:{shared_cluster.spec.slot(0).status_port}/"
    screenshot(url, tmp_path / "profile", PAGE_MS, picture)
    assert picture.stat().st_size > 10_000


MEASURE = """<script>
setInterval(() => {
  const cut = [...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth);
  const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  const rows = document.querySelectorAll("tbody tr");
  document.body.dataset.cut = `${cut.length} of ${rows.length} ${wide}`;
}, 100);
</script>"""


def block(document: Any, topic: str) -> None:
    """Enter readers of three partitions that wait: for two transactions, and for one that hangs."""
    leader, coordinator = document["brokers"][0]["document"], document["brokers"][1]["document"]
    at_ms = leader["now_ms"]
    leader["blocked"] = [
        {
            "topic": topic,
            "partition": n,
            "last_stable_offset": 0,
            "high_watermark": 1_234_567,
            "producer_id": 7_000 + n,
            "producer_epoch": n,
            "first_offset": 0,
            "last_timestamp_ms": at_ms - 3_600_000,
        }
        for n in range(3)
    ]
    coordinator["share_partitions"] = [
        {
            "group": f"{topic}-packers",
            "topic": topic,
            "partition": 0,
            "leader_epoch": 3,
            "failure": "",
            "start_offset": 1_000,
            "end_offset": 1_500,
            "locked": 200,
            "complete": 100,
        }
    ]
    coordinator["epochs"] = [
        {
            "sink": f"{topic}-sink",
            "epoch": 123_456,
            "ticket": 78_901,
            "state": "Prepared",
            "since_ms": at_ms - 7_200_000,
            "deadline_ms": None,
            "participants": 200,
            "markers_due": 0,
        }
    ]
    coordinator["transactions"] = [
        {
            "transactional_id": f"a-transactional-id-with-a-rather-long-name-{n}",
            "producer_id": 7_000 + n,
            "producer_epoch": n,
            "state": ("Ongoing", "PrepareCommit")[n],
            "start_ms": at_ms - 40_000,
            "last_update_ms": at_ms - 20_000,
            "timeout_ms": 10_000 if n == 0 else None,
            "principal": "User:app",
            "client_id": "app-1",
            "client_host": "10.0.0.9",
            "markers_due": 2 * n,
        }
        for n in range(2)
    ]


def is_known(cluster: LocalCluster, topic: str) -> bool:
    """Whether every broker has `topic` in its metadata and among what it hosts."""
    documents = [broker["document"] for broker in get_json(cluster, "/cluster.json")["brokers"]]
    return all(
        document is not None
        and topic in {row["topic"] for row in document["topics"]}
        and topic in {row["topic"] for row in document["hosted"]["partitions"]}
        for document in documents
    )


@contextmanager
def measured(cluster: LocalCluster, topic: str) -> Iterator[str]:
    """The URL of broker 0's page with a script that counts the tables wider than their card.

    The brokers' counters rise fast: the rates have many digits. Readers of `topic` are blocked.
    """
    page = get(cluster, "/")[1] + MEASURE
    cluster.wait_until(lambda: is_known(cluster, topic), "each broker knows the topic")
    document = get_json(cluster, "/cluster.json")
    block(document, topic)

    def busy() -> str:
        for row in (broker["document"] for broker in document["brokers"]):
            row["now_ms"] += 1_000
            row["rss_bytes"] = row["rss_bytes"] % 1_000 + 987_654_000
            for key in row["rates"]:
                row["rates"][key] += 123_456_789
        return json.dumps(document)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = busy() if self.path == "/cluster.json" else page
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    "width", [500, *(pytest.param(width, marks=pytest.mark.long) for width in (800, 1100))]
)
def test_no_table_is_cut_in_a_narrow_window(
    shared_cluster: LocalCluster, tmp_path: Path, width: int
) -> None:
    """At 500 pixels half of the columns were out of sight."""
    find_browser()
    topic = shared_cluster.create_topic(f"a-topic-with-a-rather-long-name-{width}", partitions=3)
    produce(shared_cluster, topic)
    time.sleep(KEPT_S)
    with measured(shared_cluster, topic) as url:
        dom = dump_dom(url, tmp_path / "profile", PAGE_MS, width)
    found = re.search(r'data-cut="(\d+) of (\d+) (\w+)"', dom)
    assert found is not None, dom[-2000:]
    assert found[1] == "0" and int(found[2]) >= 6 and found[3] == "false", found[0]


def test_the_page_names_the_transactions_that_block_readers(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    find_browser()
    topic = shared_cluster.create_topic("blocked-readers", partitions=3)
    with measured(shared_cluster, topic) as url:
        page = Rows()
        page.feed(dump_dom(url, tmp_path / "profile", PAGE_MS))
    first, second, third = (page.rows[f"blocked {topic}-{n}"] for n in range(3))
    assert first[:3] == [f"{topic}-0", "a-transactional-id-with-a-rather-long-name-0", "Ongoing"]
    assert "overdue" in first and "1.2 M" in first, first
    assert "7000, 0" in first and "User:app, app-1, 10.0.0.9" in first, first
    assert "PrepareCommit" in second and "overdue" not in second, second
    assert third[1] == "no coordinator knows it" and "60 min" in third, third
    epoch = page.rows[f"epoch {topic}-sink"]
    assert epoch[:5] == [f"{topic}-sink", "123456", "Prepared", "2 h", "\u2013"], epoch
    share = page.rows[f"share {topic}-packers"]
    assert share == [f"{topic}-packers", f"{topic}-0", "1,000", "500", "200", "0", "broker 1"]
    assert list(page.rows).index(f"blocked {topic}-2") < list(page.rows).index(f"blocked {topic}-0")


def test_an_open_transaction_is_in_documents_metrics_and_page(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    find_browser()
    topic = shared_cluster.create_topic("held-back")
    producer = clients.begin_transaction(shared_cluster.bootstrap, "holds-back", topic)

    def seen() -> bool:
        documents = [b["document"] for b in get_json(shared_cluster, "/cluster.json")["brokers"]]
        blocked = [row for d in documents for row in d["blocked"] if row["topic"] == topic]
        for owner in (row for d in documents for row in d["transactions"]):
            if owner["transactional_id"] == "holds-back":
                is_old = documents[0]["now_ms"] - owner["start_ms"] > BLOCKED_SHOWN_MS
                return is_old and [row["producer_id"] for row in blocked] == [owner["producer_id"]]
        return False

    shared_cluster.wait_until(seen, "the documents show it")
    texts = [get(shared_cluster, "/metrics", broker_id)[1] for broker_id in range(3)]
    lag = f'headwater_last_stable_offset_lag{{partition="0",topic="{topic}"}} 1.0'
    assert [lag in text for text in texts].count(True) == 1, texts[0]
    ages = re.findall(r'oldest_open_transaction_seconds{two_phase="false"} (\S+)', "".join(texts))
    assert len(ages) == 3 and max(map(float, ages)) > BLOCKED_SHOWN_MS / 1000
    row = look(shared_cluster, tmp_path / "profile").rows[f"blocked {topic}-0"]
    assert row[:3] == [f"{topic}-0", "holds-back", "Ongoing"], row
    producer.commit_transaction(20)


def test_the_page_shows_a_kill_and_a_restart(start_cluster: Any, tmp_path: Path) -> None:
    find_browser()
    cluster = start_cluster()
    topic = cluster.create_topic("killed", partitions=1, replication_factor=3)
    cluster.kill_broker(2)
    cluster.wait_isr(topic, 2)
    wait_seen(cluster, [True, True, False], "gone")
    page = look(cluster, tmp_path / "profile")
    assert any(text.startswith("dead") for text in page.rows["broker 2"])
    assert "broker 2 gone" in page.texts
    assert "1 broker down" in page.texts
    cluster.restart(2)
    cluster.wait_isr(topic, 3)
    wait_seen(cluster, [True, True, True], "back")
    page = look(cluster, tmp_path / "profile")
    assert "alive" in page.rows["broker 2"]
    assert any(text.startswith("broker 2 back after ") for text in page.texts)
