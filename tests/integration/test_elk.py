"""Log lines into a topic by rsyslog and by a script, from there into OpenSearch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import Admin, Consumer, Producer
from headwater.client.admin.client import LATEST
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from suites import parts
from suites.killing import KillableProgram, wait_until
from suites.log_search import Rsyslog, SearchNode
from suites.parts import INTEGRATIONS, MissingPartError

pytestmark = [pytest.mark.integration, pytest.mark.integrations, pytest.mark.timeout(300)]
TOPIC = "mylog"
PARTITIONS = 3
WAIT_S = 60.0
JOB_S = 180.0
HOURS = {"2026-03-01T08": 3, "2026-03-01T09": 5, "2026-03-01T11": 2}
"""How many messages of syslog come in each hour."""
NO_OBJECTS = ("a plain line", '{"cut off": ', "[1, 2]")
"""Values that a script may send."""
FILE_LINES = ("disk sda is full", "naïve café ☕", 'a "quoted" \\ line')


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("elk")
    with LocalCluster(folder, next_base_port(folder), brokers=1) as started:
        yield started


def test_a_line_is_found_by_a_word_and_counted_in_its_hour(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    try:
        parts.opensearch()
        parts.rsyslog()
    except MissingPartError as error:
        pytest.skip(str(error))
    cluster.create_topic(TOPIC, PARTITIONS)
    port = next_base_port(tmp_path)
    messages = [
        f"<134>1 {hour}:{minute:02}:00Z web-{minute} shop - - - order {minute} of hour {hour[-2:]}"
        for hour, count in HOURS.items()
        for minute in range(count)
    ]
    total = len(messages) + len(FILE_LINES)
    with SearchNode(tmp_path / "search", port) as search:
        with Rsyslog(tmp_path / "rsyslog", cluster.bootstrap, port + 2) as rsyslog:
            rsyslog.send(*messages)
            with rsyslog.file.open("a") as file:
                file.writelines(f"{line}\n" for line in FILE_LINES)
            wait_until(lambda: records(cluster, TOPIC) == total, "lines in the topic", WAIT_S)
        with Producer(cluster.bootstrap) as producer:
            for text in (*NO_OBJECTS, None):
                producer.send(TOPIC, text)
        search.wait()
        condition = "message LIKE '%of hour 09' OR message LIKE '%disk%'"
        index(cluster, search, tmp_path / "filtered", "--filter", condition)
        assert hits(search.search(TOPIC, size=100))[0] == HOURS["2026-03-01T09"] + 1
        # From the beginning again: the same documents, not others.
        index(cluster, search, tmp_path / "all")
        count, _ = hits(search.search(TOPIC))
        assert count == total + len(NO_OBJECTS)

        count, found = hits(search.search(TOPIC, query={"match": {"message": "disk"}}))
        assert (count, found[0]["message"].strip(), found[0]["tag"]) == (1, FILE_LINES[0], "app")
        _, found = hits(search.search(TOPIC, query={"match": {"tag": "app"}}))
        assert {row["message"].strip() for row in found} == set(FILE_LINES)
        untagged = {"bool": {"must_not": {"exists": {"field": "tag"}}}}
        _, found = hits(search.search(TOPIC, query=untagged))
        assert {row["message"] for row in found} == set(NO_OBJECTS)
        _, found = hits(search.search(TOPIC, query={"match_phrase": {"host": "web-4"}}))
        assert [row["message"].strip() for row in found] == ["order 4 of hour 09"]
        histogram = {"date_histogram": {"field": "@timestamp", "fixed_interval": "1h"}}
        of_shop = {"match": {"tag": "shop"}}
        told = search.search(TOPIC, size=0, query=of_shop, aggs={"hours": histogram})
        buckets = told["aggregations"]["hours"]["buckets"]
        counts = {b["key_as_string"][:13]: b["doc_count"] for b in buckets if b["doc_count"]}
        assert counts == HOURS


def test_a_script_ships_a_file_as_it_grows(cluster: LocalCluster, tmp_path: Path) -> None:
    topic = cluster.create_topic("scripted")
    file = tmp_path / "app.log"
    file.write_text("before\n")
    headwater = Path(sys.executable).with_name("headwater")
    script = f"tail -n +1 -F {file} | {headwater} produce {topic} --bootstrap-server"
    command = ("bash", "-c", f"{script} {cluster.bootstrap}")
    with KillableProgram(command, tmp_path / "script.log") as shipper:
        wait_until(lambda: records(cluster, topic) == 1, shipper.log_text(), WAIT_S)
        with file.open("a") as grown:
            grown.write("after\nlast\n")
        wait_until(lambda: records(cluster, topic) == 3, shipper.log_text(), WAIT_S)
    options = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 1_000}
    with Consumer(topic, bootstrap_servers=cluster.bootstrap, **options) as consumer:
        assert [record.value for record in consumer] == [b"before", b"after", b"last"]


def index(cluster: LocalCluster, search: SearchNode, checkpoint: Path, *options: str) -> None:
    """Run the example's job over all that is in the topic."""
    job = INTEGRATIONS / "elk" / "index_lines.py"
    target = ("--index", TOPIC, "--hosts", f"http://127.0.0.1:1,{search.url}")
    source = ("--bootstrap-server", cluster.bootstrap, "--checkpoint", str(checkpoint))
    done = subprocess.run(
        [sys.executable, str(job), TOPIC, *target, *source, "--json", *options],
        capture_output=True,
        text=True,
        timeout=JOB_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout)["job"] == "index-lines"


def records(cluster: LocalCluster, topic: str) -> int:
    """How many records the topic has."""
    with Admin(cluster.bootstrap) as admin:
        partitions = admin.describe_topics([topic])[topic].partitions
        ends = admin.list_offsets({(topic, p.partition): LATEST for p in partitions})
    return sum(row.offset for row in ends.values())


def hits(reply: dict) -> tuple[int, list[dict]]:
    """The count and the documents of a search."""
    return reply["hits"]["total"]["value"], [row["_source"] for row in reply["hits"]["hits"]]
