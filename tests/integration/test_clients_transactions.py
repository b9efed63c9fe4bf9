"""Every client's transactions, feature by feature; suites/client_features.py says what each is."""

from __future__ import annotations

import pytest

from integration.cluster import LocalCluster
from suites import client_features
from suites.client_features import FEATURES, OUTSIDE_CLIENTS, PYTHON_CLIENTS
from suites.parts import MissingPartError


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_a_python_client(shared_cluster: LocalCluster, client: str, feature: str) -> None:
    client_features.run(shared_cluster.bootstrap, client, feature)


@pytest.mark.integrations
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("client", OUTSIDE_CLIENTS)
def test_another_client(shared_cluster: LocalCluster, client: str, feature: str) -> None:
    try:
        client_features.run(shared_cluster.bootstrap, client, feature)
    except MissingPartError as error:
        pytest.skip(str(error))
