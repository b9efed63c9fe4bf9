"""Stock consumers of old offsets while a topic's Delta table is damaged, away, or that of a former
topic: they get the right records or an error, never a gap; new records and other topics go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from prometheus_client.core import Metric

from headwater.cli.main import main
from headwater.system import SystemClock
from headwater_tier.delta import LogTable
from headwater_tier.reader import TableReader
from headwater_tier.service.engine import Engine
from headwater_tier.service.metrics import PREFIX, ServiceCollector
from integration.cold_topics import BATCH, ColdCluster, Deadline, Found, cold_cluster, whole
from integration.conftest import next_base_port
from table_damage import (
    add_empty_without_file,
    add_without_file,
    append,
    cluster_by_value,
    deletion_vectors,
    folder_of,
    optimize,
    optimize_and_vacuum,
    restore,
)

pytestmark = pytest.mark.integration

Damage = Callable[[str], None]
HARMLESS: tuple[Damage, ...] = (optimize, cluster_by_value, optimize_and_vacuum)
REFUSED: dict[Damage, str] = {
    restore: "its files hold 20 rows, tiering counted 30",
    append: "its files hold 33 rows, tiering counted 30",
    add_without_file: "its files hold 35 rows, tiering counted 30",
    deletion_vectors: "delta.enableDeletionVectors",
}
FINE, HALVED, ENDLESS, EMPTY_ADD = "fine", "halved", "endless", "empty-add"
END = 3 * BATCH


def topic_of(change: Damage) -> str:
    return change.__name__.replace("_", "-")


TOPICS = (FINE, ENDLESS, EMPTY_ADD, *(topic_of(change) for change in (*HARMLESS, *REFUSED)))


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ColdCluster]:
    """Topics with three files each and no local record."""
    folder = tmp_path_factory.mktemp("damaged")
    with cold_cluster(folder, next_base_port(folder)) as made:
        made.create(*TOPICS)
        made.create(HALVED, partitions=2)
        for partition in (0, 1, 0):
            made.send(*TOPICS)
            made.send(HALVED, partition=partition)
            made.tier(*TOPICS, HALVED)
        ends = {name: {0: END} for name in TOPICS} | {HALVED: {0: 2 * BATCH, 1: BATCH}}
        made.make_cold(ends)
        yield made


@pytest.fixture(autouse=True)
def others_go_on(cold: ColdCluster) -> Iterator[None]:
    """Whatever the test did, another topic is read whole, by old and by new offsets."""
    yield
    assert cold.read(FINE, END) == whole(END)


def first_error(
    cold: ColdCluster, name: str, end: int, *, change: Callable[[], None] = lambda: None
) -> Found:
    """Read until the damage shows; a broker trusts a rebuilt copy for a second. Each read before
    that is whole, and this one has the right records up to its error."""
    found = cold.read(name, end)
    deadline = Deadline()
    while not found.error:
        assert found == whole(end)
        deadline.pause(f"the damage of {name} shows")
        change()
        found = cold.read(name, end)
    assert found.error.startswith("UNKNOWN: ")
    assert found.values == whole(len(found.values)).values
    return found


def hot_goes_on(cold: ColdCluster, name: str) -> None:
    """New records of the damaged topic are written and read."""
    with cold.cluster.admin() as admin:
        start = admin.list_offsets({(name, 0): -1})[name, 0].offset
    cold.send(name)
    end = start + BATCH
    assert cold.read(name, end, start=start) == whole(end, start=start)


@pytest.mark.parametrize("change", HARMLESS)
def test_what_delta_allows_shows_in_no_record(cold: ColdCluster, change: Damage) -> None:
    name = topic_of(change)
    uri = cold.location(name).uri
    assert cold.read(name, END) == whole(END)  # the broker has the version before it open
    change(uri)
    assert cold.read(name, END) == whole(END)
    cold.hint(name)
    assert cold.read(name, END) == whole(END)
    hot_goes_on(cold, name)


@pytest.mark.parametrize(("change", "named"), REFUSED.items())
def test_a_foreign_commit_ends_a_read_with_an_error_that_the_broker_logs(
    cold: ColdCluster, change: Damage, named: str
) -> None:
    name = topic_of(change)
    assert cold.read(name, END) == whole(END)
    change(cold.location(name).uri)
    # Until the broker looks at the table again it reads the checked version that it has open.
    assert cold.read(name, END) == whole(END)
    cold.hint(name)
    assert first_error(cold, name, END).values == []
    cold.cluster.wait_until(lambda: named in cold.cluster.log_text(0), "the damage in the log")
    hot_goes_on(cold, name)
    # What is back in order is read again, without a restart.
    DeltaTable(cold.location(name).uri).restore(3)
    if change is not deletion_vectors:  # RESTORE leaves a table's properties as they are
        assert cold.read(name, END) == whole(END)


def test_a_lost_file_costs_its_own_offsets_only(cold: ColdCluster) -> None:
    at = cold.location(HALVED)
    live = sorted(LogTable(at).snapshot.files, key=lambda f: (f.min_partition, f.min_offset or 0))
    lost = folder_of(at.uri) / live[1].path
    away = lost.rename(lost.with_suffix(".away"))
    assert first_error(cold, HALVED, 2 * BATCH).values == whole(BATCH).values
    cold.cluster.wait_until(lambda: lost.name in cold.cluster.log_text(0), "the file in the log")
    assert cold.read(HALVED, BATCH, partition=1) == whole(BATCH)
    hot_goes_on(cold, HALVED)
    away.rename(lost)
    assert cold.read(HALVED, 2 * BATCH) == whole(2 * BATCH)


def test_a_vacuum_of_needed_files_is_an_error_at_the_first_offset(cold: ColdCluster) -> None:
    at = cold.location(FINE)
    files = [folder_of(uri) for uri in DeltaTable(at.uri).file_uris()]
    for path in files:
        path.rename(path.with_suffix(".away"))
    found, deadline = first_error(cold, FINE, END), Deadline()
    while found.values:  # read from copies that were looked at less than a second ago
        deadline.pause("no copy hides the loss")
        found = cold.read(FINE, END)
        assert found.values == whole(len(found.values)).values
    for path in files:
        path.with_suffix(".away").rename(path)


def test_an_add_of_no_rows_whose_file_nobody_wrote_costs_no_offset(cold: ColdCluster) -> None:
    """The service names it; no record could be in it."""
    add_empty_without_file(cold.location(EMPTY_ADD).uri)
    cold.hint(EMPTY_ADD)
    assert cold.read(EMPTY_ADD, END) == whole(END)
    hot_goes_on(cold, EMPTY_ADD)


@pytest.mark.long
def test_a_lost_log_end_is_an_error_at_its_first_offset_and_heals(cold: ColdCluster) -> None:
    at = cold.location(ENDLESS)
    last = sorted((folder_of(at.uri) / "_delta_log").glob("*.json"))[-1]
    content = last.read_bytes()
    last.unlink()
    cold.kill_reader()
    found = first_error(cold, ENDLESS, END, change=lambda: cold.hint(ENDLESS))
    assert found.values == whole(2 * BATCH).values
    hot_goes_on(cold, ENDLESS)
    # The service neither passes over them nor gives up: it names them until they are back.
    error = cold.once().service.topics[ENDLESS].error
    assert error and LogTable(at).snapshot.ends == {0: 2 * BATCH}
    last.write_bytes(content)
    cold.hint(ENDLESS)
    assert cold.read(ENDLESS, END) == whole(END)
    assert cold.once().service.topics[ENDLESS].error == ""
    assert LogTable(at).snapshot.ends == {0: END + BATCH}


def rows_of(path: Path) -> int:
    """The rows of a table; -1 without one."""
    return len(DeltaTable(path).to_pyarrow_table()) if DeltaTable.is_deltatable(str(path)) else -1


def values_of(path: Path) -> list[bytes]:
    """A table's values in the order of their offsets."""
    found = DeltaTable(path).to_pyarrow_table(columns=["offset", "value"]).sort_by("offset")
    return [bytes(value) for value in found.column("value").to_pylist()]


def status(cold: ColdCluster, name: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """The exit code of `tier status` and its row."""
    capsys.readouterr()
    code = main(["tier", "status", name, "--json", "--bootstrap-server", cold.bootstrap])
    [row] = json.loads(capsys.readouterr().out)["topics"]
    return code, row


def metric(made: Engine, metric_name: str, topic: str) -> float:
    """A value of the service's own metrics."""
    collector = ServiceCollector(made.service, lambda: 0, SystemClock())
    families: list[Metric] = list(collector.collect())
    samples = (s for f in families if f.name == PREFIX + metric_name for s in f.samples)
    return next(s.value for s in samples if s.labels["topic"] == topic)


def test_while_the_tables_are_away_nothing_is_lost_and_the_service_catches_up(
    cold: ColdCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "outage"
    cold.create(name)
    cold.keep_nothing(name)
    table = folder_of(cold.location(name).uri)
    tables, away = table.parent, table.parent.with_suffix(".away")
    with cold.serving() as made:
        cold.send(name)
        cold.cluster.wait_until(lambda: rows_of(table) == BATCH, "the first rows", 60.0)
        cold.hint(name)
        cold.cluster.wait_until(lambda: cold.local_start(name) == BATCH, "tiered ones are deleted")
        failures = metric(made, "failures", name)
        tables.rename(away)
        tables.write_bytes(b"no folder")
        try:
            cold.send(name)
            state, schedule = made.service.topics[name], made.service.schedule.topics[name]
            cold.cluster.wait_until(lambda: schedule.failures >= 2, "it is tried again")
            assert schedule.retry_at > schedule.looked_at, "and not at once"
            cold.send(name)
            cold.hint(name)
            end = 3 * BATCH
            assert cold.read(name, end, start=BATCH) == whole(end, start=BATCH), "hot goes on"
            assert cold.read(name, BATCH).error.startswith("UNKNOWN: "), "cold says so"
            cold.cluster.wait_until(lambda: status(cold, name, capsys)[1]["error"] != "", "status")
            code, row = status(cold, name, capsys)
            assert code == 1 and row["state"] == "failed" and str(tables) in row["error"]
            assert row["behind"] == 2 * BATCH and 0 < row["error_ms"] <= SystemClock().now_ms()
            assert metric(made, "failures", name) >= failures + 2
            assert metric(made, "behind_seconds", name) > 0
            assert cold.local_start(name) == BATCH, "what is in no table is deleted nowhere"
        finally:
            tables.unlink()
            away.rename(tables)
        cold.cluster.wait_until(lambda: rows_of(table) == end, "it catches up", 60.0)
        cold.cluster.wait_until(lambda: state.error == "", "the error is over")
        assert metric(made, "behind_seconds", name) == 0
    assert values_of(table) == whole(end).values, "each record once"
    cold.hint(name)
    cold.cluster.wait_until(lambda: cold.local_start(name) == end, "deleted once tiered")
    assert cold.read(name, end) == whole(end)


def test_a_topic_created_again_never_mixes_with_the_former_ones_table(
    cold: ColdCluster, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    name = "again"
    cold.create(name)
    old_at = cold.location(name)
    old, more = folder_of(old_at.uri), 2 * BATCH
    with cold.serving() as made:
        cold.send(name, word="old")
        cold.cluster.wait_until(lambda: rows_of(old) == BATCH, "the former topic's rows", 60.0)
        cold.make_cold({name: {0: BATCH}})
        assert cold.read(name, BATCH) == whole(BATCH, word="old")
        reader = TableReader(old_at)
        with cold.cluster.admin() as admin:
            admin.delete_topics([name])
        cold.create(name)
        cold.send(name, word="new", count=more)
        new = folder_of(cold.location(name).uri)
        assert new != old
        cold.cluster.wait_until(lambda: rows_of(new) == more, "the new topic's rows", 60.0)
        told = f"the table {old_at.uri} is of the former topic"
        assert any(told in record.getMessage() for record in caplog.records)
        assert set(made.service.topics) >= {name}
        cold.make_cold({name: {0: more}})
        cold.cluster.wait_until(
            lambda: str(new) in (status(cold, name, capsys)[1]["table"] or ""), "its status"
        )
    # Tables, an open reader of the former one, and the broker's fetches of old offsets.
    assert values_of(old) == whole(BATCH, word="old").values
    assert values_of(new) == whole(more, word="new").values
    reader.refresh()
    assert reader.read(0, 0).rows.column("value").to_pylist() == values_of(old)
    assert cold.read(name, more) == whole(more, word="new")
