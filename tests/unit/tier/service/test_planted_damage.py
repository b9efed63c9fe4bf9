"""What users and accidents do to the tables of live topics: each is found and named, or harmless;
nobody reads wrong records; other topics go on (issue: tables people query)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headwater import Admin, Producer
from headwater.cli.main import main
from headwater.client.values import NewTopic
from headwater.system import SystemClock, SystemEntropy
from headwater_tier.delta import LogTable, TableAccessError, TableStateError
from headwater_tier.reader import TableReader
from headwater_tier.remote_log_worker import Worker
from headwater_tier.service.engine import Engine, build
from headwater_tier.service.options import ServiceOptions
from headwater_tier.table_location import locate
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.names import Kind, derived
from table_damage import (
    add_empty_without_file,
    add_without_file,
    append,
    cluster_by_value,
    delete_a_file,
    deletion_vectors,
    lose_the_log_end,
    optimize,
    optimize_and_vacuum,
    remove_the_table,
    restore,
)
from whole_cluster import ServedCluster

TIERED = {"remote.storage.enable": "true", "delta.interval.ms": "50"}
BATCH = 10
FINE = "fine"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    folder = tmp_path_factory.mktemp("damaged")
    tables = (folder / "tables").as_uri()
    with ServedCluster(folder / "cluster", 1, headwater_tables_uri=tables) as served:
        create(served, FINE)
        yield served


def create(cluster: ServedCluster, name: str, **configs: str) -> TableLocation:
    own = {key.replace("_", "."): text for key, text in configs.items()}
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1, 1, configs=TIERED | own)])
        return locate(admin, name)


def location(cluster: ServedCluster, name: str) -> TableLocation:
    with Admin(cluster.bootstrap) as admin:
        return locate(admin, name)


def send(cluster: ServedCluster, *names: str) -> None:
    """Ten records more to each topic; a value is its offset, as JSON."""
    with Admin(cluster.bootstrap) as admin:
        ends = admin.list_offsets({(name, 0): -1 for name in names})
    with Producer(cluster.bootstrap) as producer:
        for (name, _), end in ends.items():
            for offset in range(end.offset, end.offset + BATCH):
                producer.send(name, b'{"n": %d}' % offset, partition=0)


def engine(cluster: ServedCluster) -> Engine:
    return build(ServiceOptions(cluster.bootstrap), SystemClock(), SystemEntropy())


def once(cluster: ServedCluster) -> Engine:
    made = engine(cluster)
    made.run(threading.Event(), once=True)
    return made


@contextmanager
def serving(cluster: ServedCluster) -> Iterator[Engine]:
    """A service that runs."""
    made, stop = engine(cluster), threading.Event()
    runner = threading.Thread(target=made.run, args=(stop,))
    runner.start()
    try:
        yield made
    finally:
        stop.set()
        runner.join()


def wait_for(condition: Callable[[], object]) -> None:
    clock, pause = SystemClock(), threading.Event()
    give_up_at = clock.monotonic() + 60.0
    while not condition():
        assert clock.monotonic() < give_up_at
        pause.wait(0.05)


def rows_of(at: TableLocation) -> int:
    """The rows of a table; -1 while it cannot be read."""
    try:
        return LogTable(at).snapshot.rows
    except (TableAccessError, TableStateError):
        return -1


def read_all(at: TableLocation) -> int:
    """Read every tiered offset as a broker does: each value must be its offset's, none may lack.
    Returns how many; raises TableAccessError or TableStateError."""
    reader = TableReader(at)
    offset, end = 0, reader.snapshot.ends[0]
    while offset < end:
        found = reader.read(0, offset)
        values = found.rows.column("value").to_pylist()
        assert found.start_offset <= offset
        expected = range(found.start_offset, found.start_offset + len(values))
        assert found.rows.column("offset").to_pylist() == list(expected)
        assert values == [b'{"n": %d}' % n for n in expected]
        offset = found.end_offset
    return end


def tiered(cluster: ServedCluster, name: str, **configs: str) -> TableLocation:
    """A topic whose table has three files."""
    at = create(cluster, name, **configs)
    for _ in range(3):
        send(cluster, name)
        once(cluster)
    return at


# --- what comes of it -----------------------------------------------------------------------------


@pytest.mark.parametrize("change", [optimize, cluster_by_value, optimize_and_vacuum])
def test_what_delta_allows_breaks_nobody(
    cluster: ServedCluster, change: Callable[[str], None]
) -> None:
    name = f"allowed-{change.__name__}"
    at = tiered(cluster, name)
    change(at.uri)
    send(cluster, name)
    made = once(cluster)
    assert made.service.topics[name].error == ""
    assert read_all(at) == 4 * BATCH


def test_a_broker_that_has_an_old_version_open_survives_a_vacuum_of_its_files(
    cluster: ServedCluster, tmp_path: Path
) -> None:
    at = tiered(cluster, "vacuumed")
    worker = Worker()
    request = {
        "uri": at.uri,
        "topic": at.topic,
        "topic_id": str(at.topic_id),
        "options": [],
        "partition": 0,
        "path": str(tmp_path / "segment"),
    }
    assert worker.handle({**request, "do": "ranges"}) == {"0": [0, 3 * BATCH]}
    optimize_and_vacuum(at.uri)
    offset = 0
    while offset < 3 * BATCH:
        built = worker.handle({**request, "do": "build", "offset": offset})
        assert built["batches"][0][0] == offset
        offset = built["end"]
    assert offset == 3 * BATCH


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (restore, ["its files hold 20 rows, tiering counted 30", "RESTORE"]),
        (append, ["its files hold 33 rows, tiering counted 30", "WRITE"]),
        (add_without_file, ["its files hold 35 rows, tiering counted 30", "WRITE"]),
        (deletion_vectors, ["delta.enableDeletionVectors", "SET TBLPROPERTIES"]),
    ],
)
def test_a_foreign_commit_is_named_and_stops_its_topic_alone(
    cluster: ServedCluster, change: Callable[[str], None], told: list[str]
) -> None:
    name = f"foreign-{change.__name__}"
    at = tiered(cluster, name)
    change(at.uri)
    send(cluster, name, FINE)
    made = once(cluster)
    error = made.service.topics[name].error
    assert all(part in error for part in (*told, "Version 4 was committed by someone else"))
    with pytest.raises(TableStateError):
        read_all(at)
    fine = location(cluster, FINE)
    assert made.service.topics[FINE].error == ""
    assert read_all(fine) == rows_of(fine)


@pytest.mark.parametrize("change", [delete_a_file, add_empty_without_file])
def test_a_lost_file_is_named_in_the_status_and_never_read_as_empty(
    cluster: ServedCluster, change: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"lost-{change.__name__}"
    at = tiered(cluster, name)
    change(at.uri)
    send(cluster, name, FINE)
    with serving(cluster) as made:
        wait_for(lambda: made.maintenance.damage(name))
        wait_for(lambda: rows_of(at) == 4 * BATCH)  # tiering goes on
        status = ["tier", "status", name, "--json", "--bootstrap-server", cluster.bootstrap]

        def shown() -> bool:
            capsys.readouterr()
            assert main(status) in (0, 1)
            [row] = json.loads(capsys.readouterr().out)["topics"]
            return bool(row["state"] == "damaged" and "do not exist" in row["error"])

        wait_for(shown)
        assert made.maintenance.damage(FINE) == ""
    if change is delete_a_file:
        assert "partition 0, offsets " in made.maintenance.damage(name)
        with pytest.raises(TableAccessError, match="cannot be read"):
            read_all(at)
    else:
        assert read_all(at) == 4 * BATCH, "no record could be in it"


def test_a_lost_log_end_is_named_and_what_it_lost_is_tiered_again(cluster: ServedCluster) -> None:
    at = create(cluster, "log-end")
    with serving(cluster) as made:
        for number in range(3):
            send(cluster, "log-end")
            wait_for(lambda number=number: rows_of(at) == BATCH * (number + 1))
        wait_for(lambda: made.service.topics["log-end"].ends == {0: 30})
        lose_the_log_end(at.uri)
        send(cluster, "log-end", FINE)
        wait_for(lambda: rows_of(at) == 4 * BATCH)
        state = made.service.topics["log-end"]
        assert state.error_ms is not None
        wait_for(lambda: state.error == "")
    assert read_all(at) == 4 * BATCH


def test_a_removed_table_is_named_and_a_new_one_begins(
    cluster: ServedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    at = create(cluster, "removed")
    with serving(cluster) as made:
        send(cluster, "removed")
        wait_for(lambda: made.service.topics.get("removed") and rows_of(at) == BATCH)
        remove_the_table(at.uri)
        send(cluster, "removed")
        wait_for(lambda: rows_of(at) == 2 * BATCH)
    assert any("was removed: its history is lost" in r.getMessage() for r in caplog.records)
    assert read_all(at) == 2 * BATCH


def test_erased_rows_of_a_typed_table_stay_erased_and_the_rest_follows(
    cluster: ServedCluster,
) -> None:
    tiered(cluster, "erased", headwater_value_format="json")
    typed = derived(location(cluster, "erased"), Kind.TYPED).place.uri
    assert DeltaTable(typed).to_pyarrow_table().num_rows == 3 * BATCH
    DeltaTable(typed).delete("n < 5")
    optimize(typed)
    cluster_by_n = DeltaTable(typed).optimize.z_order(["n"])
    assert cluster_by_n["numFilesAdded"] >= 1
    send(cluster, "erased")
    made = once(cluster)
    assert made.derived.problems().get("erased", "") == ""
    values = DeltaTable(typed).to_pyarrow_table().column("n").to_pylist()
    assert sorted(values) == list(range(5, 4 * BATCH))
