"""Each page: it shows what is there, and hostile names stay text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from headwater.client.errors import kafka_error
from headwater.client.values import GroupDescription
from headwater.errors import ErrorCode
from headwater_gateway.console.addresses import ROOT, address
from unit.console.consoles import Console, FakeAdmin, topic
from unit.console.full_cluster import HOSTILE, full_admin

PAGES = [
    address(),
    address("topics"),
    address("topics", q=HOSTILE, sort=HOSTILE, internal=True),
    address("topic-new"),
    address("topics", "flights"),
    address("topics", "flights", "readers"),
    address("topics", "flights", "producers"),
    address("topics", "flights", "producers", q=HOSTILE, sort="-open"),
    address("topics", "flights", "configs"),
    address("topics", "flights", "configs", edit="cleanup.policy", set=True),
    address("groups"),
    address("group", id=HOSTILE),
    address("share-groups"),
    address("share-group", id=HOSTILE),
    address("transactions"),
    address("transactions", topic="flights", q=HOSTILE),
    address("transaction", id=HOSTILE),
    address("brokers"),
    address("brokers", 0),
    address("brokers", "all", "configs"),
    address("moves"),
    address("configs"),
    address("access"),
    address("access", "users"),
    address("access", "quotas"),
    address("schemas"),
    address("audit", q=HOSTILE),
]


class Outline(HTMLParser):
    """The elements of a page that could run something, its links, and what labels it has."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str | None] = []
        self.images = 0
        self.handlers: list[str] = []
        self.links: list[str] = []
        self.unlabelled: list[str] = []
        self.tags: list[str] = []
        self.shown = ""
        """Texts, and attributes without the values of fields, which come back as they are."""
        self._open_labels = 0

    def handle_data(self, data: str) -> None:
        self.shown += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.shown += str([v for k, v in attrs if (tag, k) != ("input", "value")])
        self.handlers += [name for name in given if name.startswith("on") or name == "style"]
        if tag == "script":
            self.scripts.append(given.get("src"))
        if tag == "img":
            self.images += 1
        if tag == "a":
            self.links.append(given.get("href") or "")
        if tag == "label":
            self._open_labels += 1
        is_field = tag in ("input", "select", "textarea") and given.get("type") != "hidden"
        if is_field and not self._open_labels and "aria-label" not in given:
            self.unlabelled.append(str(given))

    def handle_endtag(self, tag: str) -> None:
        if tag == "label":
            self._open_labels -= 1


def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    return found


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("read_only", [False, True], ids=["", "read-only"])
def test_hostile_names_stay_text_on_every_page(page: str, read_only: bool) -> None:
    if read_only and page == address("topic-new"):
        return
    console = Console(full_admin(), read_only=read_only)
    reply = console.browser.get(page)
    assert reply.status_code == 200, reply.text
    found = outline(reply.text)
    assert found.images == 0 and found.handlers == []
    assert all(src is not None and src.startswith(f"{ROOT}/static/") for src in found.scripts)
    assert all(link.startswith((f"{ROOT}/", "#")) for link in found.links), found.links
    assert "\u202e" not in found.shown and "\x1b" not in found.shown


@pytest.mark.parametrize("page", PAGES)
def test_landmarks_and_labels(page: str) -> None:
    found = outline(Console(full_admin()).browser.get(page).text)
    for landmark in ("main", "nav", "header", "h1"):
        assert landmark in found.tags, landmark
    assert found.unlabelled == []


@pytest.mark.parametrize("page", PAGES)
def test_read_only_pages_have_no_form_that_writes(page: str) -> None:
    if page == address("topic-new"):
        return
    text = Console(full_admin(), read_only=True).browser.get(page).text
    assert text.count("hx-post") == 0


def test_the_overview_names_what_is_ill() -> None:
    text = Console(full_admin()).get("/")
    assert "no leader" in text and "1 of 1 partitions" in text
    assert "under-replicated" in text
    assert "open transaction" in text and "holds 100 records of flights-1" in text
    assert "BLOCKED" in text


def test_a_healthy_cluster_is_told_to_be_well() -> None:
    assert "All is well." in Console().get("/")


def test_topics_are_filtered_and_sorted_by_the_address() -> None:
    console = Console(full_admin())
    text = console.get("/topics", q="EHI")
    assert "behind" in text and 'topics/flights"' not in text
    text = console.get("/topics", sort="-partitions")
    assert text.index("topics/flights") < text.index("topics/behind") < text.index("topics/lost")
    assert 'aria-sort="descending"' in text
    assert "No topic matches" in console.get("/topics", q="nothing like it")


def test_a_long_list_begins_with_some_rows_and_asks_for_the_others() -> None:
    rows = {f"t{i:04d}": topic(f"t{i:04d}", 1) for i in range(1_200)}
    console = Console(full_admin(describe_topics=rows))
    first = console.get("/topics", sort="-name")
    assert first.count("<tr>") == 1 + 100
    assert 'hx-get="/console/topics?sort=-name" hx-trigger="load"' in first
    reply = console.browser.get(address("topics", sort="-name"), headers={"HX-Request": "true"})
    assert reply.text.count("<tr>") == 1 + 1_000
    assert "200 more topics match: narrow the filter" in reply.text
    assert 'hx-trigger="load"' not in reply.text
    assert 'hx-trigger="tick from' in first and 'hx-trigger="slow-tick from' in reply.text


def test_a_topic_shows_what_is_cold_and_what_is_hot() -> None:
    text = Console(full_admin()).get("/topics/flights")
    assert "200 in Delta alone, 400 in both, 300 in brokers alone" in text
    assert "tiered to Delta" in text and "moving" in text
    assert "retention.ms <b>24.0 h</b>" in text


def test_an_unknown_topic_is_404() -> None:
    admin = full_admin(
        describe_topics=kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic nope")
    )
    reply = Console(admin).browser.get(address("topics", "nope"))
    assert reply.status_code == 404 and "topic nope" in reply.text


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 403),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 403),
        (ErrorCode.INVALID_CONFIG, 400),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 502),
    ],
)
def test_refusals_of_the_brokers_are_pages(code: ErrorCode, status: int) -> None:
    admin = full_admin(describe_topics=kafka_error(code, "the detail"))
    reply = Console(admin).browser.get(address("topics"))
    assert reply.status_code == status
    assert "the detail" in reply.text and "Overview" in reply.text


def test_a_group_shows_lag_verdict_and_links() -> None:
    text = Console(full_admin()).get("/group", id=HOSTILE)
    assert "flights-1: an open transaction holds 100 records from offset 900 on" in text
    assert (
        address("topics", "flights", "messages", p=1, from_="offset", offset=900).replace(
            "&", "&amp;"
        )
        in text
    )


def test_the_chart_of_a_group_gets_its_series() -> None:
    reply = Console(full_admin()).browser.get(address("group", "lag.json", id=HOSTILE))
    assert reply.json()["series"] == [{"label": "flights", "values": [100]}]
    assert len(reply.json()["times"]) == 1


def test_a_group_that_is_not_there_is_404() -> None:
    admin = full_admin(
        list_groups=[], describe_groups={"x": GroupDescription("x", "Dead", "", "", ())}
    )
    assert Console(admin).browser.get(address("group", id="x")).status_code == 404


def test_the_address_that_people_write_leads_to_the_group() -> None:
    reply = Console(full_admin()).browser.get(f"{ROOT}/groups/a%20b%2Fc")
    assert reply.status_code == 307
    assert reply.headers["location"] == address("group", id="a b/c")


def test_a_group_that_is_not_there_says_where_the_others_are() -> None:
    reply = Console(full_admin()).browser.get(address("group", id="dealys"))
    assert reply.status_code == 404
    assert "there is no group" in reply.text and "neither members nor committed" in reply.text


def test_an_address_of_no_page_is_a_page_that_says_so() -> None:
    browser = Console(full_admin()).browser
    reply = browser.get(f"{ROOT}/goups")
    assert reply.status_code == 404
    assert "there is no page /console/goups" in reply.text and 'id="nav"' in reply.text
    assert browser.post(f"{ROOT}/goups").status_code == 404


def test_a_share_group_shows_where_it_begins_and_what_is_not_settled() -> None:
    text = Console(full_admin()).get("/share-group", id=HOSTILE)
    at = address("topics", "flights", "messages", p=1, from_="offset", offset=900)
    assert at.replace("&", "&amp;") in text and ">57<" in text
    assert "once its consumers are stopped" in text


def test_share_groups_that_are_not_there_say_so() -> None:
    reply = Console(full_admin()).browser.get(address("share-group", id="nobody"))
    assert reply.status_code == 404
    assert "there is no share group &#39;nobody&#39;" in reply.text
    old = full_admin(list_share_groups=kafka_error(ErrorCode.UNSUPPORTED_VERSION, "key 76"))
    assert "These brokers have no share groups" in Console(old).get("/share-groups")


def test_what_holds_readers_names_the_transaction_and_the_group() -> None:
    text = Console(full_admin()).get("/transactions")
    assert "marker not written" in text
    assert "NOT_LEADER_OR_FOLLOWER" in text
    assert address("group", id=HOSTILE) in text


def test_sensitive_configs_are_hidden() -> None:
    text = Console(full_admin()).get("/topics/flights/configs")
    assert '<span class="muted">hidden</span>' in text


def test_a_cluster_without_authorizer_says_so() -> None:
    admin = full_admin(describe_acls=kafka_error(ErrorCode.SECURITY_DISABLED, "none"))
    assert "has no authorizer" in Console(admin).get("/access")


def test_audit_shows_the_lines_of_others_to_who_may_alter_the_cluster() -> None:
    for rights, is_seen in ((frozenset(), False), (None, True)):
        answers = {} if rights is None else {"cluster_operations": rights}
        console = Console(full_admin(**answers))
        console.services.audit.wrote(type(console.shell.login)("bob"), "h", "deleted all", "done")
        assert ("deleted all" in console.get("/audit")) is is_seen


def test_pages_without_rights_on_details_still_show() -> None:
    refused = kafka_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
    admin = full_admin(
        describe_log_dirs=refused,
        describe_configs=refused,
        transaction_blockers=refused,
        list_partition_reassignments=refused,
        describe_client_quotas=refused,
        cluster_operations=refused,
    )
    console = Console(admin)
    for path in ("/", "/topics", "/topics/flights", "/brokers", "/transactions", "/audit"):
        console.get(path)


def test_static_files_are_kept_by_their_digest() -> None:
    console = Console(FakeAdmin())
    [link] = [link for link in console.get("/").split('"') if "console.css" in link]
    reply = console.browser.get(link)
    assert "immutable" in reply.headers["cache-control"]
    assert "cache-control" not in console.browser.get(f"{ROOT}/static/console.css").headers
    for name in ("../part.py", "%2e%2e/part.py", "nope.css", "vendor"):
        assert console.browser.get(f"{ROOT}/static/{name}").status_code == 404
