"""A new cluster on an external ensemble that names a cluster already: after `headwater restore`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from headwater.errors import UsageError
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.data_folders import data_folders
from headwater.local.zk_client import ZooKeeperSecurity
from headwater.local.zk_nodes import Znode, ZooKeeperNodes
from headwater.local.zk_tls import zookeeper_tls_of

CLUSTER_ID = "/cluster/id"

Read = Callable[[str, ZooKeeperSecurity], Znode | None]
"""(ensemble, the way there) -> the node CLUSTER_ID."""


def read_cluster_id(servers: str, security: ZooKeeperSecurity) -> Znode | None:
    """The node of the cluster's id, which everybody may read; None in an empty ensemble. Raises
    ZooKeeperError."""
    with ZooKeeperNodes(servers, security) as nodes:
        return nodes.get(CLUSTER_ID)


def with_id_of_ensemble(spec: ClusterSpec, read: Read = read_cluster_id) -> ClusterSpec:
    """The spec with the id that its external ensemble names, if no data folder names another one.

    Raises UsageError for a node that is none of a cluster, and for properties of a TLS that cannot
    be.
    """
    if not spec.external_zookeeper or any(data_folders(spec.data_roots)):
        return spec
    tls = zookeeper_tls_of(dict(spec.properties))
    found = read(spec.external_zookeeper, ZooKeeperSecurity(tls=tls))
    if found is None:
        return spec
    try:
        return replace(spec, cluster_id=str(json.loads(found.data)["id"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"--zookeeper {spec.external_zookeeper}: {CLUSTER_ID} holds no cluster id: choose"
            " another chroot"
        ) from error
