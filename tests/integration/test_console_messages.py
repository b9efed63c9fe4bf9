"""The message browser over a real cluster, in headless Chromium: hostile records, a filter, a live
tail, a record in full, a record produced."""

from __future__ import annotations

import csv
import io
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from headwater import Admin, NewTopic, Producer
from headwater.system import SystemClock
from headwater_tier.commit import commit_facts, ensure_table
from headwater_tier.data_files import tier_range
from headwater_tier.offset_ranges import plan_ranges
from integration.browser_page import BrowserPage, open_page
from integration.cluster import LocalCluster
from integration.console_process import serving_console
from tier_log import CountingEntropy, MemoryLog, location_at

pytestmark = pytest.mark.integration

HTML = b"<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
HOSTILE: list[bytes | None] = [
    HTML,
    json.dumps({"html": HTML.decode(), "bidi": "abc\u202edcba", "id": 2**53 + 1}).encode(),
    b"\xff\xfe\0binary",
    b'{"lone": "\\ud800"}',
    b'{"a":' * 900 + b"1" + b"}" * 900,
    b'["' + b"x" * 700_000 + b'"]',
    b"\0\0\0\0\x63no schema",
    b"=1+1",
    b"",
    None,
]
HEADERS = [(HTML.decode(), b"1"), ("bidi\u202e", b"\xff"), ("none", None)]
DELAYS = 5_000
ENDED = "document.querySelector('[data-stream]')?.dataset.ended !== undefined"


@pytest.fixture(scope="module")
def cluster(shared_cluster: LocalCluster) -> LocalCluster:
    with Admin(shared_cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("hostile", 1, 1), NewTopic("delays", 3, 1)])
    with Producer(shared_cluster.bootstrap) as producer:
        for value in HOSTILE:
            producer.send("hostile", value, key=HTML, headers=HEADERS)
        for number in range(DELAYS):
            value = json.dumps({"delay": number, "carrier": "UA"}).encode()
            producer.send("delays", value, key=b"%d" % (number % 7))
    return shared_cluster


@pytest.fixture(scope="module")
def url(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("console") / "console.log"
    with serving_console(cluster.bootstrap, log) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserPage]:
    with open_page(tmp_path_factory.mktemp("profile")) as found:
        yield found


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as reply:
        assert "attachment" in reply.headers["content-disposition"]
        assert reply.headers["content-type"] == "application/octet-stream"
        return str(reply.read().decode())


def assert_untouched(page: BrowserPage) -> None:
    """What a record holds has become text: no element, no script, nothing for anyone to run."""
    assert page.run("document.querySelectorAll('main img, main script').length") == 0
    assert page.run("document.title") != "owned"
    assert page.problems == []


def test_hostile_records_are_text(url: str, page: BrowserPage) -> None:
    page.go(f"{url}/topics/hostile/messages")
    page.wait(ENDED)
    assert page.run("document.querySelectorAll('tr.message').length") == len(HOSTILE)
    page.run("document.querySelectorAll('.opener').forEach((button) => button.click())")
    page.wait(f"document.querySelectorAll('tr.opened .inside').length === {len(HOSTILE)}")
    text = page.text("[data-rows]")
    assert "<img src=x onerror=" in text and "abc\\u202edcba" in text and "\u202e" not in text
    assert str(2**53 + 1) in text
    assert "Why can't I decode this?" in text and "at byte 0" in text
    assert "700" not in page.run("document.documentElement.outerHTML.length > 3000000 ? '700' : ''")
    page.run("document.querySelectorAll('.segments button').forEach((button) => button.click())")
    assert_untouched(page)


def test_a_filter_a_record_in_full_and_more_of_it(url: str, page: BrowserPage) -> None:
    page.go(f"{url}/topics/delays/messages?filter={quote('value.delay >= 4990')}")
    page.wait(ENDED)
    assert page.run("document.querySelectorAll('tr.message').length") == 10
    assert "10 messages" in page.text("[data-state]")
    page.run("document.querySelector('.opener').click()")
    page.wait("document.querySelector('.tree button.field-name')")
    page.run("[...document.querySelectorAll('.tree button.field-name')].at(1).click()")
    added = "document.querySelector('.expression input').value"
    assert page.run(added) == 'value.delay >= 4990 && value.carrier == "UA"'
    page.go(f"{url}/topics/hostile/messages/0/5")
    page.wait("document.querySelector('.record .inside')")
    value = "document.querySelectorAll('.side-of .blob-view')[1]"
    page.run(f"{value}.querySelector('button').click()")
    page.wait(f"{value}.querySelector('pre').textContent.length === 8192")
    assert_untouched(page)


def test_a_bad_filter_is_told_at_its_place(url: str, page: BrowserPage) -> None:
    page.go(f"{url}/topics/delays/messages?filter={quote('value.delay >')}")
    page.wait(ENDED)
    assert "character 14" in page.text(".notice.bad")
    assert page.problems == []


def test_a_live_tail_shows_what_comes_and_joins_no_group(
    url: str, page: BrowserPage, cluster: LocalCluster
) -> None:
    page.go(f"{url}/topics/delays/messages?from=live&filter={quote('value.delay == -1')}")
    page.wait("document.querySelector('[data-state]').textContent.startsWith('Live')")
    with Producer(cluster.bootstrap) as producer, Admin(cluster.bootstrap) as admin:
        before = {group.group_id for group in admin.list_groups()}
        producer.send("delays", b'{"delay": 1}')
        producer.send("delays", b'{"delay": -1}')
        producer.flush()
        page.wait("document.querySelectorAll('tr.message').length === 1")
        assert {group.group_id for group in admin.list_groups()} == before
    page.run("document.querySelector('[data-stop]').click()")
    page.wait(ENDED)


def test_a_record_is_produced_by_plan_and_confirmation(url: str, page: BrowserPage) -> None:
    page.go(f"{url}/topics/delays/produce?resend=0:0")
    page.run("document.querySelectorAll('form button.main')[1].click()")
    page.wait("document.querySelector('[name=seal]')")
    assert "Send a record again to delays" in page.text("h1")
    page.run("document.querySelector('.actions button').click()")
    page.wait("document.querySelector('.notice.good')")
    assert "The record is in delays-0 at offset" in page.text(".notice.good")
    assert page.problems == []


def test_exports_keep_every_record_and_no_formula(url: str) -> None:
    lines = fetched(f"{url}/topics/hostile/messages/export?from=oldest&format=ndjson").splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["offset"] for record in records] == list(range(len(HOSTILE)))
    assert records[1]["value"]["id"] == 2**53 + 1 and records[-1]["value"] is None
    text = fetched(f"{url}/topics/hostile/messages/export?from=oldest&format=csv")
    csv.field_size_limit(1 << 20)
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0][:3] == ["partition", "offset", "timestamp"]
    assert rows[1 + HOSTILE.index(b"=1+1")][4] == "'=1+1"
    assert len(rows) == len(HOSTILE) + 1
    newest = fetched(f"{url}/topics/delays/messages/export?n=3000&format=ndjson")
    assert len(newest.splitlines()) == 3000


def test_sql_over_a_topic(url: str, page: BrowserPage) -> None:
    query = "SELECT count(*), max(value.delay) FROM delays WHERE value.carrier = 'UA'"
    page.go(f"{url}/sql?q={quote(query)}")
    page.wait("document.querySelectorAll('[data-result] td').length === 2")
    assert page.run("document.querySelectorAll('[data-result] td')[1].textContent") == "4999"
    page.go(f"{url}/sql?q={quote('SELECT count(*) FROM range(100000000000), range(100000)')}")
    page.wait("!document.querySelector('[data-stop]').hidden")
    page.run("document.querySelector('[data-stop]').click()")
    page.wait("document.querySelector('[data-state]').textContent === 'Stopped'")
    assert page.problems == []


def test_a_stream_that_does_not_open_says_why(url: str, page: BrowserPage) -> None:
    page.go(f"{url}/topics/delays/messages")
    page.wait(ENDED)
    told = "import('/console/static/parts.js').then((parts) => parts.why"
    bad = f"{told}('/console/topics/delays/messages/stream?from=soon'))"
    assert "use newest, oldest" in page.run(bad)
    page.problems.clear()  # the browser notes the answer 400


def tiered_table(cluster: LocalCluster, folder: Path) -> None:
    """A Delta table of two versions for the topic `tabled`, whose log at the brokers is empty."""
    configs = {"headwater.table.uri": str(folder)}
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("tabled", 1, 1, configs)])
        topic_id = admin.describe_topics(["tabled"])["tabled"].topic_id
    log, location = MemoryLog(), location_at(folder, "tabled", topic_id)
    clock = SystemClock()
    for seed in (1, 2):
        log.fill(0, 30)
        ranges = plan_ranges(ensure_table(location, 1), log.bounds())
        entropy = CountingEntropy(seed * 1000)
        facts = tier_range(log.fetch, ranges, location, clock=clock, entropy=entropy)
        assert facts is not None
        commit_facts(location, ranges, [facts], clock=clock)


def test_history_comes_from_the_table_alone(
    url: str, page: BrowserPage, cluster: LocalCluster, tmp_path: Path
) -> None:
    tiered_table(cluster, tmp_path)
    page.go(f"{url}/topics/tabled/history?partition=0&offset=45")
    assert "tabled-0 offset 45 is in the table since version 2" in page.text(".notice")
    assert page.text("tr.chosen td a") == "2"
    page.run("[...document.querySelectorAll('tr.chosen a')].at(1).click()")  # what it added
    page.wait(ENDED)
    assert page.run("document.querySelectorAll('tr.message').length") == 30
    assert "0:30:" in page.text("td.value") and "Delta table, version 2" in page.text(
        "[data-state]"
    )
    page.go(f"{url}/topics/tabled/history?version=9")
    assert "there is no version 9 yet: 2 is the newest" in page.text(".notice")
    page.shape(400)
    assert not page.is_wider_than_window()
    page.shape(1280)
    assert page.problems == []


def test_pages_fit_a_phone_in_the_dark(url: str, page: BrowserPage) -> None:
    page.shape(400, dark=True)
    paths = (
        "topics/hostile/messages",
        "topics/hostile/messages/0/1",
        "topics/delays/produce",
        "sql",
    )
    for path in (*paths, "topics/delays/history"):
        page.go(f"{url}/{path}")
        assert not page.is_wider_than_window(), path
    page.shape(1280)
