"""Hosts of their own on one Linux machine: network, PID, UTS and mount namespaces on one bridge.

    with network_hosts(folder, 3) as hosts:
        hosts[0].start(["python", "-m", "http.server"], log)   # reachable at hosts[0].address
        hosts[0].cut()                                         # nothing reaches it, it reaches none
        hosts[0].heal()

Every host has an address, a host name and process ids of its own, and private disks: each path of
`private` is another folder on every host. The machine itself is `hosts.central_address`. It takes
root; `refusal()` says why this machine cannot do it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path

import psutil

TOOLS = ("ip", "unshare", "mount", "hostname")
SUBNETS = [f"10.{second}.{third}" for second in (213, 214) for third in range(1, 250)]
PREFIX = "hw"
NETWORKS = count()
"""Numbers of the networks of this process."""
ENDS_S = 10.0


class NamespaceError(Exception):
    """The kernel or this container refuses namespaces."""


@dataclass(slots=True)
class NetworkHost:
    """One host. Its processes end with it."""

    namespace: str
    outer_link: str
    """The bridge's side of its cable."""
    address: str
    disks: Path
    """Where its private folders lie on the machine."""
    private: tuple[Path, ...]
    is_cut: bool = False
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its host name, which no name server knows."""
        return self.namespace

    def disk(self, path: Path) -> Path:
        """The folder of the machine that this host sees as `path`, one of its private folders."""
        return self.disks / path.name

    def start(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process on this host, in a PID namespace of its own."""
        mounts = [
            f"mount --bind {shlex.quote(str(self.disk(path)))} {shlex.quote(str(path))}"
            for path in self.private
        ]
        # Without `exec` the shell stays process 1, and reaps processes whose parent has ended.
        script = " && ".join([f"hostname {self.name}", *mounts, '"$@"']) + "; exit $?"
        with open(log, "ab") as out:
            process = subprocess.Popen(
                [
                    *("ip", "netns", "exec", self.namespace),
                    *("unshare", "--uts", "--mount", "--pid", "--fork", "--mount-proc"),
                    *("--kill-child", "sh", "-c", script, "sh", *command),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **(environment or {})},
            )
        self._processes.append(process)
        return process

    def cut(self) -> None:
        """Pull its cable: packets are dropped without an answer, its processes run on."""
        run("ip", "link", "set", self.outer_link, "down")
        self.is_cut = True

    def heal(self) -> None:
        """Plug its cable in again."""
        run("ip", "link", "set", self.outer_link, "up")
        self.is_cut = False

    def freeze(self) -> None:
        """Stop all of its processes in their tracks, as when a virtual machine is paused."""
        for process in self.processes(""):
            process.suspend()

    def thaw(self) -> None:
        """Let its processes run on."""
        for process in self.processes(""):
            process.resume()

    def processes(self, words: str) -> list[psutil.Process]:
        """Its running processes whose command line contains `words`."""
        return [p for p in self._all_processes() if words in _command_line(p)]

    def _all_processes(self) -> Iterator[psutil.Process]:
        for root in self._processes:
            try:
                yield from psutil.Process(root.pid).children(recursive=True)
            except psutil.NoSuchProcess:
                continue  # it has ended since

    def has_ended(self, process: psutil.Process) -> bool:
        """Whether one of its processes runs no more, even if nobody has asked for its exit code."""
        try:
            return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def end(self) -> None:
        """Kill all of its processes: with process 1 the kernel kills a PID namespace whole."""
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
        for process in self._processes:
            process.wait(ENDS_S)
        self._processes.clear()


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """The hosts, and the address of the machine on their bridge."""

    central_address: str
    hosts: tuple[NetworkHost, ...]

    def __getitem__(self, number: int) -> NetworkHost:
        return self.hosts[number]

    def by_address(self, address: str) -> NetworkHost:
        """The host with this address. Raises KeyError."""
        return {host.address: host for host in self.hosts}[address]


@contextmanager
def network_hosts(folder: Path, count: int, private: Sequence[Path] = ()) -> Iterator[HostNetwork]:
    """`count` hosts, removed at the end. Raises NamespaceError when this machine refuses them."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise NamespaceError(f"there is no {missing[0]} command")
    remove_leftovers()
    subnet = _free_subnet()
    tag = f"{PREFIX}{os.getpid()}"
    # The kernel removes the links of a namespace some time after its removal: one process makes
    # networks with names of their own.
    round_ = next(NETWORKS)
    bridge = f"{tag}b{round_}"
    with ExitStack() as stack:
        run("ip", "link", "add", bridge, "type", "bridge")
        stack.callback(run, "ip", "link", "del", bridge)
        run("ip", "address", "add", f"{subnet}.1/24", "dev", bridge)
        run("ip", "link", "set", bridge, "up")
        hosts = []
        for number in range(count):
            host = NetworkHost(
                namespace=f"{tag}-{round_}-{number}",
                outer_link=f"{tag}v{round_}_{number}",
                address=f"{subnet}.{10 + number}",
                disks=folder / f"host-{number}",
                private=tuple(private),
            )
            _make(host, bridge, stack)
            hosts.append(host)
        yield HostNetwork(f"{subnet}.1", tuple(hosts))


@cache
def refusal() -> str:
    """Why this machine cannot have such hosts; empty if it can."""
    try:
        with network_hosts(Path("/tmp"), 1) as network:
            inside = ["ip", "netns", "exec", network[0].namespace]
            run(*inside, "unshare", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "true")
    except NamespaceError as error:
        return str(error)
    return ""


def remove_leftovers() -> None:
    """Remove namespaces and bridges of test processes that have ended without doing so."""
    for line in run("ip", "netns", "list").splitlines():
        name = line.split()[0] if line.split() else ""
        if _has_ended(name, rf"{PREFIX}(\d+)-\d+-\d+"):
            run("ip", "netns", "del", name)
    for line in run("ip", "-o", "link", "show", "type", "bridge").splitlines():
        name = line.split(": ")[1]
        if _has_ended(name, rf"{PREFIX}(\d+)b\d+"):
            run("ip", "link", "del", name)


def run(*command: str) -> str:
    """Run a command to its end; its output. Raises NamespaceError with its error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NamespaceError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise NamespaceError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _make(host: NetworkHost, bridge: str, stack: ExitStack) -> None:
    for path in host.private:
        host.disk(path).mkdir(parents=True, exist_ok=True)
        path.mkdir(parents=True, exist_ok=True)
    inner_link = f"{host.outer_link}i"
    run("ip", "netns", "add", host.namespace)
    stack.callback(run, "ip", "netns", "del", host.namespace)
    run("ip", "link", "add", host.outer_link, "type", "veth", "peer", "name", inner_link)
    run("ip", "link", "set", inner_link, "netns", host.namespace)
    run("ip", "link", "set", host.outer_link, "master", bridge, "up")
    inside = ("ip", "-n", host.namespace)
    run(*inside, "address", "add", f"{host.address}/24", "dev", inner_link)
    run(*inside, "link", "set", inner_link, "up")
    run(*inside, "link", "set", "lo", "up")
    stack.callback(host.end)


def _free_subnet() -> str:
    used = run("ip", "-o", "-4", "address", "show")
    first = os.getpid() % len(SUBNETS)  # two processes that look at once take different ones
    for subnet in (*SUBNETS[first:], *SUBNETS[:first]):
        if f" {subnet}." not in used:
            return subnet
    raise NamespaceError("every subnet for test hosts is in use")


def _command_line(process: psutil.Process) -> str:
    """A process's command line; empty when it has ended since it was listed."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _has_ended(name: str, pattern: str) -> bool:
    found = re.fullmatch(pattern, name)
    return found is not None and not psutil.pid_exists(int(found[1]))
