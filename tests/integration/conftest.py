"""Fixtures of the integration tests: ports that no other test uses, and a shared cluster."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater.local.broker_sessions import CloseSession
from headwater.local.cluster_spec import ClusterSpec, check_ports_free
from headwater.local.zk_session import close_session
from integration.cluster import LocalCluster
from integration.jvm_tools import SHORT_LIVED_JVM

# Each cluster takes base .. base+400 and a few. The range can be moved for runs side by side.
FIRST_PORT = int(os.environ.get("HEADWATER_TEST_PORTS_FROM", "23000"))
PORTS_STEP = 10
BASES_PER_BLOCK = 8
BLOCK_PORTS = 500
END_PORT = 32_000
"""From here on are the ports that some tests choose themselves, then the ephemeral ones."""


def ports_of_worker(environment: Mapping[str, str]) -> tuple[int, int]:
    """The ports from .. to of this process: pytest-xdist's workers share the range out."""
    number = int(environment.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = (END_PORT - FIRST_PORT) // int(environment.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return FIRST_PORT + number * ports, FIRST_PORT + (number + 1) * ports


PORTS_FROM, PORTS_END = ports_of_worker(os.environ)
# No base twice in a run, if it can be helped: clients of an ended test would find the next cluster.
BASES = [
    block + PORTS_STEP * number
    for block in range(PORTS_FROM, PORTS_END - BLOCK_PORTS, BLOCK_PORTS)
    for number in range(BASES_PER_BLOCK)
] or [PORTS_FROM]

_bases = itertools.cycle(BASES)

# Spark in processes of their own (`headwater tier run`, the notebook) lives for seconds, too.
os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED_JVM)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED_JVM)


Start = Callable[..., LocalCluster]

MINUTES_FIRST = (
    "test_spark_exactly_once", "test_tiering_end_to_end", "test_spark_pipelines", "test_jobs",
    "test_spark_cluster", "test_spark_sink", "test_spark_source", "test_clients_transactions",
    "test_clients_matrix", "test_sdk_transactions", "test_local_cluster", "test_notebook",
    "test_replication_faults", "test_spark_hosts", "test_secure_spark_cluster",
    "test_secured_spark", "test_restore", "test_spark_sql", "test_tiering_service",
    "test_clients_bad_input", "test_supervisor", "test_city_live", "test_city_pages",
    "test_tokens_and_oauth", "test_spark_source_rules", "test_watchdog", "test_typed_tables",
)  # fmt: skip
"""The modules that take longest: begun last, one of them would keep a worker alone for minutes."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest modules come first; the order is random otherwise."""
    rank = {name: number for number, name in enumerate(MINUTES_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


def next_base_port(folder: Path) -> int:
    """A base port all of whose ports are free."""
    for _ in range(len(BASES)):
        base = next(_bases)
        try:
            check_ports_free(ClusterSpec(folder, "ports", PORTS_STEP // 2, base))
        except UsageError:
            continue
        return base
    raise RuntimeError(f"no free ports from {PORTS_FROM} on: set HEADWATER_TEST_PORTS_FROM")


@pytest.fixture
def free_base_port(tmp_path: Path) -> int:
    """A base port all of whose ports are free."""
    return next_base_port(tmp_path)


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[Start]:
    """`start_cluster(brokers=3, **properties)`: a cluster of the test's own, ended after it.

    Property names are given with _ for dots. `close` closes the sessions of dead brokers.
    """
    with ExitStack() as stack:

        def start(
            brokers: int = 3, *, close: CloseSession = close_session, **properties: str
        ) -> LocalCluster:
            base = next_base_port(tmp_path)
            rows = {key.replace("_", "."): value for key, value in properties.items()}
            cluster = LocalCluster(
                tmp_path / f"cluster-{base}", base, brokers, rows, close_session=close
            )
            stack.callback(cluster.stop)
            return cluster.start()

        yield start


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers for all tests that do them no harm. Use topic names of your own."""
    folder = tmp_path_factory.mktemp("shared")
    with LocalCluster(folder, next_base_port(folder)) as cluster:
        yield cluster
        gc.collect()  # clients of librdkafka in cycles would complain on stderr that it is gone
