"""The catalog: what changed is committed once, secrets sealed, whoever else writes."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from deltalake import DeltaTable, write_deltalake

from catalog_doubles import A, B, MemoryNodes, a_cluster, assignment, config
from headwater.errors import HeadwaterError, UsageError
from headwater.security.sealed import Sealer
from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_tier.catalog.observer import merged_ends
from headwater_tier.catalog.rows import CatalogRow, Key, Kind, dump, kind_of
from headwater_tier.catalog.table import CatalogOvertakenError, CatalogTable, catalog_uri
from headwater_tier.catalog.writer import CatalogWriter
from headwater_tier.delta import TableStateError

KEY = b"k" * 32
USER = (Kind.SCRAM, "/config/users/alice")


class Bench:
    """A writer over a cluster in memory."""

    def __init__(self, folder: Path, key: bytes | None = KEY) -> None:
        self.nodes, self.said = a_cluster()
        self.clock = ManualClock()
        self.uri = catalog_uri(folder.as_uri())
        self.entropy = SeededEntropy(1)
        self.sealer = Sealer(key, self.entropy) if key else None
        self.writer = self.open(self.nodes)

    def open(self, nodes: MemoryNodes) -> CatalogWriter:
        table = CatalogTable.create(self.uri, {})
        return CatalogWriter(table, nodes, self.said, self.clock, self.entropy, self.sealer)

    def catalog(self) -> dict[Key, CatalogRow]:
        return CatalogTable(self.uri, {}).catalog()

    def later(self, ms: int = 6_000) -> int:
        self.clock.advance(ms)
        return self.writer.tick()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_first_tick_commits_all_and_the_next_nothing(bench: Bench) -> None:
    assert bench.writer.tick() > 10
    found = bench.catalog()
    topic = found[Kind.TOPIC, "/brokers/topics/tiered"]
    assert topic.value()["partitions"] == {"0": [0, 1], "1": [1, 0]}
    assert (topic.controller_epoch, topic.zxid > 0, topic.time_ms) == (
        7,
        True,
        bench.clock.now_ms(),
    )
    assert found[Kind.ENDS, "tiered"].value()["ends"] == {"0": [600, 3], "1": [5, 4]}
    assert found[Kind.GROUP, "app"].value()["offsets"]["tiered"] == {"0": [300, "m"]}
    starts = found[Kind.SHARE_GROUP, "queue"].value()["starts"]["tiered"]["starts"]
    assert starts == {"0": 120, "1": 4}
    assert (Kind.TOPIC, "/brokers/topics/__consumer_offsets") not in found
    assert (Kind.ACL, "/kafka-acl/Topic") not in found, "it holds nothing by itself"
    version = CatalogTable(bench.uri, {}).version
    assert bench.later() == 0
    assert CatalogTable(bench.uri, {}).version == version


def test_no_secret_is_in_the_table(bench: Bench, tmp_path: Path) -> None:
    bench.writer.tick()
    found = bench.catalog()
    every = "".join(row.json for row in found.values())
    assert "stored_key" not in every and "s3cret" not in every
    assert found[Kind.CLIENT_CONFIG, USER[1]].value()["config"] == {"producer_byte_rate": "1000"}
    assert bench.sealer is not None
    opened = json.loads(bench.sealer.open(found[USER].value()["sealed"], USER[1]))
    assert opened == {"SCRAM-SHA-512": "salt=x,stored_key=y"}
    with pytest.raises(UsageError, match="another key"):
        Sealer(b"o" * 32, bench.entropy).open(found[USER].value()["sealed"], USER[1])
    with pytest.raises(UsageError, match="/config/users/bob"):
        bench.sealer.open(found[USER].value()["sealed"], "/config/users/bob")


def test_without_a_key_no_credential_is_kept_and_the_status_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path, key=None)
    bench.writer.tick()
    assert USER not in bench.catalog()
    assert not bench.writer.status.keeps_credentials


def test_a_catalog_whose_files_are_no_longer_all_is_not_read(bench: Bench) -> None:
    bench.writer.tick()
    table = CatalogTable(bench.uri, {})
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    lines = [{"commitInfo": {"operation": "SET TBLPROPERTIES"}}, {"protocol": protocol}]
    log = Path(unquote(urlsplit(bench.uri).path)) / "_delta_log"
    text = "\n".join(json.dumps(line) for line in lines)
    (log / f"{table.version + 1:020d}.json").write_text(text + "\n")
    wanted = r"version \d+: table features \['deletionVectors'\] were enabled.*drop the feature"
    with pytest.raises(TableStateError, match=wanted):
        CatalogTable(bench.uri, {})
    with pytest.raises(TableStateError, match=wanted):
        table.refresh()


def test_a_change_is_one_row_and_a_deleted_topic_is_gone(bench: Bench) -> None:
    bench.writer.tick()
    bench.nodes.put("/config/topics/tiered", config(retention_ms="5"))
    assert bench.writer.tick() == 1
    assert bench.catalog()[Kind.TOPIC_CONFIG, "/config/topics/tiered"].value()["config"] == {
        "retention.ms": "5"
    }
    bench.nodes.delete("/brokers/topics/plain")
    bench.nodes.delete("/config/topics/plain")
    del bench.said.logs["plain"]
    assert bench.later() == 3
    assert not [key for key in bench.catalog() if "plain" in key[1]]


def test_a_topic_that_a_broker_does_not_know_keeps_its_ends(bench: Bench) -> None:
    """Without them a restore would take it for a new one. ZooKeeper says what exists."""
    bench.writer.tick()
    del bench.said.logs["plain"]
    assert bench.later() == 0
    assert bench.catalog()[Kind.ENDS, "plain"].value()["ends"] == {"0": [40, 0]}


def test_a_zookeeper_that_has_lost_its_data_empties_no_catalog(bench: Bench) -> None:
    """A restore needs the catalog then; the tier service is there until the last broker ends."""
    bench.writer.tick()
    before = bench.catalog()
    for path in list(bench.nodes.nodes):
        bench.nodes.delete(path)
    for _ in range(2):
        assert bench.later() == 0
        assert "no /cluster/id any more" in bench.writer.last_error
    assert bench.catalog() == before


def test_groups_stay_while_a_restore_has_not_brought_them_back(bench: Bench) -> None:
    """Else a second disaster, or a restore that is begun anew, would find none."""
    bench.writer.tick()
    bench.said.committed, bench.said.shared = {}, {}
    pending = config(headwater_restore_groups_pending="true")
    bench.nodes.put("/config/brokers/<default>", pending)
    bench.later()
    assert (Kind.GROUP, "app") in bench.catalog()
    assert (Kind.SHARE_GROUP, "queue") in bench.catalog()
    bench.nodes.put("/config/brokers/<default>", config())
    bench.later()
    assert (Kind.GROUP, "app") not in bench.catalog()
    assert (Kind.SHARE_GROUP, "queue") not in bench.catalog()


def test_a_share_groups_progress_is_a_row_and_a_deleted_one_is_gone(bench: Bench) -> None:
    bench.writer.tick()
    bench.said.shared["queue"]["tiered", A][0] = 121
    assert bench.later() == 1
    row = bench.catalog()[Kind.SHARE_GROUP, "queue"].value()
    assert row["starts"]["tiered"]["starts"] == {"0": 121, "1": 4}
    del bench.said.shared["queue"]
    assert bench.later() == 1
    assert (Kind.SHARE_GROUP, "queue") not in bench.catalog()


def test_log_ends_are_as_old_as_the_question(bench: Bench) -> None:
    """Brokers may take long to answer, and the table to take the row: producers go on."""
    asked_ms = bench.clock.now_ms()
    bench.said.while_reading = lambda: bench.clock.advance(8_000)
    bench.writer.tick()
    assert bench.catalog()[Kind.ENDS, "tiered"].time_ms == asked_ms
    assert bench.catalog()[Kind.TOPIC, "/brokers/topics/tiered"].time_ms == asked_ms + 8_000


def test_a_topic_counts_as_known_once_its_row_is_committed(bench: Bench) -> None:
    assert not bench.writer.has_topic("tiered", A)
    bench.writer.tick()
    assert bench.writer.has_topic("tiered", A)
    assert not bench.writer.has_topic("tiered", B), "of another topic id"
    assert not bench.writer.has_topic("later", A)


def test_brokers_that_do_not_answer_keep_no_change_of_nodes_away(bench: Bench) -> None:
    bench.writer.tick()
    bench.said.error = HeadwaterError("no broker answers")
    bench.nodes.put("/brokers/topics/new", assignment(B, {0: [0]}))
    bench.later()
    assert (Kind.TOPIC, "/brokers/topics/new") in bench.catalog()
    assert bench.writer.status.last_error == "no broker answers"
    bench.said.error = None
    bench.later()
    assert bench.writer.status.last_error == ""


def test_after_a_restart_only_what_differs_is_committed(bench: Bench) -> None:
    bench.writer.tick()
    again, _ = a_cluster()
    again.delete("/kafka-acl/Topic/tiered")
    bench.writer = bench.open(again)
    bench.writer.tick()
    assert (Kind.ACL, "/kafka-acl/Topic/tiered") not in bench.catalog()
    assert CatalogTable(bench.uri, {}).version == 2


def test_a_node_that_may_not_be_read_is_not_taken_for_gone(bench: Bench) -> None:
    bench.writer.tick()
    again, _ = a_cluster()
    again.delete("/config/users/alice")
    again.unreadable.add("/config/users/alice")
    bench.writer = bench.open(again)
    bench.writer.tick()
    assert USER in bench.catalog()
    assert bench.writer.status.unreadable == ("/config/users/alice",)


def test_the_catalog_of_another_cluster_is_refused(bench: Bench) -> None:
    bench.writer.tick()
    other, _ = a_cluster()
    other.put("/cluster/id", b'{"version":"1","id":"another"}')
    with pytest.raises(UsageError, match=r"catalog of cluster hwTest.*not of another"):
        bench.open(other).tick()


def test_two_writers_lose_nothing(bench: Bench) -> None:
    second_nodes, _ = a_cluster()
    second = bench.open(second_nodes)
    bench.writer.tick()
    assert second.tick() > 0, "it was overtaken"
    bench.clock.advance(6_000)
    assert second.tick() == 0
    second_nodes.put("/brokers/topics/new", assignment(B, {0: [0]}))
    second.tick()
    bench.nodes.put("/config/topics/tiered", config(retention_ms="5"))
    bench.later()
    bench.later(300)
    assert bench.catalog()[Kind.TOPIC_CONFIG, "/config/topics/tiered"].value()["config"]


def test_a_stale_commit_fails(bench: Bench) -> None:
    one, two = CatalogTable.create(bench.uri, {}), CatalogTable.create(bench.uri, {})
    one.append([CatalogRow(Kind.GROUP, "a", "{}")])
    with pytest.raises(CatalogOvertakenError):
        two.append([CatalogRow(Kind.GROUP, "b", "{}")])
    two.append([CatalogRow(Kind.GROUP, "b", "{}")])
    assert set(two.catalog()) == {(Kind.GROUP, "a"), (Kind.GROUP, "b")}


def test_folding_keeps_the_newest_rows_in_one_file(bench: Bench) -> None:
    table = CatalogTable.create(bench.uri, {})
    for number in range(4):
        table.append([CatalogRow(Kind.GROUP, "a", dump({"n": number}), time_ms=number)])
    table.append([CatalogRow(Kind.GROUP, "b", "{}")])
    table.append([CatalogRow(Kind.GROUP, "b", "", deleted=True)])
    before = table.catalog()
    table.fold(bench.entropy, 9)
    assert table.files == 1
    assert table.catalog() == before
    table.append([CatalogRow(Kind.GROUP, "a", dump({"n": 9}))])
    assert table.catalog()[Kind.GROUP, "a"].value() == {"n": 9}


def test_kinds_of_a_newer_release_are_passed_over_and_kept(bench: Bench) -> None:
    table = CatalogTable.create(bench.uri, {})
    table.append([CatalogRow(Kind.GROUP, "a", "{}")])
    stored = DeltaTable(bench.uri).to_pyarrow_table()
    later = stored.set_column(1, stored.schema.field("kind"), [["later"]])
    write_deltalake(bench.uri, later, mode="append")
    table.refresh()
    assert set(table.catalog()) == {(Kind.GROUP, "a")}
    table.fold(bench.entropy, 9)
    kinds = DeltaTable(bench.uri).to_pyarrow_table().column("kind").to_pylist()
    assert sorted(kinds) == ["group", "later"]


def test_a_newer_format_is_refused(bench: Bench) -> None:
    DeltaTable(bench.uri).alter.set_table_properties(
        {"headwater.format": "2"}, raise_if_not_exists=False
    )
    with pytest.raises(TableStateError, match="has format 2, this Headwater reads up to 1"):
        CatalogTable(bench.uri, {})


def test_an_idle_cluster_is_seen_to_be_kept_by_a_beat_a_minute(bench: Bench) -> None:
    bench.writer.tick()
    assert bench.later(59_000) == 0
    assert bench.later(5_000) == 1


def test_a_beat_says_that_log_ends_were_seen(bench: Bench) -> None:
    """Not while brokers are silent; and changes of nodes do not stand for it."""
    bench.writer.tick()
    key = (Kind.CLUSTER, "/cluster/id")
    first = bench.catalog()[key].time_ms
    bench.said.error = HeadwaterError("no broker answers")
    bench.nodes.put("/config/topics/plain", config(retention_ms="1"))
    bench.later(61_000)
    assert bench.catalog()[key].time_ms == first
    bench.said.error = None
    bench.nodes.put("/config/topics/plain", config(retention_ms="2"))
    assert bench.later() == 2
    assert bench.catalog()[key].time_ms == bench.clock.now_ms()


def test_an_observed_end_never_falls(bench: Bench) -> None:
    def ends(topic_id: str, **partitions: list[int]) -> str:
        return dump({"id": topic_id, "ends": {k[1:]: v for k, v in partitions.items()}})

    known = ends("x", p0=[600, 3], p1=[7, 1])
    assert merged_ends(known, ends("x", p0=[500, 4])) == ends("x", p0=[600, 4], p1=[7, 1])
    assert merged_ends(known, ends("y", p0=[5, 0])) == ends("y", p0=[5, 0])
    assert merged_ends(None, known) == known
    unseen = ends("x", p1=[-1, -1], p2=[-1, -1])
    merged = ends("x", p0=[600, 3], p1=[7, 1], p2=[-1, -1])
    assert merged_ends(known, unseen) == merged
    assert merged_ends(merged, ends("x", p2=[0, 0])) == ends("x", p0=[600, 3], p1=[7, 1], p2=[0, 0])


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/brokers/topics", None),
        ("/brokers/topics/t", Kind.TOPIC),
        ("/brokers/topics/__transaction_state", None),
        ("/config/topics/__consumer_offsets", None),
        ("/config/users/a/clients/b", Kind.CLIENT_CONFIG),
        ("/kafka-acl-extended/prefixed/Group/g", Kind.ACL),
        ("/config/groups/app", Kind.GROUP_CONFIG),
        ("/brokers/ids/0", None),
    ],
)
def test_which_nodes_are_kept(path: str, kind: Kind | None) -> None:
    assert kind_of(path) is kind
