"""`D/cluster.json`: what a local cluster is and what of it runs; and the lock on D.

The file is rewritten as a whole and renamed into place. The lock is an flock on `D/.lock` held by
the manager for its life, so two `up` on one folder never fight and a crash releases it.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater.entropy import Entropy
from headwater.errors import UsageError
from headwater.ids import id_text
from headwater.local.cluster_spec import BROKERS_DEFAULT, LOOPBACK, PORT_DEFAULT, ClusterSpec
from headwater.local.manager import Manager
from headwater.local.processes import ProcessRef

FORMAT = 1
FILE_NAME = "cluster.json"
LOCK_NAME = ".lock"
META_PROPERTIES = "meta.properties"


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The document. `manager` is None when the cluster is down."""

    cluster_id: str
    brokers: int
    base_port: int
    host: str = LOOPBACK
    bootstrap_servers: str = ""
    zookeeper: str = ""
    control_addresses: tuple[str, ...] = ()
    kind: str = "local"
    manager: ProcessRef | None = None
    processes: tuple[ProcessRef, ...] = field(default=())
    external_zookeeper: str = ""
    properties: dict[str, str] = field(default_factory=dict)

    def spec(self, directory: Path) -> ClusterSpec:
        """The cluster this file describes, in `directory`."""
        return ClusterSpec(
            directory,
            self.cluster_id,
            self.brokers,
            self.base_port,
            self.host,
            self.external_zookeeper,
            tuple(self.properties.items()),
        )

    @property
    def running(self) -> bool:
        """True while its manager process lives."""
        return self.manager is not None and self.manager.alive()


def of_spec(spec: ClusterSpec, kind: str = "local") -> ClusterFile:
    """The document of a cluster that is about to run on its slots' own addresses."""
    return ClusterFile(
        cluster_id=spec.cluster_id,
        brokers=spec.brokers,
        base_port=spec.base_port,
        host=spec.host,
        bootstrap_servers=spec.bootstrap_servers,
        zookeeper=spec.zookeeper,
        control_addresses=tuple(slot.control_address for slot in spec.slots),
        kind=kind,
        external_zookeeper=spec.external_zookeeper,
        properties=dict(spec.properties),
    )


def load(directory: Path) -> ClusterFile | None:
    """The file in `directory`; None when there is none. Raises UsageError when unreadable."""
    path = directory / FILE_NAME
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise UsageError(f"{directory} is a file: name a cluster's folder (--dir)") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}: restore or remove this file") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        raise UsageError(
            f"{path} has format {found!r}, this Headwater writes {FORMAT}: "
            "use the version that wrote it"
        )
    try:
        return _decoded(document)
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path}: {error!r} is missing or wrong: restore this file") from error


def save(directory: Path, cluster: ClusterFile) -> None:
    """Replace the file in one step."""
    text = json.dumps({"format": FORMAT, **asdict(cluster)}, indent=2) + "\n"
    scratch = directory / f"{FILE_NAME}.new"
    scratch.write_text(text)
    os.replace(scratch, directory / FILE_NAME)


def _process(row: dict[str, Any]) -> ProcessRef:
    return ProcessRef(row["name"], row["pid"], row["started"])


def _decoded(document: dict[str, Any]) -> ClusterFile:
    manager = document["manager"]
    return ClusterFile(
        cluster_id=document["cluster_id"],
        brokers=document["brokers"],
        base_port=document["base_port"],
        host=document["host"],
        bootstrap_servers=document["bootstrap_servers"],
        zookeeper=document["zookeeper"],
        control_addresses=tuple(document["control_addresses"]),
        kind=document["kind"],
        manager=_process(manager) if manager else None,
        processes=tuple(_process(row) for row in document["processes"]),
        external_zookeeper=document.get("external_zookeeper", ""),
        properties=document.get("properties", {}),
    )


class ClusterRecord:
    """Keeps the file true while a manager runs, so that the command line finds the cluster."""

    def __init__(self, spec: ClusterSpec, kind: str, own_name: str) -> None:
        """`own_name`: what this process, which holds the manager, is called in the file."""
        self.manager: Manager | None = None
        self._directory = spec.directory
        self._lock = threading.Lock()
        self._closed = False
        self._file = replace(of_spec(spec, kind), manager=ProcessRef.of(own_name, os.getpid()))

    def update(self) -> None:
        """Write what runs now; any thread, and harmless before there is a manager."""
        if self.manager is None:
            return
        state = self.manager.state()
        with self._lock:
            if self._closed:
                return
            self._file = replace(
                self._file,
                bootstrap_servers=state.bootstrap_servers,
                zookeeper=state.zookeeper,
                control_addresses=state.control_addresses,
                processes=state.processes,
            )
            save(self._directory, self._file)

    def close(self) -> None:
        """The cluster is down; what a late `update` says no longer counts."""
        with self._lock:
            self._closed = True
            self._file = replace(self._file, manager=None, processes=())
            save(self._directory, self._file)


class DirectoryLock:
    """The exclusive right to run a cluster in a folder."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK_NAME
        self._fd = -1

    def acquire(self) -> None:
        """Take it now or raise UsageError. Child processes do not inherit it."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise UsageError(self._refusal()) from error
        self._fd = fd

    def release(self) -> None:
        """Give it back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _refusal(self) -> str:
        directory = self._path.parent
        cluster = load(directory)
        if cluster is None or cluster.manager is None:
            return f"another `headwater up` is starting in {directory}: wait for it"
        return (
            f"a cluster runs in {directory} already (pid {cluster.manager.pid}, bootstrap servers "
            f"{cluster.bootstrap_servers}): use it, stop it with `headwater down`, "
            "or choose another --dir and --port"
        )


def resolve(
    directory: Path,
    brokers: int | None,
    base_port: int | None,
    entropy: Entropy,
    *,
    zookeeper: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> ClusterSpec:
    """The cluster to run in `directory`: the one found there, or a new one.

    `zookeeper` names an external ensemble; `properties` are kept for the next time, and an empty
    value forgets one. Raises UsageError when the folder holds another cluster's data or too many
    brokers' data.
    """
    known = load(directory)
    if known is None:
        cluster_id = _adopted_id(directory) or _fresh_id(entropy)
        spec = ClusterSpec(
            directory,
            cluster_id,
            BROKERS_DEFAULT if brokers is None else brokers,
            PORT_DEFAULT if base_port is None else base_port,
        )
    else:
        if brokers is not None and brokers < known.brokers and not _never_ran(directory, known):
            raise UsageError(
                f"{directory} holds a cluster of {known.brokers} brokers, --brokers {brokers} "
                "would leave replicas behind: reassign their partitions first"
            )
        spec = replace(
            known.spec(directory),
            brokers=known.brokers if brokers is None else brokers,
            base_port=known.base_port if base_port is None else base_port,
        )
    check_folders(spec)
    kept = {**dict(spec.properties), **(properties or {})}
    rows = tuple((key, value) for key, value in kept.items() if value)
    return replace(spec, external_zookeeper=_ensemble(spec, known, zookeeper), properties=rows)


def _ensemble(spec: ClusterSpec, known: ClusterFile | None, given: str | None) -> str:
    """The external ensemble to use. Raises UsageError when the cluster's metadata is elsewhere."""
    if given is None:
        return spec.external_zookeeper
    if known is not None and not known.external_zookeeper and not _never_ran(spec.directory, known):
        raise UsageError(
            f"{spec.directory} holds a cluster whose topics are in its embedded ZooKeeper: leave "
            "--zookeeper out, or choose another --dir"
        )
    return given


def _never_ran(directory: Path, known: ClusterFile) -> bool:
    """True when the file tells only of starts that failed: nothing is stored, here or elsewhere."""
    stored = any(directory.glob("broker-*")) or (directory / "zookeeper").exists()
    return not stored and not known.external_zookeeper


def check_folders(spec: ClusterSpec) -> None:
    """Raise UsageError when a broker's data folder belongs to another cluster."""
    for path in sorted(spec.directory.glob(f"broker-*/{META_PROPERTIES}")):
        found = read_properties(path).get("cluster.id", spec.cluster_id)
        if found != spec.cluster_id:
            raise UsageError(
                f"{path.parent} belongs to cluster {found}, not to {spec.cluster_id}: "
                "choose another --dir, or move that folder away"
            )


def read_properties(path: Path) -> dict[str, str]:
    """The `key=value` lines of a properties file."""
    rows = {}
    for line in path.read_text().splitlines():
        key, sign, value = line.partition("=")
        if sign and not key.lstrip().startswith(("#", "!")):
            rows[key.strip()] = value.strip()
    return rows


def _adopted_id(directory: Path) -> str | None:
    """The one cluster id that the data folders agree on, when cluster.json was lost."""
    paths = sorted(directory.glob(f"broker-*/{META_PROPERTIES}"))
    ids = {read_properties(path).get("cluster.id") for path in paths} - {None}
    if len(ids) > 1:
        raise UsageError(f"{directory} holds data of several clusters: choose another --dir")
    return ids.pop() if ids else None


def _fresh_id(entropy: Entropy) -> str:
    """A cluster id as Kafka writes them: base64url of a UUID, never with a dash in front."""
    while True:
        text = id_text(entropy.uuid())
        if not text.startswith("-"):
            return text
