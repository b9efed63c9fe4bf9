"""`headwater up --zookeeper` on an ensemble that was restored: its cluster id is taken over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.ensemble import with_id_of_ensemble
from headwater.local.zk_client import ZooKeeperSecurity
from headwater.local.zk_nodes import Znode


def spec(folder: Path, zookeeper: str = "zk:1/k") -> ClusterSpec:
    return ClusterSpec(folder, "own", 1, 9192, external_zookeeper=zookeeper)


def cluster_id(of: ClusterSpec, data: bytes | None) -> str:
    node = None if data is None else Znode(data, 0, 1)
    return with_id_of_ensemble(of, lambda _servers, _security: node).cluster_id


def test_a_new_folder_takes_the_id_of_the_ensemble(tmp_path: Path) -> None:
    assert cluster_id(spec(tmp_path), b'{"version":"1","id":"restored"}') == "restored"
    assert cluster_id(spec(tmp_path), None) == "own"


def test_data_and_the_embedded_zookeeper_keep_their_own(tmp_path: Path) -> None:
    other = b'{"version":"1","id":"other"}'
    assert cluster_id(spec(tmp_path, zookeeper=""), other) == "own"
    (tmp_path / "broker-0").mkdir()
    assert cluster_id(spec(tmp_path), other) == "own", "the broker says what does not fit"


def test_a_node_that_is_no_cluster_id_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="zk:1/k: /cluster/id holds no cluster id"):
        cluster_id(spec(tmp_path), b"{}")


def test_an_ensemble_that_has_tls_is_asked_by_tls(tmp_path: Path) -> None:
    ways: list[ZooKeeperSecurity] = []

    def note(_servers: str, security: ZooKeeperSecurity) -> None:
        ways.append(security)

    keys = (("zookeeper.ssl.client.enable", "true"),)
    with_id_of_ensemble(replace(spec(tmp_path), properties=keys), note)
    with_id_of_ensemble(spec(tmp_path), note)
    assert [way.tls is None for way in ways] == [False, True]
