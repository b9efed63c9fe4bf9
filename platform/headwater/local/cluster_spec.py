"""A local cluster as data: broker ids, ports and data folders, and the ZooKeeper address.

Broker i of a cluster with base port P serves clients on P+i, the control plane on P+100+i and its
status page on P+200+i; ZooKeeper listens on P+300. In a secure cluster brokers reach each other on
P+400+i. Ports and folders depend on the broker id only,
so that a restarted broker has the same address as before (design/replication.md, "Addresses").
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from headwater.errors import UsageError
from headwater.local.service_spec import ServiceChoice, ServiceSpec

PORT_DEFAULT = 9092
BROKERS_DEFAULT = 3
BROKERS_MAX = 100
CONTROL_PORT_STEP = 100
STATUS_PORT_STEP = 200
ZOOKEEPER_PORT_STEP = 300
INTERNAL_PORT_STEP = 400
PORT_MIN = 1024
PORT_MAX = 65535 - ZOOKEEPER_PORT_STEP
PORT_MAX_SECURE = 65535 - INTERNAL_PORT_STEP - BROKERS_MAX
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one broker: its id, its ports and its data folders."""

    broker_id: int
    host: str
    port: int
    control_port: int
    status_port: int
    folders: tuple[Path, ...]
    """`log.dirs`: one data folder on each disk."""
    internal_port: int | None = None
    """The port for other brokers, in a secure cluster."""

    @property
    def folder(self) -> Path:
        """The first data folder; most clusters have no other."""
        return self.folders[0]

    @property
    def name(self) -> str:
        """`broker-0`: the name of its data folder, log and process."""
        return f"broker-{self.broker_id}"

    @property
    def address(self) -> str:
        """`host:port` of the data plane."""
        return f"{self.host}:{self.port}"

    @property
    def control_address(self) -> str:
        """`host:port` of the control plane."""
        return f"{self.host}:{self.control_port}"

    def ports(self) -> dict[int, str]:
        """The ports of this broker with their purpose."""
        ports = {
            self.port: self.name,
            self.control_port: f"{self.name} control",
            self.status_port: f"{self.name} status page",
        }
        if self.internal_port is not None:
            ports[self.internal_port] = f"{self.name} for brokers"
        return ports


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A cluster on this machine. Clusters with different folders and ports share nothing."""

    directory: Path
    cluster_id: str
    brokers: int = BROKERS_DEFAULT
    base_port: int = PORT_DEFAULT
    host: str = LOOPBACK
    external_zookeeper: str = ""
    """`HOST:PORT,.../chroot` of an external ensemble; empty for the embedded ZooKeeper."""
    properties: tuple[tuple[str, str], ...] = ()
    """Settings of every broker, which override those of its slot."""
    log_dirs: tuple[Path, ...] = ()
    """Folders in which each broker N has a data folder `broker-N`; empty: `directory`."""
    removed: tuple[int, ...] = ()
    """Ids below the highest one that have no broker, because an operator removed it."""
    secure: bool = False
    """TLS, authentication and ACLs on every connection (`headwater up --secure`)."""
    services: tuple[ServiceSpec, ...] = ()
    """Processes beside the brokers, as `chosen` and the brokers' settings make them."""
    chosen: ServiceChoice = ServiceChoice()
    """Which of them there are; kept in cluster.json."""

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= BROKERS_MAX - len(self.removed):
            raise UsageError(
                f"--brokers {self.brokers}: give 1 to {BROKERS_MAX - len(self.removed)}"
            )
        port_max = PORT_MAX_SECURE if self.secure else PORT_MAX
        if not PORT_MIN <= self.base_port <= port_max:
            raise UsageError(f"--port {self.base_port}: give {PORT_MIN} to {port_max}")

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of all brokers: from 0 on, without the removed ones."""
        return tuple(i for i in range(self.brokers + len(self.removed)) if i not in self.removed)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots of all brokers, by broker id."""
        return tuple(self.slot(i) for i in self.broker_ids)

    def free_ids(self, count: int) -> tuple[int, ...]:
        """The ids of the next `count` brokers: the removed ones first. Raises UsageError."""
        free = [i for i in range(BROKERS_MAX) if i not in self.broker_ids]
        if count > len(free):
            raise UsageError(f"{self.brokers} brokers run: {len(free)} can be added, not {count}")
        return tuple(free[:count])

    def with_broker(self, broker_id: int) -> ClusterSpec:
        """This cluster and one more broker."""
        return self._of_ids({*self.broker_ids, broker_id})

    def without_broker(self, broker_id: int) -> ClusterSpec:
        """This cluster without one of its brokers. Raises UsageError for the last one."""
        return self._of_ids(set(self.broker_ids) - {broker_id})

    def _of_ids(self, ids: set[int]) -> ClusterSpec:
        removed = tuple(i for i in range(max(ids, default=0)) if i not in ids)
        return replace(self, brokers=len(ids), removed=removed)

    def slot(self, broker_id: int) -> Slot:
        """The slot of one broker."""
        return Slot(
            broker_id=broker_id,
            host=self.host,
            port=self.base_port + broker_id,
            control_port=self.base_port + CONTROL_PORT_STEP + broker_id,
            status_port=self.base_port + STATUS_PORT_STEP + broker_id,
            folders=tuple(base / f"broker-{broker_id}" for base in self.data_roots),
            internal_port=self.base_port + INTERNAL_PORT_STEP + broker_id if self.secure else None,
        )

    @property
    def data_roots(self) -> tuple[Path, ...]:
        """The folders that hold the brokers' data folders."""
        return self.log_dirs or (self.directory,)

    @property
    def zookeeper_port(self) -> int:
        """The embedded ZooKeeper's client port."""
        return self.base_port + ZOOKEEPER_PORT_STEP

    @property
    def zookeeper_host(self) -> str:
        """The embedded ZooKeeper listens on loopback only, whatever `host` is."""
        return LOOPBACK

    @property
    def zookeeper(self) -> str:
        """`zookeeper.connect` of every broker."""
        return self.external_zookeeper or f"{self.zookeeper_host}:{self.zookeeper_port}"

    @property
    def bootstrap_servers(self) -> str:
        """`bootstrap.servers` of clients: every broker."""
        return ",".join(slot.address for slot in self.slots)

    @property
    def internal_servers(self) -> str:
        """The brokers' addresses for each other, and for services; empty unless it is secure."""
        return ",".join(f"{s.host}:{s.internal_port}" for s in self.slots if s.internal_port)

    @property
    def logs(self) -> Path:
        """The folder with the output of every process."""
        return self.directory / "logs"

    def ports(self) -> dict[int, str]:
        """Every port of the cluster with its purpose."""
        ports = {} if self.external_zookeeper else {self.zookeeper_port: "ZooKeeper"}
        for slot in self.slots:
            ports |= slot.ports()
        return ports


def check_ports_free(spec: ClusterSpec) -> None:
    """Raise UsageError that names the first port in use, its process and the remedy."""
    check_free(spec.host, spec.ports())


def check_free(host: str, ports: Mapping[int, str]) -> None:
    """Raise UsageError unless all of these ports, given with their purpose, can be bound."""
    for port, purpose in sorted(ports.items()):
        if not _is_free(host, port):
            raise UsageError(
                f"port {port} ({purpose}) is in use{_holder(port)}: "
                "stop that process, or choose other ports with --port"
            )


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a listener blocks the port, a connection in TIME_WAIT does not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise UsageError(f"cannot bind {host}:{port}: {error.strerror}") from error
    return True


def _holder(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            is_same = connection.laddr and connection.laddr.port == port
            if is_same and connection.status == psutil.CONN_LISTEN and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        return ""  # the process of another user: its name cannot be read
    return ""
