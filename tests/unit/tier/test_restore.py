"""Restore: what a cluster begins with, and that a run which died anywhere may be repeated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from catalog_doubles import CLUSTER, A, B, KilledError, MemoryNodes, a_cluster, assignment
from headwater.columnar.schema import LOG_TABLE_SCHEMA
from headwater.errors import HeadwaterError, UsageError
from headwater.security.sealed import Sealer
from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_tier.catalog.rows import Kind
from headwater_tier.catalog.table import CatalogTable, catalog_uri
from headwater_tier.catalog.writer import CatalogWriter
from headwater_tier.delta import Change, LogTable
from headwater_tier.restore import restore_plan as plan
from headwater_tier.restore.tables_and_zookeeper import (
    MetadataReport,
    MetadataRestore,
    Source,
    State,
)
from headwater_tier.table_names import TableLocation, table_uri

KEY = b"k" * 32
GAP = 1_000
TIERED_END = 550
RESTORED_A, RESTORED_B = (f"/headwater/restored/{plan.id_text(i)}" for i in (A, B))


class Lost:
    """A cluster of which only the tables are left."""

    def __init__(self, folder: Path, error: HeadwaterError | None = None) -> None:
        """`error`: of the brokers, at every look at their log ends."""
        self.source = Source(folder.as_uri())
        self.clock = ManualClock()
        self.sealer = Sealer(KEY, SeededEntropy(1))
        nodes, said = a_cluster()
        table = CatalogTable.create(catalog_uri(self.source.base), {})
        self.nodes, self.said = nodes, said
        said.error = error
        self.writer = CatalogWriter(table, nodes, said, self.clock, SeededEntropy(2), self.sealer)
        self.writer.tick()
        self.location = TableLocation(table_uri(self.source.base, "tiered", A), "tiered", A)
        log = LogTable.create(self.location, 2)
        log.commit(Change("tier", 0, ends={0: TIERED_END}, starts={0: 10}))

    def restore(self, nodes: MemoryNodes, *, key: bool = True) -> MetadataReport:
        opened = self.sealer.open if key else None
        return MetadataRestore(nodes, self.source, self.clock, opened, GAP).run()

    def ends(self) -> tuple[dict[int, int], dict[int, int]]:
        snapshot = LogTable(self.location).snapshot
        return dict(snapshot.starts), dict(snapshot.ends)


@pytest.fixture
def lost(tmp_path: Path) -> Lost:
    return Lost(tmp_path)


def value(nodes: MemoryNodes, path: str) -> dict[str, object]:
    found = nodes.get(path)
    assert found is not None, path
    row: dict[str, object] = json.loads(found.data)
    return row


def test_each_log_starts_above_every_offset_known(lost: Lost) -> None:
    nodes = MemoryNodes()
    report = lost.restore(nodes)
    assert report.first_offsets == {
        "tiered": {0: 600 + GAP, 1: 5 + GAP},
        "plain": {0: 45 + GAP},  # a committed offset is above the last observed end
    }
    assert lost.ends() == ({0: 10, 1: 5 + GAP}, {0: 600 + GAP, 1: 5 + GAP})
    assert value(nodes, RESTORED_A)["ends"] == {"0": 600 + GAP, "1": 5 + GAP}
    assert value(nodes, RESTORED_B)["ends"] == {"0": 45 + GAP}


def test_the_gap_grows_with_the_age_of_the_last_observation(lost: Lost) -> None:
    lost.clock.advance(3_000_001)
    report = MetadataRestore(MemoryNodes(), lost.source, lost.clock).run()
    gap = 30_000_010_000
    assert report.observed_age_ms == 3_000_001
    assert report.first_offsets == {
        "tiered": {0: 600 + gap, 1: 5 + gap},
        "plain": {0: 45 + gap},
    }
    assert lost.ends()[1] == {0: 600 + gap, 1: 5 + gap}


def test_a_young_catalog_leaves_the_least_out(lost: Lost) -> None:
    lost.clock.advance(2_000)
    report = MetadataRestore(MemoryNodes(), lost.source, lost.clock).run()
    assert report.first_offsets["tiered"][0] == 600 + plan.OFFSET_GAP
    assert plan.offset_gap(-60_000) == plan.OFFSET_GAP, "clocks differ"


def test_a_catalog_that_saw_nodes_but_no_log_ends_is_as_old_as_its_ends(lost: Lost) -> None:
    """The brokers were silent to the writer, not to producers, while ZooKeeper was heard."""
    lost.said.error = HeadwaterError("no broker answers")
    seen_ms = lost.clock.now_ms()
    for hour in range(2):
        lost.clock.advance(3_600_000)
        lost.nodes.put(f"/config/users/u{hour}", b'{"config":{"producer_byte_rate":"1"}}')
        lost.nodes.put("/brokers/topics/tiered", assignment(A, {0: [hour], 1: [1]}))
        lost.writer.tick()
    report = MetadataRestore(MemoryNodes(), lost.source, lost.clock).run()
    assert (report.observed_ms, report.observed_age_ms) == (seen_ms, 7_200_000)
    assert report.first_offsets["tiered"] == {0: 600 + 72_000_000_000, 1: 5 + 72_000_000_000}
    assert report.catalog_time_ms == lost.clock.now_ms()


def test_a_partition_that_never_had_a_leader_starts_above_all_that_it_may_have_given(
    lost: Lost,
) -> None:
    """It may be older than the catalog."""
    lost.clock.advance(7_000_000)
    topic_id = UUID(int=0xC)
    lost.nodes.put("/brokers/topics/old", assignment(topic_id, {0: [0], 1: [1]}))
    lost.said.logs["old"] = (topic_id, {0: (-1, -1), 1: (8, 2)})
    lost.writer.tick()
    first = MetadataRestore(MemoryNodes(), lost.source, lost.clock).run().first_offsets
    assert first["old"] == {0: plan.UNSEEN_GAP, 1: 8 + plan.OFFSET_GAP}


def test_log_ends_that_were_never_seen_are_not_taken_for_young(tmp_path: Path) -> None:
    """The catalog was begun beside a cluster that had given offsets for long."""
    lost = Lost(tmp_path, HeadwaterError("no broker answers"))
    report = MetadataRestore(MemoryNodes(), lost.source, lost.clock).run()
    assert report.first_offsets == {
        "tiered": {0: TIERED_END + plan.UNSEEN_GAP, 1: plan.UNSEEN_GAP},
        "plain": {0: plan.UNSEEN_GAP},
    }


def test_a_topic_that_is_younger_than_the_last_look_starts_near_zero(lost: Lost) -> None:
    lost.clock.advance(1_000)
    lost.nodes.put("/brokers/topics/new", assignment(UUID(int=0xC), {0: [0]}))
    lost.writer.tick()
    report = MetadataRestore(MemoryNodes(), lost.source, lost.clock).run()
    assert report.first_offsets["new"] == {0: plan.OFFSET_GAP}


def test_a_gap_that_is_given_counts_at_any_age_and_size(lost: Lost) -> None:
    lost.clock.advance(3_600_000)
    restore = MetadataRestore(MemoryNodes(), lost.source, lost.clock, gap=1 << 33)
    assert restore.run().first_offsets["tiered"][1] == 5 + (1 << 33)


def test_a_gap_that_leaves_no_offsets_is_refused(lost: Lost) -> None:
    nodes = MemoryNodes()
    with pytest.raises(UsageError, match=r"of plain would start at offset \d+.*--offset-gap"):
        MetadataRestore(nodes, lost.source, lost.clock, gap=1 << 62).run()
    assert not [path for path in nodes.nodes if path.startswith("/headwater/restored")]


def test_a_table_that_is_ahead_of_the_last_observed_end_counts(lost: Lost) -> None:
    LogTable(lost.location).commit(Change("tier", 0, ends={0: 90_000}))
    assert lost.restore(MemoryNodes()).first_offsets["tiered"][0] == 90_000 + GAP


def test_a_table_that_somebody_changed_is_named_before_anything_is_written(lost: Lost) -> None:
    rows = pa.Table.from_pylist(
        [{"partition": 0, "offset": 20, "timestamp_type": 0}], schema=LOG_TABLE_SCHEMA
    )
    write_deltalake(lost.location.uri, rows, mode="append")
    nodes = MemoryNodes()
    with pytest.raises(UsageError, match=r"1 tables fail .* committed by someone else.*--repair"):
        lost.restore(nodes)
    assert not [path for path in nodes.nodes if path.startswith("/headwater/restored")]
    MetadataRestore(nodes, lost.source, lost.clock, None, GAP, repairs=True).run()
    assert lost.ends()[1] == {0: 600 + GAP, 1: 5 + GAP}


def test_topics_keep_id_configs_and_replicas_and_epochs_rise(lost: Lost) -> None:
    nodes = MemoryNodes()
    lost.restore(nodes)
    topic = value(nodes, "/brokers/topics/tiered")
    assert (topic["topic_id"], topic["is_tiered"]) == (plan.id_text(A), True)
    assert topic["partitions"] == {"0": [0, 1], "1": [1, 0]}
    state = value(nodes, "/brokers/topics/tiered/partitions/1/state")
    assert (state["leader"], state["isr"]) == (-1, [])
    assert state["leader_epoch"] == 4 + plan.EPOCH_GAP
    assert value(nodes, "/config/topics/tiered")["config"] == {
        "remote.storage.enable": "true",
        "retention.ms": "-1",
    }


def test_the_registrys_compacted_topic_is_back_with_its_table(lost: Lost) -> None:
    """A registry finds it tiered, of one partition and compacted, as it demands."""
    topic_id = UUID(int=0xC)
    lost.nodes.put("/brokers/topics/_schemas", assignment(topic_id, {0: [0]}, is_tiered=True))
    compact = {"cleanup.policy": "compact", "remote.storage.enable": "true"}
    lost.nodes.put("/config/topics/_schemas", json.dumps({"config": compact}).encode())
    lost.said.logs["_schemas"] = (topic_id, {0: (12, 1)})
    lost.clock.advance(6_000)
    lost.writer.tick()
    location = TableLocation(
        table_uri(lost.source.base, "_schemas", topic_id), "_schemas", topic_id
    )
    LogTable.create(location, 1).commit(Change("tier", 0, ends={0: 10}, starts={0: 0}))
    nodes = MemoryNodes()
    report = lost.restore(nodes)
    assert value(nodes, "/config/topics/_schemas")["config"] == compact
    assert value(nodes, "/brokers/topics/_schemas")["is_tiered"] is True
    assert report.first_offsets["_schemas"] == {0: 12 + GAP}
    snapshot = LogTable(location).snapshot
    assert (dict(snapshot.starts), dict(snapshot.ends)) == ({0: 0}, {0: 12 + GAP})


def test_ids_users_quotas_acls_and_configs_are_back(lost: Lost) -> None:
    nodes = MemoryNodes()
    report = lost.restore(nodes)
    assert report.cluster_id == CLUSTER == value(nodes, "/cluster/id")["id"]
    assert nodes.get("/controller_epoch").data == b"107"  # type: ignore[union-attr]
    block = value(nodes, "/latest_producer_id_block")
    assert int(str(block["block_start"])) == 2_000 + plan.PRODUCER_ID_GAP
    assert value(nodes, "/config/users/alice")["config"] == {
        "SCRAM-SHA-512": "salt=x,stored_key=y",
        "producer_byte_rate": "1000",
    }
    assert value(nodes, "/kafka-acl/Topic/tiered") == {"version": 1, "acls": []}
    assert value(nodes, "/config/groups/app")["config"] == {"share.auto.offset.reset": "earliest"}
    assert value(nodes, "/config/brokers/<default>")["config"] == {
        "num.partitions": "3",
        "headwater.restore.groups.pending": "true",
    }


def test_without_the_key_users_are_left_out_and_counted(lost: Lost) -> None:
    nodes = MemoryNodes()
    report = lost.restore(nodes, key=False)
    assert report.users_left_out == 1
    assert value(nodes, "/config/users/alice")["config"] == {"producer_byte_rate": "1000"}


@pytest.mark.parametrize("path", ["/cluster/id", "/brokers/topics/t", "/brokers/ids/0"])
def test_an_ensemble_that_is_not_empty_is_refused(lost: Lost, path: str) -> None:
    nodes = MemoryNodes()
    nodes.put(path, b"{}")
    with pytest.raises(UsageError, match=rf"zk:2181 is not empty, it has {path}"):
        lost.restore(nodes)
    assert lost.ends()[1] == {0: TIERED_END}, "nothing was written"


def test_a_restore_that_is_done_is_not_done_again(lost: Lost) -> None:
    nodes = MemoryNodes()
    lost.restore(nodes)
    MetadataRestore(nodes, lost.source, lost.clock, None, GAP).set_state(State.DONE)
    with pytest.raises(UsageError, match="restored already"):
        lost.restore(nodes)


def test_another_source_does_not_go_on_with_a_restore(lost: Lost, tmp_path: Path) -> None:
    nodes = MemoryNodes()
    lost.restore(nodes)
    other = Lost(tmp_path / "other")
    with pytest.raises(UsageError, match=f"is being restored from {lost.source.base}"):
        other.restore(nodes)


def test_brokers_that_run_before_their_topics_are_there_are_refused(lost: Lost) -> None:
    nodes = MemoryNodes()
    nodes.dies_at = 4
    with pytest.raises(KilledError):
        lost.restore(nodes)
    nodes.put("/brokers/ids/0", b"{}")
    with pytest.raises(UsageError, match="brokers run"):
        lost.restore(nodes)


def test_a_run_that_dies_at_any_write_goes_on_when_it_is_repeated(tmp_path: Path) -> None:
    whole, wanted = Lost(tmp_path / "whole"), MemoryNodes()
    whole.restore(wanted)
    marker = "/headwater/restore"
    for dies_at in range(1, wanted.writes + 1):
        lost, nodes = Lost(tmp_path / str(dies_at)), MemoryNodes()
        nodes.dies_at = dies_at
        with pytest.raises(KilledError):
            lost.restore(nodes)
        lost.restore(nodes)
        found = {p: n.data for p, n in nodes.nodes.items() if p != marker}
        assert found == {p: n.data for p, n in wanted.nodes.items() if p != marker}, dies_at
        assert lost.ends() == whole.ends()


def test_a_second_disaster_right_after_the_first_gives_no_offset_twice(lost: Lost) -> None:
    first = lost.restore(MemoryNodes()).first_offsets
    second = lost.restore(MemoryNodes()).first_offsets
    for topic, ends in first.items():
        for partition, end in ends.items():
            assert second[topic][partition] >= end + GAP


def test_the_catalog_says_that_and_from_where_it_was_restored(lost: Lost) -> None:
    report = lost.restore(MemoryNodes())
    rows = lost.source.catalog().catalog()
    found = [row.value() for (kind, _), row in rows.items() if kind is Kind.RESTORE]
    assert found == [{"from_version": report.catalog_version}]


def test_a_tier_job_of_the_lost_cluster_is_fenced(lost: Lost) -> None:
    former = LogTable(lost.location)
    lost.restore(MemoryNodes())
    with pytest.raises(Exception, match="committing version"):
        former.commit(Change("tier", 0, ends={0: 600}))


def test_groups_of_topics_without_a_table_go_on_at_the_first_new_record(lost: Lost) -> None:
    report = lost.restore(MemoryNodes())
    found = {t.name: (t, report.first_offsets[t.name]) for t in report.topics}
    (group,) = report.groups
    assert plan.restored_offsets(group, found) == {
        ("tiered", 0): (300, "m"),
        ("plain", 0): (45 + GAP, "m"),
    }
    del found["plain"]
    assert plan.restored_offsets(group, found) == {("tiered", 0): (300, "m")}


def test_share_groups_go_on_at_their_start_offsets(lost: Lost) -> None:
    report = lost.restore(MemoryNodes())
    found = {t.name: (t, report.first_offsets[t.name]) for t in report.topics}
    (group,) = report.share_groups
    assert plan.restored_starts(group, found) == {
        ("tiered", 0): 120,
        ("tiered", 1): 4,
        ("plain", 0): 45 + GAP,  # without a table: the first new record
    }
    del found["plain"]
    other = replace(found["tiered"][0], topic_id=B)
    found["tiered"] = other, found["tiered"][1]
    assert plan.restored_starts(group, found) == {}, "they are of an older topic of that name"


def test_a_log_starts_above_a_share_groups_start_offset(lost: Lost) -> None:
    """It was read after the log's end; that of an older topic of the name does not count."""
    lost.said.shared = {"queue": {("tiered", A): {1: 9}, ("plain", UUID(int=0xD)): {0: 900}}}
    lost.clock.advance(6_000)
    lost.writer.tick()
    first = lost.restore(MemoryNodes()).first_offsets
    assert first == {"tiered": {0: 600 + GAP, 1: 9 + GAP}, "plain": {0: 45 + GAP}}


def test_a_catalog_without_share_groups_is_restored_as_before(tmp_path: Path) -> None:
    lost = Lost(tmp_path)
    lost.said.shared = {}
    lost.clock.advance(6_000)
    lost.writer.tick()
    report = lost.restore(MemoryNodes())
    assert report.share_groups == ()
    assert report.first_offsets["tiered"] == {0: 600 + GAP, 1: 5 + GAP}


def test_brokers_are_those_with_replicas(lost: Lost) -> None:
    report = lost.restore(MemoryNodes())
    assert plan.broker_ids(list(report.topics)) == (0, 1, 2)
    assert plan.broker_ids([]) == (0,)
    assert report.without_records == ["plain"]
