"""TLS against Apache Kafka's, turn by turn on this machine: `make bench-tls`.

    produce     batches of 250 KB over SSL, two connections
    fetch       1 MB at a time over SSL, two connections
    handshakes  complete mTLS handshakes, and the delay of a bystander's requests meanwhile

For each the rate, the CPU ms per MB or per handshake of the server and of the load's processes, the
ratio Headwater / Kafka. Exit 1 when a bar is missed. `--seconds`, `--rounds`, `--only NAME`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient, NewTopic
from peers import KafkaPeer, cpu_seconds, free_port_block
from rich.console import Console
from rich.table import Table
from tls_load import connect, context, read_whole

from headwater.wire.apis.k18_api_versions import ApiVersionsRequest
from headwater.wire.framing import encode_request
from integration.cluster import LocalCluster
from tls_authority import PASSWORD, Authority

CONNECTIONS = 2
PROBE_S = 0.005
RATE_MIN = {"produce": 1.0, "fetch": 1.2}
CPU_MAX = {"fetch": 0.5}
HANDSHAKES_PER_S_MIN = 500.0
DELAY_P99_MAX_MS = 20.0
SSL_OFFSET = 50
FILL_S = 2.0


@dataclass(frozen=True)
class Figure:
    """Work per second, CPU seconds of the server and of the load per unit, and a bystander's delay
    at p99."""

    rate: float
    cpu: float
    load_cpu: float
    delay_p99_ms: float = 0.0


class TlsPeer(Protocol):
    """A broker with TLS."""

    @property
    def name(self) -> str:
        """For the table."""
        ...

    @property
    def ssl(self) -> str:
        """host:port with TLS."""
        ...

    @property
    def pids(self) -> list[int]:
        """The servers' process ids."""
        ...


class Files:
    """Certificates for both peers and the load."""

    def __init__(self, folder: Path) -> None:
        authority = Authority()
        self.folder = folder
        self.ca, self.client = str(folder / "ca.pem"), str(folder / "client.pem")
        (folder / "ca.pem").write_text(authority.pem)
        authority.leaf("client", hosts=()).write(folder / "client.pem")
        (folder / "broker.p12").write_bytes(authority.leaf().pkcs12)
        (folder / "trust.p12").write_bytes(authority.java_truststore)

    @property
    def properties(self) -> dict[str, str]:
        """The same broker configs for both peers."""
        return {
            "ssl.keystore.location": str(self.folder / "broker.p12"),
            "ssl.keystore.password": PASSWORD,
            "ssl.keystore.type": "PKCS12",
            "ssl.truststore.location": str(self.folder / "trust.p12"),
            "ssl.truststore.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.client.auth": "required",
        }


class HeadwaterTls:
    """One broker of ours with a listener for TLS."""

    name = "headwater"

    def __init__(self, folder: Path, files: Files) -> None:
        port = free_port_block()
        self.ssl = f"127.0.0.1:{port + SSL_OFFSET}"
        listeners = f"PLAINTEXT://127.0.0.1:{port},SSL://{self.ssl}"
        addresses = {"listeners": listeners, "advertised.listeners": listeners}
        properties = {**files.properties, **addresses}
        self._cluster = LocalCluster(folder, port, brokers=1, properties=properties)

    def start(self) -> HeadwaterTls:
        """Start it."""
        self._cluster.start()
        return self

    @property
    def pids(self) -> list[int]:
        """The broker's process id."""
        return [self._cluster.pid(0)]

    def stop(self) -> None:
        """Stop it."""
        self._cluster.stop()


class KafkaTls:
    """Apache Kafka; its listener by the name PLAINTEXT serves TLS."""

    name = "kafka"

    def __init__(self, folder: Path, files: Files) -> None:
        protocols = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SSL"}
        properties: Mapping[str, str] = {**files.properties, **protocols}
        self._peer = KafkaPeer(folder, properties=properties)

    def start(self) -> KafkaTls:
        """Start it."""
        self._peer.start()
        return self

    @property
    def ssl(self) -> str:
        """host:port with TLS."""
        return self._peer.bootstrap

    @property
    def pids(self) -> list[int]:
        """The server's process id."""
        return self._peer.pids

    def stop(self) -> None:
        """Stop it."""
        self._peer.stop()


def create_topic(peer: TlsPeer, files: Files, topic: str) -> None:
    """A topic with a partition for each connection."""
    admin = AdminClient(
        {
            "bootstrap.servers": peer.ssl,
            "security.protocol": "SSL",
            "ssl.ca.location": files.ca,
            "ssl.certificate.location": files.client,
            "ssl.key.location": files.client,
        }
    )
    admin.create_topics([NewTopic(topic, CONNECTIONS, 1)])[topic].result(60)
    time.sleep(1.0)


def load(peer: TlsPeer, files: Files, work: str, seconds: float, topic: str = "") -> list[Any]:
    """Run the load's processes side by side; what each has printed."""
    script = Path(__file__).with_name("tls_load.py")
    common = [sys.executable, str(script), work, str(seconds), peer.ssl, files.ca, files.client]
    runs = [
        subprocess.Popen([*common, topic, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(CONNECTIONS)
    ]
    printed = [run.communicate()[0] for run in runs]
    if any(run.returncode for run in runs):
        raise SystemExit(f"the load of {work} on {peer.name} failed: see above")
    return [json.loads(text) for text in printed]


class Bystander(threading.Thread):
    """Asks for the versions of the broker again and again; how long each answer took."""

    def __init__(self, peer: TlsPeer, files: Files) -> None:
        super().__init__(daemon=True)
        self._connection = connect(peer.ssl, context(files.ca, files.client))
        self._ended = threading.Event()
        self._delays_ms: list[float] = []

    def run(self) -> None:
        """Until `p99_ms`."""
        body = encode_request(ApiVersionsRequest(), 0, 1, "bystander")
        frame, buffer = len(body).to_bytes(4, "big") + body, memoryview(bytearray(1 << 16))
        while not self._ended.wait(PROBE_S):
            began = time.monotonic()
            self._connection.sendall(frame)
            read_whole(self._connection, buffer[:4])
            read_whole(self._connection, buffer[: int.from_bytes(buffer[:4], "big")])
            self._delays_ms.append((time.monotonic() - began) * 1000)

    def p99_ms(self) -> float:
        """End; 99 of 100 answers came within this time."""
        self._ended.set()
        self.join()
        self._connection.close()
        return statistics.quantiles(self._delays_ms, n=100)[-1]


def measure(peer: TlsPeer, files: Files, work: str, seconds: float) -> Figure:
    """One run of one kind of work."""
    topic = f"{work}{time.monotonic_ns()}"
    if work != "handshakes":
        create_topic(peer, files, topic)
    if work == "fetch":
        load(peer, files, "produce", FILL_S, topic)
    bystander = Bystander(peer, files)
    bystander.start()
    before = cpu_seconds(peer.pids)
    rows = load(peer, files, work, seconds, topic)
    spent = cpu_seconds(peer.pids) - before
    unit = "count" if work == "handshakes" else "bytes"
    scale = 1.0 if work == "handshakes" else 1e-6
    total = scale * sum(row[unit] for row in rows)
    rate = sum(scale * row[unit] / row["seconds"] for row in rows)
    beside = sum(row["cpu"] for row in rows)
    return Figure(rate, spent / total, beside / total, bystander.p99_ms())


def middle(figures: list[Figure]) -> Figure:
    """The run in the middle by rate."""
    return sorted(figures, key=lambda figure: figure.rate)[len(figures) // 2]


def verdict(work: str, ours: Figure, theirs: Figure) -> str:
    """`met`, or what is missed."""
    missed = []
    if work == "handshakes":
        if ours.rate < HANDSHAKES_PER_S_MIN:
            missed.append(f"rate < {HANDSHAKES_PER_S_MIN:.0f}/s")
        if ours.delay_p99_ms > DELAY_P99_MAX_MS:
            missed.append(f"p99 > {DELAY_P99_MAX_MS:.0f} ms")
    elif ours.rate < RATE_MIN[work] * theirs.rate:
        missed.append(f"rate < {RATE_MIN[work]}x")
    if ours.cpu > CPU_MAX.get(work, float("inf")) * theirs.cpu:
        missed.append(f"CPU > {CPU_MAX[work]}x")
    return "MISSED: " + ", ".join(missed) if missed else "met"


def main() -> int:
    """Start both peers, measure them turn by turn, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("produce", "fetch", "handshakes"), action="append")
    options = parser.parse_args()
    table = Table(title="TLS on this machine: the middle of the rounds")
    for column in ("work", "headwater", "kafka", "ratio", "CPU ms (ours, theirs, load)",
                   "CPU ratio", "p99 ms (ours, theirs)", ""):  # fmt: skip
        table.add_column(column)
    is_met = True
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-tls-")))
        files = Files(folder)
        peers = (HeadwaterTls(folder / "headwater", files), KafkaTls(folder / "kafka", files))
        for peer in peers:
            stack.callback(peer.start().stop)
        for work in options.only or ("produce", "fetch", "handshakes"):
            runs: dict[str, list[Figure]] = {peer.name: [] for peer in peers}
            for _ in range(options.rounds):
                for peer in peers:
                    runs[peer.name].append(measure(peer, files, work, options.seconds))
            ours, theirs = middle(runs["headwater"]), middle(runs["kafka"])
            told = verdict(work, ours, theirs)
            is_met = is_met and told == "met"
            unit = "/s" if work == "handshakes" else "MB/s"
            table.add_row(
                work,
                f"{ours.rate:,.0f} {unit}",
                f"{theirs.rate:,.0f} {unit}",
                f"{ours.rate / theirs.rate:.2f}",
                f"{1000 * ours.cpu:.2f}, {1000 * theirs.cpu:.2f}, {1000 * ours.load_cpu:.2f}",
                f"{ours.cpu / theirs.cpu:.2f}",
                f"{ours.delay_p99_ms:.1f}, {theirs.delay_p99_ms:.1f}",
                told,
            )
    Console(width=140).print(table)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
