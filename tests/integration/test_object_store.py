"""Tables in an S3-compatible store: tiering, cold reads by brokers, the catalog, and a restore."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from catalog_doubles import A, MemoryNodes, a_cluster
from headwater.ids import id_from_text
from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_tier.catalog.rows import CatalogRow, Kind
from headwater_tier.catalog.table import CatalogOvertakenError, CatalogTable, catalog_uri
from headwater_tier.catalog.writer import CatalogWriter
from headwater_tier.delta import LogTable
from headwater_tier.restore.restore_plan import OFFSET_GAP
from headwater_tier.restore.tables_and_zookeeper import MetadataRestore, Source
from headwater_tier.table_names import TableLocation, table_uri
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.object_store import ObjectStore, object_store
from integration.tiered_topics import CODE, cli, configure, consume, ends_of, produce, replica

pytestmark = pytest.mark.integration

GAP = 1_000
WAIT_S = 30.0
TOPIC = "flights"
RECORDS = 600
OPTION_VARIABLE = "HEADWATER_TABLES_OPTION_"
SERVE = (sys.executable, "-c", CODE, "tier", "serve")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(next_base_port(tmp_path_factory.mktemp("s3"))) as running:
        yield running


def test_the_catalog_is_fenced_folded_and_restored_from(store: ObjectStore) -> None:
    base, options = "s3://lake/alone", store.options
    nodes, said = a_cluster()
    table = CatalogTable.create(catalog_uri(base), options)
    writer = CatalogWriter(table, nodes, said, ManualClock(), SeededEntropy(1))
    assert writer.tick() > 10 and writer.last_error == ""

    one, two = (CatalogTable(catalog_uri(base), options) for _ in range(2))
    row = CatalogRow(Kind.GROUP, "other", '{"offsets":{}}')
    one.append([row])
    with pytest.raises(CatalogOvertakenError):
        two.append([row])
    before = one.catalog()
    one.fold(SeededEntropy(2), 9)
    assert (one.files, one.catalog()) == (1, before)

    source = Source(base, tuple(options.items()))
    report = MetadataRestore(MemoryNodes(), source, ManualClock(), None, GAP).run()
    assert report.first_offsets["tiered"] == {0: 600 + GAP, 1: 5 + GAP}
    location = TableLocation(table_uri(base, "tiered", A), "tiered", A, tuple(options.items()))
    assert LogTable(location).snapshot.ends == {0: 600 + GAP, 1: 5 + GAP}


def at(cluster: LocalCluster) -> tuple[str, ...]:
    return ("--bootstrap-server", cluster.bootstrap, "--zookeeper", cluster.zookeeper)


def tables_config(folder: Path, store: ObjectStore, base: str) -> Path:
    """For the service and commands, as the brokers have it in their properties."""
    path = folder / "tables.properties"
    rows = {"headwater.tables.uri": base, **prefixed(store)}
    path.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
    return path


def prefixed(store: ObjectStore) -> dict[str, str]:
    return {f"headwater.tables.option.{key}": value for key, value in store.options.items()}


def is_cold(cluster: LocalCluster, end: int) -> bool:
    row = replica(cluster, 0, TOPIC)
    return bool(row["size_bytes"] == 0 and row["local_log_start_offset"] == end)


def test_the_whole_path_and_a_restore_from_it(store: ObjectStore, tmp_path: Path) -> None:
    base = "s3://lake/whole"
    properties = {
        "headwater.tables.uri": base,
        "log.retention.check.interval.ms": "300",
        **prefixed(store),
    }
    config = ("--tables-config", str(tables_config(tmp_path, store, base)))
    cluster = LocalCluster(tmp_path / "cluster", next_base_port(tmp_path), 1, properties)
    with cluster:
        cluster.create_topic(
            TOPIC, 1, 1, retention_ms="-1", remote_storage_enable="true", file_delete_delay_ms="100"
        )
        produce(cluster, TOPIC, RECORDS)
        rows = consume(cluster, TOPIC, {0: RECORDS})
        cli("tier", "serve", "--once", *at(cluster), *config)
        configure(cluster, TOPIC, local_retention_ms="1")
        cluster.wait_until(lambda: is_cold(cluster, RECORDS), "no local byte", WAIT_S)
        assert consume(cluster, TOPIC, {0: RECORDS}) == rows, "read from the store"
        _other_engines_see_the_rows(store, base)
        secret = tmp_path / "secret"
        secret.write_text(store.options["aws_secret_access_key"])
        options = {**store.options, "aws_secret_access_key": f"file:{secret}"}
        storage = [f"--storage-option={key}={value}" for key, value in options.items()]
        found = cli("verify", TOPIC, "--bootstrap-server", cluster.bootstrap, "--json", *storage)
        assert json.loads(found.stdout)["equal"]
        rows = consume(cluster, TOPIC, ends_of(cluster, TOPIC))
        cli("tier", "catalog", "--once", *at(cluster), *config)

    shutil.rmtree(cluster.directory)
    more = ("--dir", str(cluster.directory), "--port", str(cluster.spec.base_port))
    said = cli("restore", "--from", base, *more, *config).stdout
    assert "1 topics with 1 partitions, ids as before" in said
    with cluster:
        assert consume(cluster, TOPIC, {0: len(rows)}) == rows
        produce(cluster, TOPIC, len(rows) + 10, first=len(rows))
        end = ends_of(cluster, TOPIC)[0]
        assert end >= len(rows) + OFFSET_GAP + 10
        cli("tier", "serve", "--once", *at(cluster), *config)
        assert ends_in_table(store, base) == {0: end}


def ends_in_table(store: ObjectStore, base: str) -> dict[int, int]:
    (location,) = tables_in(store, base)
    return dict(LogTable(location).snapshot.ends)


def tables_in(store: ObjectStore, base: str) -> list[TableLocation]:
    """The log tables, by the topics of the catalog."""
    source = Source(base, tuple(store.options.items()))
    report = source.catalog().catalog()
    found = [row.value() for (kind, _), row in report.items() if kind is Kind.ENDS]
    assert len(found) == 1
    uri = f"{base}/{TOPIC}-{found[0]['id']}"
    topic_id = id_from_text(found[0]["id"])
    return [TableLocation(uri, TOPIC, topic_id, tuple(store.options.items()))]


def _other_engines_see_the_rows(store: ObjectStore, base: str) -> None:
    (location,) = tables_in(store, base)
    table = DeltaTable(location.uri, storage_options=store.options)
    rows = table.to_pyarrow_table(columns=["offset", "value"])
    with duckdb.connect() as engine:
        engine.register("rows", rows)
        counted = engine.sql('select count(*), max("offset") from rows').fetchall()
    assert counted == [(RECORDS, RECORDS - 1)]


@pytest.mark.long
def test_an_outage_delays_tiering_and_nothing_else(store: ObjectStore, tmp_path: Path) -> None:
    base = "s3://lake/outage"
    properties = {"headwater.tables.uri": base, **prefixed(store)}
    config = ("--tables-config", str(tables_config(tmp_path, store, base)))
    with LocalCluster(tmp_path / "cluster", next_base_port(tmp_path), 1, properties) as cluster:
        cluster.create_topic(TOPIC, 1, 1, retention_ms="-1", remote_storage_enable="true")
        produce(cluster, TOPIC, RECORDS)
        cli("tier", "serve", "--once", *at(cluster), *config)
        cli("tier", "catalog", "--once", *at(cluster), *config)
        _an_outage_delays_tiering_and_nothing_else(store, cluster, config)


def _an_outage_delays_tiering_and_nothing_else(
    store: ObjectStore, cluster: LocalCluster, config: tuple[str, ...]
) -> None:
    """While the store answers nothing, clients produce and read; afterwards tiering catches up."""
    process = subprocess.Popen(
        [*SERVE, *at(cluster), *config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        store.pause(signal.SIGSTOP)
        try:
            produce(cluster, TOPIC, RECORDS + 50, first=RECORDS)
            assert len(consume(cluster, TOPIC, {0: RECORDS + 50}, {0: RECORDS})) == 50
        finally:
            store.pause(signal.SIGCONT)
        base = cluster.properties["headwater.tables.uri"]
        deadline = time.monotonic() + 60
        while ends_in_table(store, base)[0] < RECORDS + 50:
            assert process.poll() is None, "the service has ended"
            assert time.monotonic() < deadline, "it does not catch up"
            time.sleep(0.3)
    finally:
        process.terminate()
        process.wait(WAIT_S)


def test_credentials_may_come_from_the_environment(store: ObjectStore) -> None:
    base = "s3://lake/by-environment"
    CatalogTable.create(catalog_uri(base), store.options).append(
        [CatalogRow(Kind.GROUP, "app", "{}")]
    )
    variables = {f"{OPTION_VARIABLE}{key}": value for key, value in store.options.items()}
    command = [sys.executable, "-c", CODE, "tier", "catalog", "--show", "--tables-uri"]
    done = subprocess.run(
        [*command, base],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and "group: 1" in done.stdout, done.stderr
