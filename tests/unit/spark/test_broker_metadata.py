"""Metadata for planning, from a whole broker."""

from __future__ import annotations

from pathlib import Path

from headwater import Admin
from headwater.client.values import NewTopic
from headwater_spark.source.broker_metadata import Brokers
from whole_cluster import ServedCluster


def test_topics_that_exist_leave_out_the_missing_and_find_them_again(tmp_path: Path) -> None:
    with ServedCluster(tmp_path / "cluster", 1) as c, Admin(c.bootstrap) as admin:
        admin.create_topics([NewTopic("here", 1, 1)])
        brokers = Brokers(c.bootstrap)
        for _ in range(2):  # the second time it is known to be missing
            assert set(brokers.topics_that_exist(["here", "gone"])) == {"here"}
        admin.create_topics([NewTopic("gone", 2, 1)])
        found = brokers.topics_that_exist(["here", "gone"])
        assert {name: topic.partitions for name, topic in found.items()} == {"here": 1, "gone": 2}
        assert set(brokers.topics_that_exist(["gone"])) == {"gone"}
        brokers.close()
