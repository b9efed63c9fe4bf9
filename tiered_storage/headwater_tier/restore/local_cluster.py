"""A restore into a folder of this machine: starts ZooKeeper and brokers there, and stops them.

Its parts are those of `headwater up --dir D`, which runs the cluster afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from headwater.client.admin.client import Admin
from headwater.client.security_options import security_keywords
from headwater.config.java_properties import read_java_properties
from headwater.errors import UsageError
from headwater.local import cluster_file
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.daemon import prepare_directory
from headwater.local.data_folders import data_folders, replicas
from headwater.local.manager import Progress
from headwater.local.secure_cluster import client_properties_of
from headwater.local.stop import end_leftovers
from headwater.local.supervisor import Supervisor
from headwater.local.zk_client import ZooKeeperSecurity
from headwater.security.client_keys import security_properties
from headwater.system import SystemClock, SystemEntropy
from headwater.wire.restore_names import RESTORE_CLIENT_ID
from headwater_tier.table_location import BROKER_URI_KEY

Before = Callable[[str, ZooKeeperSecurity], None]
"""(zookeeper, the brokers' credentials there): what is to be done before brokers start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTarget:
    """The folder, and the cluster in it. `properties` as of `headwater up --set`."""

    directory: str
    cluster_id: str
    broker_ids: tuple[int, ...]
    base_port: int | None
    tables_uri: str
    properties: Mapping[str, str] = field(default_factory=dict)
    secure: bool = False


def local_spec(target: LocalTarget) -> ClusterSpec:
    """The cluster to run. Raises UsageError when the folder holds another one's data."""
    directory = prepare_directory(target.directory)
    spec = cluster_file.resolve(
        directory,
        len(target.broker_ids),
        target.base_port,
        SystemEntropy(),
        properties=_properties(target, directory),
        secure=target.secure,
    )
    has_store = (directory / "zookeeper").exists()
    held = [f for f in data_folders(spec.data_roots) if replicas(f)]
    if held and not has_store:
        raise UsageError(
            f"{held[0]} holds replicas: restore is for a cluster without any disk left: move that"
            " folder away, or name another --dir"
        )
    highest = max(target.broker_ids)
    removed = tuple(i for i in range(highest) if i not in target.broker_ids)
    return replace(spec, cluster_id=target.cluster_id, removed=removed)


def _properties(target: LocalTarget, directory: Path) -> dict[str, str]:
    rows = dict(target.properties)
    if target.tables_uri.rstrip("/") != (directory / "tables").as_uri():
        rows[BROKER_URI_KEY] = target.tables_uri
    return rows


@contextmanager
def running(spec: ClusterSpec, before: Before, progress: Progress) -> Iterator[Admin]:
    """The cluster of the spec, started; `before` has run. At the end all processes are stopped, and
    `headwater up` finds the cluster in the folder."""
    lock = cluster_file.DirectoryLock(spec.directory)
    lock.acquire()
    try:
        end_leftovers(spec.directory)
        supervisor = Supervisor(
            spec,
            SystemClock(),
            before_brokers=lambda security: before(spec.zookeeper, security),
        )
        supervisor.start(progress)
        try:
            with _admin(spec) as admin:
                yield admin
        finally:
            supervisor.stop(progress)
        cluster_file.save(spec.directory, cluster_file.of_spec(spec))
    finally:
        lock.release()


def _admin(spec: ClusterSpec) -> Admin:
    path = client_properties_of(spec.directory) if spec.secure else None
    rows = {} if path is None else security_properties(read_java_properties(str(path), "--dir"))
    return Admin(spec.bootstrap_servers, client_id=RESTORE_CLIENT_ID, **security_keywords(rows))
