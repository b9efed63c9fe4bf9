"""The data folders of a local cluster's brokers: `log.dirs`, whose they are, and what they hold."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from headwater.errors import UsageError
from headwater.local.cluster_spec import ClusterSpec

META_PROPERTIES = "meta.properties"
LOG_DIRS = "log.dirs"
"""`headwater up --set log.dirs=A,B` gives broker N the folders `A/broker-N` and `B/broker-N`."""
FOLDER_MODE = 0o700
CACHE_FOLDER = "remote-log-cache"
"""The one folder inside a data folder that is not a replica's."""


def parse_log_dirs(text: str) -> tuple[Path, ...]:
    """The absolute folders of a `log.dirs` setting. Raises UsageError."""
    found = tuple(Path(part.strip()).expanduser().resolve() for part in text.split(","))
    if any(not part.strip() for part in text.split(",")):
        raise UsageError(f"--set {LOG_DIRS}={text}: an empty name: write FOLDER,FOLDER")
    if len(set(found)) < len(found):
        raise UsageError(f"--set {LOG_DIRS}={text}: a folder is named twice")
    return found


def data_folders(roots: Iterable[Path]) -> Iterator[Path]:
    """The data folders `broker-N` that exist in `roots`."""
    for root in roots:
        yield from sorted(path for path in root.glob("broker-*") if path.is_dir())


def shut(spec: ClusterSpec) -> None:
    """Let only the owner enter the cluster's folder and the data folders that exist: records and
    ZooKeeper's log are in them. Raises UsageError."""
    for folder in (spec.directory, *data_folders(spec.data_roots)):
        if folder.stat().st_mode & stat.S_ISVTX:
            raise UsageError(f"{folder} is for all users: choose a --dir of the cluster's own")
        try:
            folder.chmod(FOLDER_MODE)
        except OSError as error:
            raise UsageError(
                f"{folder}: {error.strerror}: a secure cluster runs as the owner of its folders"
            ) from error


def replicas(folder: Path) -> list[Path]:
    """The folders of the partitions whose replicas are in a data folder."""
    return [path for path in folder.iterdir() if path.is_dir() and path.name != CACHE_FOLDER]


def check_owner(spec: ClusterSpec) -> None:
    """Raise UsageError when a broker's data folder belongs to another cluster."""
    for path, found in _cluster_ids(spec.data_roots):
        if found != spec.cluster_id:
            raise UsageError(
                f"{path} belongs to cluster {found}, not to {spec.cluster_id}: "
                "choose another --dir, or move that folder away"
            )


def check_none_left_out(spec: ClusterSpec, former_roots: Iterable[Path]) -> None:
    """Raise UsageError when replicas are in a folder that `log.dirs` names no longer."""
    dropped = [root for root in former_roots if root not in spec.data_roots]
    for folder in data_folders(dropped):
        if replicas(folder):
            raise UsageError(
                f"--set {LOG_DIRS} leaves out {folder.parent}, but {folder} holds replicas: name "
                f"{folder.parent} too, or move the replicas away first (`headwater reassign`)"
            )


def adopted_id(roots: Iterable[Path]) -> str | None:
    """The cluster id in the data folders, for a cluster whose cluster.json was lost."""
    found = dict(_cluster_ids(roots))
    ids = set(found.values())
    if len(ids) > 1:
        names = ", ".join(map(str, found))
        raise UsageError(f"{names} hold data of several clusters: choose another --dir")
    return ids.pop() if ids else None


def _cluster_ids(roots: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Every data folder that names its cluster, with the cluster id."""
    for folder in data_folders(roots):
        path = folder / META_PROPERTIES
        found = read_properties(path).get("cluster.id") if path.exists() else None
        if found is not None:
            yield folder, found


def read_properties(path: Path) -> dict[str, str]:
    """The `key=value` lines of a properties file."""
    rows = {}
    for line in path.read_text().splitlines():
        key, sign, value = line.partition("=")
        if sign and not key.lstrip().startswith(("#", "!")):
            rows[key.strip()] = value.strip()
    return rows
