"""Where everything of a local cluster lives: stable ids, ports and folders per slot.

Broker i of a cluster on base port P serves clients on P+i, control on P+100+i and its status page
on P+200+i; ZooKeeper listens on P+300. Ports and folders never depend on what runs at the moment,
so that a broker that comes back is found where it was (design/replication.md, "Addresses").
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

from headwater.errors import UsageError

PORT_DEFAULT = 9092
BROKERS_DEFAULT = 3
BROKERS_MAX = 100
CONTROL_PORT_STEP = 100
STATUS_PORT_STEP = 200
ZOOKEEPER_PORT_STEP = 300
PORT_MIN = 1024
PORT_MAX = 65535 - ZOOKEEPER_PORT_STEP
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Slot:
    """One broker's place. `folder` is its data folder."""

    broker_id: int
    host: str
    port: int
    control_port: int
    status_port: int
    folder: Path

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


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """What is to run, and where. Two specs with different folders and ports never meet."""

    directory: Path
    cluster_id: str
    brokers: int = BROKERS_DEFAULT
    base_port: int = PORT_DEFAULT
    host: str = LOOPBACK
    external_zookeeper: str = ""
    """`HOST:PORT,.../chroot` of an ensemble that others run; empty: the embedded one."""
    properties: tuple[tuple[str, str], ...] = ()
    """Of every broker, over what its slot says."""

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= BROKERS_MAX:
            raise UsageError(f"--brokers {self.brokers}: give 1 to {BROKERS_MAX}")
        if not PORT_MIN <= self.base_port <= PORT_MAX:
            raise UsageError(f"--port {self.base_port}: give {PORT_MIN} to {PORT_MAX}")

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Every broker's place, by broker id."""
        return tuple(self.slot(i) for i in range(self.brokers))

    def slot(self, broker_id: int) -> Slot:
        """The place of one broker."""
        return Slot(
            broker_id=broker_id,
            host=self.host,
            port=self.base_port + broker_id,
            control_port=self.base_port + CONTROL_PORT_STEP + broker_id,
            status_port=self.base_port + STATUS_PORT_STEP + broker_id,
            folder=self.directory / f"broker-{broker_id}",
        )

    @property
    def zookeeper_port(self) -> int:
        """The embedded ZooKeeper's client port."""
        return self.base_port + ZOOKEEPER_PORT_STEP

    @property
    def zookeeper_host(self) -> str:
        """Where the embedded ZooKeeper binds: loopback only, whatever `host` is."""
        return LOOPBACK

    @property
    def zookeeper(self) -> str:
        """`zookeeper.connect` of every broker."""
        return self.external_zookeeper or f"{self.zookeeper_host}:{self.zookeeper_port}"

    @property
    def bootstrap_servers(self) -> str:
        """The stable list clients start from."""
        return ",".join(slot.address for slot in self.slots)

    @property
    def logs(self) -> Path:
        """The folder of every process's output."""
        return self.directory / "logs"

    def ports(self) -> dict[int, str]:
        """Every port of the cluster with what it is for."""
        ports = {} if self.external_zookeeper else {self.zookeeper_port: "ZooKeeper"}
        for slot in self.slots:
            ports[slot.port] = slot.name
            ports[slot.control_port] = f"{slot.name} control"
            ports[slot.status_port] = f"{slot.name} status page"
        return ports


def check_ports_free(spec: ClusterSpec) -> None:
    """Raise UsageError that names the first busy port, its holder and the remedy."""
    for port, purpose in sorted(spec.ports().items()):
        if not _is_free(spec.host, port):
            raise UsageError(
                f"port {port} ({purpose}) is in use{_holder(port)}: "
                "stop that process, or choose other ports with --port"
            )


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers bind: connections in TIME_WAIT do not count, listeners do.
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
            is_it = connection.laddr and connection.laddr.port == port
            if is_it and connection.status == psutil.CONN_LISTEN and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        return ""  # another user's process: its name stays unknown
    return ""
