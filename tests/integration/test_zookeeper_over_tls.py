"""A cluster whose ZooKeeper has a port with TLS only, which asks for certificates."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from peers import spark_home, wait_for_port

from headwater import Producer
from headwater.errors import HeadwaterError
from headwater.local import cluster_file, processes
from headwater.local.java import find_java
from headwater_spark.cluster.cluster import Cluster
from headwater_spark.cluster.handle import ClusterHandle
from integration.spark_sessions import spark_session
from tls_authority import PASSWORD, Authority

pytestmark = [pytest.mark.integration, pytest.mark.long]

HEADWATER = str(Path(sys.executable).with_name("headwater"))
ZOOKEEPER_AT = 290
"""Port of ZooKeeper, from the first broker's."""
END_S = 20.0


def write_files(folder: Path, port: int) -> Path:
    """Certificates and the server's configuration, which is returned."""
    authority = Authority()
    (folder / "ca.pem").write_text(authority.pem)
    (folder / "trust.p12").write_bytes(authority.java_truststore)
    (folder / "zookeeper.p12").write_bytes(authority.leaf("zookeeper").pkcs12)
    authority.leaf("broker").write(folder / "broker.pem")
    rows = {
        "dataDir": folder / "zookeeper",
        "secureClientPort": port,
        "secureClientPortAddress": "127.0.0.1",
        "tickTime": 1_000,
        "minSessionTimeout": 2_000,
        "maxSessionTimeout": 60_000,
        "admin.enableServer": "false",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": folder / "zookeeper.p12",
        "ssl.keyStore.password": PASSWORD,
        "ssl.trustStore.location": folder / "trust.p12",
        "ssl.trustStore.password": PASSWORD,
        "ssl.clientAuth": "need",
        "ssl.hostnameVerification": "false",
    }
    path = folder / "zoo.cfg"
    path.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
    return path


@pytest.fixture
def zookeeper(tmp_path: Path, free_base_port: int) -> Iterator[str]:
    port = free_base_port + ZOOKEEPER_AT
    config = write_files(tmp_path, port)
    jars = f"{spark_home()}/jars/*"
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    command = [find_java(), "-Xmx256m", "-cp", jars, main, str(config)]
    with (tmp_path / "zookeeper.log").open("wb") as told:
        process = subprocess.Popen(command, stdout=told, stderr=told)
    try:
        wait_for_port(port, process)
        yield f"localhost:{port}"
    finally:
        process.terminate()
        process.wait(20)


def settings(folder: Path) -> dict[str, str]:
    """The brokers' keys."""
    return {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(folder / "ca.pem"),
        "zookeeper.ssl.keystore.location": str(folder / "broker.pem"),
    }


def test_brokers_and_their_supervisor_reach_zookeeper_by_tls_only(
    tmp_path: Path, free_base_port: int, zookeeper: str
) -> None:
    folder = tmp_path / "d"

    def run(*words: str) -> None:
        command = [HEADWATER, *words, "--dir", str(folder), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"

    rows = [part for key, text in settings(tmp_path).items() for part in ("--set", f"{key}={text}")]
    at = ("--port", str(free_base_port), "--brokers", "2", "--zookeeper", f"{zookeeper}/hw")
    run("up", *at, *rows)
    try:
        run("topics", "create", "t", "--partitions", "1", "--replication-factor", "2")
        known = cluster_file.load(folder)
        assert known is not None
        next(p for p in known.processes if p.name == "broker-1").send(signal.SIGKILL)
        with Producer(known.bootstrap_servers) as producer:
            producer.send("t", b"x").result(60)
        assert "not closed" not in told_of_the_end(folder / "logs" / "supervisor.log")
        refuse_plaintext(zookeeper)
    finally:
        run("down")
    assert processes.of_cluster(folder) == []


def told_of_the_end(log: Path) -> str:
    """What the supervisor has written when it has seen that the broker is dead."""
    end = time.monotonic() + END_S
    while "was ended by SIGKILL" not in (text := log.read_text()):
        assert time.monotonic() < end, text
        time.sleep(0.1)
    return text


def refuse_plaintext(servers: str) -> None:
    """A client without TLS gets no session."""
    client = KazooClient(hosts=servers, timeout=2)
    with pytest.raises(KazooTimeoutError):
        client.start(3)
    client.stop()
    client.close()


def test_a_spark_driver_and_operators_elsewhere_reach_it_by_tls_only(
    tmp_path: Path, free_base_port: int, zookeeper: str
) -> None:
    folder, servers = tmp_path / "d", f"{zookeeper}/spark"
    keys = settings(tmp_path)
    with (
        spark_session("local[3]", delta=False) as spark,
        Cluster.start(
            spark, 1, folder, free_base_port, properties=keys, zookeeper=servers, secure=True
        ) as cluster,
    ):
        config, login = folder / "conf" / "zookeeper-client.properties", cluster.client_properties
        assert login is not None
        at = ("--zookeeper", servers, "--command-config", str(login))
        command = (HEADWATER, "cluster", "list", *at, "--json", "--zookeeper-config", str(config))
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        handle = ClusterHandle.attach(
            zookeeper=servers, client_properties=login, zookeeper_properties=config
        )
        assert handle.bootstrap_servers == cluster.bootstrap_servers
        secrets = folder / "security" / "secrets.properties"  # no TLS in it
        with pytest.raises(HeadwaterError, match="ZooKeeper at localhost"):
            ClusterHandle.attach(
                zookeeper=servers, client_properties=login, zookeeper_properties=secrets
            )
