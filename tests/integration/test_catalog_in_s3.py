"""The catalog and the tables' half of a restore on an object store: commits put if absent."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

from catalog_doubles import A, MemoryNodes, a_cluster
from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_tier.catalog.rows import CatalogRow, Kind
from headwater_tier.catalog.table import CatalogOvertakenError, CatalogTable, catalog_uri
from headwater_tier.catalog.writer import CatalogWriter
from headwater_tier.delta import LogTable
from headwater_tier.plan import TableLocation
from headwater_tier.restore.metadata import MetadataRestore, Source
from headwater_tier.table_names import table_uri
from integration.conftest import next_base_port

pytestmark = pytest.mark.integration

BASE = "s3://lake/hw"
GAP = 1_000
WAIT_S = 30.0


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An S3 server with an empty bucket, and how deltalake reaches it."""
    port = next_base_port(tmp_path_factory.mktemp("s3"))
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _make_bucket(f"http://127.0.0.1:{port}/lake")
        yield {
            "aws_endpoint_url": f"http://127.0.0.1:{port}",
            "aws_access_key_id": "x",
            "aws_secret_access_key": "y",
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
            "aws_conditional_put": "etag",
        }
    finally:
        server.terminate()
        server.wait(WAIT_S)


def _make_bucket(url: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_the_catalog_is_fenced_folded_and_restored_from(options: dict[str, str]) -> None:
    nodes, said = a_cluster()
    table = CatalogTable.create(catalog_uri(BASE), options)
    writer = CatalogWriter(table, nodes, said, ManualClock(), SeededEntropy(1))
    assert writer.tick() > 10 and writer.last_error == ""

    one, two = (CatalogTable(catalog_uri(BASE), options) for _ in range(2))
    row = CatalogRow(Kind.GROUP, "other", '{"offsets":{}}')
    one.append([row])
    with pytest.raises(CatalogOvertakenError):
        two.append([row])
    before = one.catalog()
    one.fold(SeededEntropy(2), 9)
    assert (one.files, one.catalog()) == (1, before)

    source = Source(BASE, tuple(options.items()))
    report = MetadataRestore(MemoryNodes(), source, ManualClock(), None, GAP).run()
    assert report.first_offsets["tiered"] == {0: 600 + GAP, 1: 5 + GAP}
    location = TableLocation(table_uri(BASE, "tiered", A), "tiered", A, tuple(options.items()))
    assert LogTable(location).snapshot.ends == {0: 600 + GAP, 1: 5 + GAP}
