"""The real peers: Apache Kafka started from its Maven packages, and this project's own cluster.

Jars come through Spark's own resolver (no Maven needed) into `.cache/peers`, once. Both servers get
the same file system; `cpu_seconds` reads what the operating system charged a process tree.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from headwater.local import cluster_file

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "peers"
KAFKA_VERSION = "4.3.0"
KAFKA_PACKAGES = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.apache.logging.log4j:log4j-core:2.25.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.1",
)
MIRROR_MAKER_VERSION = "4.3.1"
MIRROR_MAKER_PACKAGES = (
    f"org.apache.kafka:connect-mirror:{MIRROR_MAKER_VERSION}",
    "org.apache.logging.log4j:log4j-core:2.25.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.1",
)
# The connector's own POM asks for a token provider that cannot be had, and for jars that Spark has:
# each row is resolved by itself, without what it excludes.
SPARK_KAFKA_PACKAGES = (
    (
        (
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
            "org.apache.kafka:kafka-clients:3.9.1",
            "org.apache.commons:commons-pool2:2.12.0",
        ),
        ("org.apache.spark:spark-token-provider-kafka-0-10_2.13",),
    ),
    (
        ("org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",),
        ("org.apache.kafka:*",),
    ),
)
SPARK_HAS = (
    "org.apache.hadoop:*",
    "com.google.*:*",
    "org.scala-lang:*",
    "org.scala-lang.modules:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
    "org.lz4:*",
    "com.github.luben:*",
)
# Kafka's own defaults (kafka-run-class.sh, kafka-server-start.sh).
KAFKA_JVM = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
)
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
RESTART_S = 60.0


def spark_home() -> Path:
    """The folder of the installed pyspark."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SystemExit("pyspark is not installed; run `make setup`")
    return Path(spec.origin).parent


def resolve_jars(folder: Path, packages: tuple[str, ...], excluded: tuple[str, ...] = ()) -> Path:
    """The folder that holds the jars of `packages`, fetched once through Spark's resolver."""
    stamp = folder / f"complete-{packages[0].replace(':', '-')}"
    if stamp.exists():
        return folder / "jars"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "nothing.py"
    script.write_text("pass\n")
    command = [
        str(spark_home() / "bin" / "spark-submit"),
        *("--master", "local[1]", "--conf", f"spark.jars.ivy={folder}"),
        *("--packages", ",".join(packages)),
        *(("--exclude-packages", ",".join(excluded)) if excluded else ()),
        str(script),
    ]
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"cannot fetch {packages}: {done.stderr[-2000:]}")
    stamp.write_text("\n".join(packages))
    return folder / "jars"


def spark_kafka_jars() -> list[str]:
    """Spark's own Kafka connector with what it needs beside Spark, for `spark.jars`."""
    folder = CACHE / "spark-kafka"
    for packages, excluded in SPARK_KAFKA_PACKAGES:
        resolve_jars(folder, packages, (*excluded, *SPARK_HAS))
    return sorted(str(p) for p in (folder / "jars").glob("*.jar"))


def kafka_classpath() -> str:
    """Kafka's server, clients and tools; Spark's resolver leaves Scala to Spark's own jars."""
    jars = resolve_jars(CACHE / "kafka", KAFKA_PACKAGES)
    scala = next((spark_home() / "jars").glob("scala-library-2.13.*.jar"))
    return f"{jars}/*:{scala}"


def mirror_maker_classpath() -> str:
    """MirrorMaker 2 with what it needs: `org.apache.kafka.connect.mirror.MirrorMaker`."""
    return f"{resolve_jars(CACHE / 'mirror-maker', MIRROR_MAKER_PACKAGES)}/*"


def kafka_tool(main: str, *arguments: str, timeout_s: float = 120, stdin: str | None = None) -> str:
    """Run one of Kafka's own command-line tools; its standard output. Raises on failure."""
    command = ["java", "-Xmx256m", "-cp", kafka_classpath(), main, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, input=stdin, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{main} {' '.join(arguments)}: {done.stderr[-2000:]}{done.stdout[-500:]}"
        )
    return done.stdout


def free_port() -> int:
    """A TCP port on loopback that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], timeout_s: float = 180) -> None:
    """Return once `port` accepts. Raises RuntimeError when the process ends before."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port} after {timeout_s} s")


def cpu_seconds(pids: list[int]) -> float:
    """User and system seconds charged to these processes so far."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / CLOCK_TICKS


def age_seconds(pid: int) -> float:
    """How long ago the process was started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / CLOCK_TICKS


def rss_megabytes(pid: int) -> float:
    """Resident memory of one process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no VmRSS")


@dataclass
class KafkaPeer:
    """Apache Kafka in KRaft mode on loopback: `brokers` combined broker-controllers."""

    folder: Path
    brokers: int = 1
    name: str = "kafka"
    properties: Mapping[str, str] = field(default_factory=dict)
    """Broker configs in addition to those below."""
    sasl_port: int | None = None
    """Port of a second listener, named SASL (SASL_PLAINTEXT), of a lone broker."""
    ports: list[int] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        """The bootstrap list."""
        return ",".join(f"127.0.0.1:{p}" for p in self.ports)

    @property
    def pids(self) -> list[int]:
        """The servers' process ids."""
        return [p.pid for p in self.processes]

    def start(self) -> KafkaPeer:
        """Format the folders, start the servers, wait for their ports."""
        self.ports = [free_port() for _ in range(self.brokers)]
        controllers = [free_port() for _ in range(self.brokers)]
        voters = ",".join(f"{i}@127.0.0.1:{p}" for i, p in enumerate(controllers))
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        classpath = kafka_classpath()
        for i in range(self.brokers):
            home = self.folder / f"kafka-{i}"
            home.mkdir(parents=True)
            config = home / "server.properties"
            config.write_text(_kafka_properties(i, home, self, controllers[i], voters))
            # One argument: an id may begin with a dash.
            of_cluster = f"--cluster-id={cluster_id}"
            format_command = ("kafka.tools.StorageTool", "format", of_cluster, "-c")
            subprocess.run(
                ["java", "-cp", classpath, *format_command, str(config)],
                check=True,
                capture_output=True,
            )
            with (home / "out.log").open("wb") as out:
                command = [*_kafka_command(), str(config)]
                self.processes.append(
                    subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
                )
        for port, process in zip(self.ports, self.processes, strict=True):
            wait_for_port(port, process)
        if self.sasl_port is not None:  # Kafka opens its listeners one after the other
            wait_for_port(self.sasl_port, self.processes[0])
        return self

    def restart(self) -> None:
        """End the only server as an operator would, and start it again; its port may be closed
        yet."""
        (old,) = self.processes
        old.terminate()
        old.wait()
        home = self.folder / "kafka-0"
        with (home / "out.log").open("ab") as out:
            command = [*_kafka_command(), str(home / "server.properties")]
            self.processes = [subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)]

    def stop(self) -> None:
        """End the servers and remove their folders."""
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _kafka_command() -> list[str]:
    return ["java", *KAFKA_JVM, "-cp", kafka_classpath(), "kafka.Kafka"]


def _kafka_properties(
    node: int, home: Path, peer: KafkaPeer, controller_port: int, voters: str
) -> str:
    copies = min(3, peer.brokers)
    plaintext = f"PLAINTEXT://127.0.0.1:{peer.ports[node]}"
    if peer.sasl_port is not None:
        plaintext += f",SASL://127.0.0.1:{peer.sasl_port}"
    return "\n".join(
        (
            "process.roles=broker,controller",
            f"node.id={node}",
            f"controller.quorum.voters={voters}",
            f"listeners={plaintext},CONTROLLER://127.0.0.1:{controller_port}",
            f"advertised.listeners={plaintext}",
            "controller.listener.names=CONTROLLER",
            (
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
                "SASL:SASL_PLAINTEXT"
            ),
            f"log.dirs={home / 'data'}",
            f"offsets.topic.replication.factor={copies}",
            f"transaction.state.log.replication.factor={copies}",
            "transaction.state.log.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            "log.segment.delete.delay.ms=100",
            "broker.session.timeout.ms=60000",  # it may be stopped while the other is measured
            *(f"{key}={value}" for key, value in peer.properties.items()),
        )
    )


@dataclass
class HeadwaterPeer:
    """This project's cluster, started the way a user does: `headwater up`."""

    folder: Path
    brokers: int = 1
    name: str = "headwater"
    bootstrap: str = ""
    pids: list[int] = field(default_factory=list)
    settings: tuple[str, ...] = ()
    """`KEY=VALUE` of every broker."""

    def start(self) -> HeadwaterPeer:
        """`headwater up` on a free port block; process ids from `headwater status`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        port = free_port_block()
        more = ["--brokers", str(self.brokers), *(f"--set={row}" for row in self.settings)]
        self._run("up", *more, "--port", str(port), "--no-tiering")
        status = json.loads(self._run("status", "--json"))
        self.bootstrap = status["bootstrap_servers"]
        self.pids = self._broker_pids()
        return self

    def restart(self) -> None:
        """End the only broker as an operator would; its supervisor starts it again. Its port may be
        closed yet."""
        (old,) = self.pids
        os.kill(old, signal.SIGTERM)
        end = time.monotonic() + RESTART_S
        while self.pids == [old] or not self.pids:
            if time.monotonic() > end:
                raise RuntimeError(f"broker {old} was not started again in {RESTART_S:.0f} s")
            time.sleep(0.02)
            self.pids = self._broker_pids()

    def _broker_pids(self) -> list[int]:
        known = cluster_file.load(self.folder)
        assert known is not None
        return [p.pid for p in known.processes if p.name.startswith("broker")]

    @property
    def ports(self) -> list[int]:
        """The brokers' ports."""
        return [int(a.rpartition(":")[2]) for a in self.bootstrap.split(",")]

    def stop(self) -> None:
        """`headwater down`, then remove the folder."""
        self._run("down")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, command: str, *arguments: str) -> str:
        program = str(Path(sys.executable).parent / "headwater")
        done = subprocess.run(
            [program, command, "--dir", str(self.folder), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"headwater {command}: {done.stderr}{done.stdout}")
        return done.stdout


def free_port_block() -> int:
    """A base port whose block (P to P+300) looks free for `headwater up`."""
    for base in range(31000, 60000, 1000):
        probes = [base, base + 1, base + 2, base + 100, base + 101, base + 200, base + 300]
        if all(_is_free(p) for p in probes):
            return base
    raise RuntimeError("no free block of ports between 31000 and 60000")


def _is_free(port: int) -> bool:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def bench_folder(name: str, *, on_disk: bool = False) -> Path:
    """A fresh folder for data. `on_disk`: where a user's data would be; else on a memory file
    system where there is room: the server's own speed, without the noise of write-back throttling.
    """
    memory = Path("/dev/shm")
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > 8 << 30
    parent = memory if has_room and not on_disk else CACHE
    folder = parent / f"headwater-bench-{os.getpid()}-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    return folder


if __name__ == "__main__":
    # `make setup`: so that tests and benches need no network later.
    kafka_classpath()
    print("Kafka's tools are there")
