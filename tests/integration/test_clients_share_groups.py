"""Stock clients as members of share groups; suites/share_features.py says what each feature is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from suites import share_features
from suites.clusters import HeadwaterUnderTest
from suites.group_features import PROPERTIES
from suites.parts import MissingPartError
from suites.share_features import TRIED

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadwaterUnderTest]:
    """Three brokers with short locks and sessions."""
    folder = tmp_path_factory.mktemp("share-groups")
    with LocalCluster(folder, next_base_port(folder), properties=PROPERTIES) as made:
        yield HeadwaterUnderTest(made)


@pytest.mark.integrations
@pytest.mark.parametrize(("client", "feature"), TRIED)
def test_every_client(cluster: HeadwaterUnderTest, client: str, feature: str) -> None:
    try:
        share_features.run(cluster, client, feature)
    except MissingPartError as error:
        pytest.skip(str(error))
