"""A network per broker whose links can be cut: Linux network namespaces joined by a bridge.

    10.77.0.1 .. n       the brokers, each in a namespace of its own
    10.77.0.254          clients (the harness)
    10.77.0.253          ZooKeeper

The whole harness runs in private user, mount, network and process namespaces (`enter`). They need
no privileges where the kernel allows user namespaces, are separate from the machine, and go with
the harness. A cut makes one side send to a hardware address that no host has: packets are lost as
with a pulled cable, and TCP notices by its own timeouts.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, replace

from headwater.local.cluster_spec import ClusterSpec, Slot

INSIDE_VARIABLE = "HEADWATER_SOAK_INSIDE"
PREFIX = "10.77.0"
CLIENTS_HOST = f"{PREFIX}.254"
ZOOKEEPER_HOST = f"{PREFIX}.253"
NOWHERE = "02:00:00:00:00:ff"
CLONE_NEWNET = 0x40000000
NETWORK = ("--mount", "--net")
PROCESSES = ("--pid", "--fork", "--kill-child", "--mount-proc")
AS_ANYBODY = ("--user", "--map-root-user")


@dataclass(frozen=True, slots=True)
class SeparateHosts(ClusterSpec):
    """A cluster whose brokers and ZooKeeper have addresses of their own."""

    def slot(self, broker_id: int) -> Slot:
        """The addresses of one broker."""
        return replace(ClusterSpec.slot(self, broker_id), host=host_of(broker_id))

    @property
    def zookeeper_host(self) -> str:
        """An address that every broker reaches."""
        return ZOOKEEPER_HOST


def host_of(broker_id: int) -> str:
    """A broker's address."""
    return f"{PREFIX}.{broker_id + 1}"


def why_not() -> str:
    """Why this program cannot have namespaces of its own; empty if it can."""
    return _possible()[1]


def enter(module: str, arguments: list[str]) -> str:
    """Run this program again in namespaces of its own. Returns only if that fails, with the reason;
    inside the namespaces it returns an empty string.
    """
    if os.environ.get(INSIDE_VARIABLE):
        return ""
    options, why = _possible()
    if not why:
        os.environ[INSIDE_VARIABLE] = "1"
        os.execvp("unshare", ["unshare", *options, sys.executable, "-m", module, *arguments])
    return why


def _possible() -> tuple[tuple[str, ...], str]:
    """The options of unshare that work here, or the reason why none does.

    With a process namespace no process outlives the harness, whatever ends it.
    """
    why = "no unshare command"
    user = () if os.geteuid() == 0 else AS_ANYBODY
    for options in ((*user, *NETWORK, *PROCESSES), (*user, *NETWORK), (*AS_ANYBODY, *NETWORK)):
        try:
            probe = subprocess.run(
                ["unshare", *options, "ip", "link", "add", "hw0", "type", "bridge"],
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            break
        if probe.returncode == 0:
            return options, ""
        why = probe.stderr.strip() or f"unshare exited with {probe.returncode}"
    return (), why


class Network:
    """The brokers' networks and the bridge, created once, after `enter`."""

    def __init__(self, brokers: int) -> None:
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "hw0", "type", "bridge")
        run("ip", "addr", "add", f"{CLIENTS_HOST}/24", "dev", "hw0")
        run("ip", "addr", "add", f"{ZOOKEEPER_HOST}/24", "dev", "hw0")
        run("ip", "link", "set", "hw0", "up")
        self._descriptors = [_new_namespace() for _ in range(brokers)]
        for broker_id in range(brokers):
            self._plug_in(broker_id)

    def path(self, broker_id: int) -> str:
        """A broker's namespace, as a path to open for setns."""
        return f"/proc/{os.getpid()}/fd/{self._descriptors[broker_id]}"

    def _plug_in(self, broker_id: int) -> None:
        port = f"hw-port{broker_id}"
        peer = ("peer", "name", "eth0", "netns", self.path(broker_id))
        run("ip", "link", "add", port, "type", "veth", *peer)
        run("ip", "link", "set", port, "master", "hw0", "up")
        self._inside(broker_id, "ip", "link", "set", "lo", "up")
        self._inside(broker_id, "ip", "addr", "add", f"{host_of(broker_id)}/24", "dev", "eth0")
        self._inside(broker_id, "ip", "link", "set", "eth0", "up")

    def _inside(self, broker_id: int, *command: str) -> None:
        run("nsenter", f"--net={self.path(broker_id)}", *command)

    def cut(self, broker_id: int, host: str) -> None:
        """Lose all packets from this broker to `host`."""
        where = (host, "lladdr", NOWHERE, "nud", "permanent", "dev", "eth0")
        self._inside(broker_id, "ip", "neigh", "replace", *where)

    def join(self, broker_id: int, host: str) -> None:
        """Undo `cut`; without one it does nothing."""
        where = (host, "dev", "eth0")
        self._inside(broker_id, "ip", "neigh", "replace", *where, "lladdr", NOWHERE, "nud", "stale")
        self._inside(broker_id, "ip", "neigh", "del", *where)


def run(*command: str) -> None:
    """Run a command that must succeed. Raises RuntimeError with its error output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def _new_namespace() -> int:
    """A descriptor of a new network namespace: a thread enters it, opens it, and ends."""
    found: list[int] = []

    def make() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWNET)")
        found.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if not found:
        raise RuntimeError("the kernel gives no network namespace")
    return found[0]
