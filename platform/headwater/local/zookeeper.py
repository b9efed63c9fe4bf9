"""The embedded ZooKeeper: a JVM with the jars of pyspark, on loopback, with its data in D.

It starts in about half a second and takes about 75 MB. Clusters on several machines use an
external ensemble instead (docs/operating.md).
"""

from __future__ import annotations

import importlib.util
import socket
import sys
from pathlib import Path

from headwater.errors import UsageError
from headwater.extras import install_hint
from headwater.local import end_with_parent
from headwater.local.child import ChildSpec
from headwater.local.cluster_spec import LOOPBACK
from headwater.local.java import find_java

HEAP_MAX = "256m"
TICK_MS = 1_000
SESSION_MIN_MS = 2_000
SESSION_MAX_MS = 60_000
LOG_PREALLOCATION_KB = 1_024  # ZooKeeper's default of 64 MB is for a disk of its own
ORPHAN_GRACE_S = 15.0  # brokers drain for so long after their supervisor's death
CONNECT_TIMEOUT_S = 0.2
IS_READ_ONLY = b"isro"
"""The one command that the server answers beside sessions; "null" while it does not serve yet."""
READ_WRITE = b"rw"

# The server, its codec, logging, and the classes that they link to.
JAR_PATTERNS = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "netty-common-*.jar",
    "netty-buffer-*.jar",
    "netty-codec-4*.jar",
    "netty-codec-base-*.jar",
    "netty-handler-4*.jar",
    "netty-resolver-*.jar",
    "netty-transport-4*.jar",
    "netty-transport-native-unix-common-*.jar",
)

LOG4J_PROPERTIES = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


def zookeeper_spec(folder: Path, port: int, log_path: Path, host: str = LOOPBACK) -> ChildSpec:
    """A ZooKeeper server with its data in `folder`. Raises UsageError without Java or pyspark."""
    java = find_java()
    jars = zookeeper_jars()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "zoo.cfg"
    config.write_text(_config(folder, host, port))
    logging = folder / "log4j2.properties"
    logging.write_text(LOG4J_PROPERTIES)
    command = (
        *(sys.executable, "-I", "-S", end_with_parent.__file__, str(ORPHAN_GRACE_S)),
        *(java, f"-Xmx{HEAP_MAX}", "-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *("-Xshare:auto", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true"),
        f"-Dzookeeper.preAllocSize={LOG_PREALLOCATION_KB}",
        f"-Dlog4j2.configurationFile={logging}",
        *("-cp", ":".join(jars), "org.apache.zookeeper.server.ZooKeeperServerMain", str(config)),
    )
    return ChildSpec(
        name="zookeeper",
        command=command,
        log_path=log_path,
        probe=lambda: is_serving(host, port),
        # ZooKeeper is stopped by a signal; it replays its log at the next start.
        drains_at_eof=False,
    )


def zookeeper_jars() -> list[str]:
    """The class path, from the pyspark that is installed. It does not import pyspark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise UsageError(
            "the embedded ZooKeeper comes with pyspark, which is not installed: "
            + install_hint("spark")
        )
    folder = Path(found.submodule_search_locations[0]) / "jars"
    jars = []
    for pattern in JAR_PATTERNS:
        matches = sorted(folder.glob(pattern))
        if not matches:
            raise UsageError(f"{folder} has no {pattern}: reinstall pyspark")
        jars += [str(path) for path in matches]
    return jars


def is_listening(host: str, port: int) -> bool:
    """True if the port accepts a TCP connection."""
    try:
        with socket.create_connection((host, port), CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


def is_serving(host: str, port: int) -> bool:
    """True if the server opens sessions. It accepts connections earlier, and forgets the session
    requests of some: their clients would wait for a reply until their time limit."""
    try:
        with socket.create_connection((host, port), CONNECT_TIMEOUT_S) as connection:
            connection.settimeout(CONNECT_TIMEOUT_S)
            connection.sendall(IS_READ_ONLY)
            return connection.recv(len(READ_WRITE)) == READ_WRITE
    except OSError:
        return False


def _config(folder: Path, host: str, port: int) -> str:
    rows = {
        "dataDir": folder / "data",
        "clientPort": port,
        "clientPortAddress": host,
        "tickTime": TICK_MS,
        "minSessionTimeout": SESSION_MIN_MS,
        "maxSessionTimeout": SESSION_MAX_MS,
        "maxClientCnxns": 0,  # all brokers and tools connect from one address
        "admin.enableServer": "false",
        "4lw.commands.whitelist": IS_READ_ONLY.decode(),
        "autopurge.snapRetainCount": 3,
        "autopurge.purgeInterval": 1,
        "snapCount": 20_000,
    }
    return "".join(f"{key}={value}\n" for key, value in rows.items())
