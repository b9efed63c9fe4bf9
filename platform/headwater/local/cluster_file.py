"""`D/cluster.json`: a cluster's description and its processes; and the lock on its folder D.

A change writes a new file and renames it into place. Only the owner may read the file of a cluster
that is secure, or has properties of its own, which may be passwords. The lock is an flock on
`D/.lock`, which the manager holds as long as it runs: two clusters never use one folder, and a
crash releases it.
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
from headwater.local.data_folders import (
    LOG_DIRS,
    adopted_id,
    check_none_left_out,
    check_owner,
    data_folders,
    parse_log_dirs,
)
from headwater.local.manager import Manager
from headwater.local.private_file import write_private
from headwater.local.processes import ProcessRef
from headwater.local.service_spec import ServiceChoice

FORMAT = 1
FILE_NAME = "cluster.json"
LOCK_NAME = ".lock"


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The document. `manager`, the supervisor or Spark driver, is None when the cluster is down."""

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
    log_dirs: tuple[str, ...] = ()
    removed: tuple[int, ...] = ()
    """Ids below the highest one that have no broker."""
    secure: bool = False
    """TLS, authentication and ACLs on every connection; secrets are in D/security, never here."""
    services: ServiceChoice = ServiceChoice()
    """Which processes run beside the brokers."""

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
            tuple(Path(folder) for folder in self.log_dirs),
            self.removed,
            self.secure,
            chosen=self.services,
        )

    @property
    def running(self) -> bool:
        """True while the manager's process is alive."""
        return self.manager is not None and self.manager.alive()


def of_spec(spec: ClusterSpec, kind: str = "local") -> ClusterFile:
    """The document of a cluster that is about to start, with the addresses of its slots."""
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
        log_dirs=tuple(map(str, spec.log_dirs)),
        removed=spec.removed,
        secure=spec.secure,
        services=spec.chosen,
    )


def load(directory: Path) -> ClusterFile | None:
    """Read the file of `directory`; None if there is none. Raises UsageError if unreadable."""
    path = directory / FILE_NAME
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except PermissionError:
        raise UsageError(
            f"{path}: only its owner may read it: run this as that user, or give --bootstrap-server"
        ) from None
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
    """Replace the file atomically."""
    path = directory / FILE_NAME
    text = json.dumps({"format": FORMAT, **asdict(cluster)}, indent=2) + "\n"
    if cluster.secure or cluster.properties:
        write_private(path, text.encode())
        return
    scratch = path.with_name(f"{FILE_NAME}.new")
    scratch.unlink(missing_ok=True)  # of a crash: its mode would be kept
    scratch.write_text(text)
    os.replace(scratch, path)


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
        log_dirs=tuple(document.get("log_dirs", ())),
        removed=tuple(document.get("removed", ())),
        secure=bool(document.get("secure", False)),
        services=ServiceChoice(**document.get("services", {})),
    )


class ClusterRecord:
    """Keeps the file up to date while a manager runs: commands find the cluster through it."""

    def __init__(self, spec: ClusterSpec, kind: str, own_name: str) -> None:
        """`own_name`: the name in the file of this process, which runs the manager."""
        self.manager: Manager | None = None
        self.directory = spec.directory
        self._lock = threading.Lock()
        self._closed = False
        self._file = replace(of_spec(spec, kind), manager=ProcessRef.of(own_name, os.getpid()))

    def update(self) -> None:
        """Write the manager's state. Any thread may call; without a manager it does nothing."""
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
            if state.spec is not None:
                self._file = replace(
                    self._file, brokers=state.spec.brokers, removed=state.spec.removed
                )
            save(self.directory, self._file)

    def close(self) -> None:
        """Write that the cluster is down. A later `update` has no effect."""
        with self._lock:
            self._closed = True
            self._file = replace(self._file, manager=None, processes=())
            save(self.directory, self._file)


class DirectoryLock:
    """The exclusive right to run a cluster in a folder."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK_NAME
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock or raise UsageError, without waiting. Child processes do not inherit it."""
        while self._fd < 0:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(fd)
                raise UsageError(self._refusal()) from error
            if self._is_current(fd):
                self._fd = fd
            else:
                os.close(fd)

    def release(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _is_current(self, fd: int) -> bool:
        """False when a failed start removed the file between our open and our lock."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _refusal(self) -> str:
        directory = self._path.parent
        cluster = load(directory)
        if cluster is None or cluster.manager is None:
            return f"another `headwater up` is starting in {directory}: wait for it"
        return (
            f"a cluster runs in {directory} already (pid {cluster.manager.pid}, bootstrap servers "
            f"{cluster.bootstrap_servers}): use it, add brokers with `headwater cluster add`, stop "
            "it with `headwater down`, or choose another --dir and --port"
        )


def resolve(
    directory: Path,
    brokers: int | None,
    base_port: int | None,
    entropy: Entropy,
    *,
    zookeeper: str | None = None,
    properties: Mapping[str, str] | None = None,
    secure: bool = False,
) -> ClusterSpec:
    """The cluster to run in `directory`: the one that its files describe, or a new one.

    `zookeeper` names an external ensemble. `properties` are kept for later starts; an empty value
    removes one. A cluster that was `secure` once stays so.

    Raises UsageError when a folder holds another cluster's data, or replicas that the options would
    leave out.
    """
    known = load(directory)
    if known is None:
        cluster_id = adopted_id(data_roots(directory, properties or {})) or _new_id(entropy)
        spec = ClusterSpec(
            directory,
            cluster_id,
            BROKERS_DEFAULT if brokers is None else brokers,
            PORT_DEFAULT if base_port is None else base_port,
        )
    else:
        if brokers is not None and brokers < known.brokers and not _is_unused(directory, known):
            raise UsageError(
                f"{directory} holds a cluster of {known.brokers} brokers, --brokers {brokers} "
                "would leave replicas behind: start it, then use `headwater cluster remove`"
            )
        spec = replace(
            known.spec(directory),
            brokers=known.brokers if brokers is None else brokers,
            base_port=known.base_port if base_port is None else base_port,
        )
    spec = replace(
        spec,
        external_zookeeper=_ensemble(spec, known, zookeeper),
        secure=secure or spec.secure,
    )
    return _with_properties(spec, dict(properties or {}))


def _with_properties(spec: ClusterSpec, given: dict[str, str]) -> ClusterSpec:
    """The spec with its own settings and the given ones, and its data folders checked."""
    log_dirs, former_roots = given.pop(LOG_DIRS, None), spec.data_roots
    if log_dirs is not None:
        spec = replace(spec, log_dirs=parse_log_dirs(log_dirs) if log_dirs else ())
        check_none_left_out(spec, former_roots)
    check_owner(spec)
    kept = {**dict(spec.properties), **given}
    return replace(spec, properties=tuple((key, value) for key, value in kept.items() if value))


def data_roots(directory: Path, properties: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders that hold, or will hold, the brokers' data folders."""
    known = load(directory) if directory.is_dir() else None
    found = (directory,) if known is None else known.spec(directory).data_roots
    given = properties.get(LOG_DIRS)
    return (*found, *parse_log_dirs(given)) if given else found


def _ensemble(spec: ClusterSpec, known: ClusterFile | None, given: str | None) -> str:
    """The external ensemble to use. Raises UsageError when the metadata is in the embedded one."""
    if given is None:
        return spec.external_zookeeper
    is_used = known is not None and not _is_unused(spec.directory, known)
    if known is not None and is_used and not known.external_zookeeper:
        raise UsageError(
            f"{spec.directory} holds a cluster whose topics are in its embedded ZooKeeper: leave "
            "--zookeeper out, or choose another --dir"
        )
    return given


def _is_unused(directory: Path, known: ClusterFile) -> bool:
    """True when no start of this cluster has succeeded: nothing of it is stored anywhere."""
    folders = any(data_folders(known.spec(directory).data_roots))
    return not (folders or (directory / "zookeeper").exists() or known.external_zookeeper)


def _new_id(entropy: Entropy) -> str:
    """A cluster id in Kafka's form: base64url of a UUID, without a leading dash."""
    while True:
        text = id_text(entropy.uuid())
        if not text.startswith("-"):
            return text
