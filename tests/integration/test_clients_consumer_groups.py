"""Stock clients in consumer groups of both protocols: the trials of suites/group_features.py.

What is quick to try is in `make test`; every client with every feature is in `make integrations`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from suites import group_features
from suites.group_features import PROPERTIES, ROWS, tried
from suites.group_members import CONSUMER
from suites.parts import MissingPartError

pytestmark = pytest.mark.integration

QUICK = ("confluent-kafka", CONSUMER)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers with short sessions."""
    folder = tmp_path_factory.mktemp("consumer-groups")
    with LocalCluster(folder, next_base_port(folder), properties=PROPERTIES) as made:
        yield made


@pytest.mark.parametrize("feature", ["rebalance", "static"])
def test_librdkafka(cluster: LocalCluster, feature: str) -> None:
    group_features.run(cluster.bootstrap, *QUICK, feature)


@pytest.mark.integrations
@pytest.mark.parametrize(
    ("client", "protocol", "feature"),
    [(client, protocol, feature) for client, protocol in ROWS for feature in tried(protocol)],
)
def test_every_client(cluster: LocalCluster, client: str, protocol: str, feature: str) -> None:
    try:
        group_features.run(cluster.bootstrap, client, protocol, feature)
    except MissingPartError as error:
        pytest.skip(str(error))
