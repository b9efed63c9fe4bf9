"""What the outside suites need, fetched once into the project's cache by ordinary coordinates.

    python -m suites.parts              # fetch all, and list what cannot be had

Nothing is installed into the project's own environment: Flink has a venv of its own, and the
programs in JavaScript and Go keep their packages and caches below `.cache/integrations`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from peers import ROOT, kafka_classpath, resolve_jars, spark_home, spark_kafka_jars

CACHE = ROOT / ".cache" / "integrations"
INTEGRATIONS = ROOT / "jobs" / "integrations"
PROGRAMS = Path(__file__).parent / "programs"
SPARK_VERSION = "4.2.0"
DEBEZIUM = (
    "io.debezium:debezium-connector-postgres:3.6.1.Final",
    "org.apache.kafka:connect-runtime:4.3.1",
    "org.slf4j:slf4j-simple:1.7.36",
)
POSTGRES_FOLDERS = "/usr/lib/postgresql/*/bin"
FLINK_VERSION = "2.2.1"
FLINK_CONNECTOR = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
KAFKA_PYTHON_VERSION = "3.0.12"
OPENSEARCH_VERSION = "3.9.0"
OPENSEARCH = (
    f"org.opensearch:opensearch:{OPENSEARCH_VERSION}",
    f"org.opensearch.plugin:transport-netty4-client:{OPENSEARCH_VERSION}",
    "org.apache.logging.log4j:log4j-core:2.25.4",
)
OPENSEARCH_JAVA = 21
OMKAFKA = "/usr/lib/*/rsyslog/omkafka.so"
KAFKAJS_VERSION = "2.2.4"
REST_CLIENT_VERSION = "1.0.1"
REGISTRY_CLIENTS = (
    "@kafkajs/confluent-schema-registry@4.1.0",
    "@confluentinc/schemaregistry@1.10.1",
)
APICURIO_SERDES = "io.apicurio:apicurio-registry-avro-serde-kafka:3.1.7"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>headwater.test</groupId><artifactId>jars</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>
"""
"""Of a project whose dependencies are wanted."""
DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId>
<version>{}</version></dependency>"""
APICURIO_VERSION = "3.3.3"
APICURIO_JAVA = 25
FETCH_S = 900.0
SHOWN_CHARACTERS = 1_500


class MissingPartError(Exception):
    """A part that cannot be had on this machine; the text says which, and why."""


def flink_python() -> Path:
    """The Python of the venv that holds Flink."""
    folder = CACHE / "flink" / "venv"
    with once(folder, f"apache-flink-{FLINK_VERSION}") as is_missing:
        if is_missing:
            _make_venv(folder)
            _pip(folder, "install", f"apache-flink=={FLINK_VERSION}", "setuptools<81")
    return folder / "bin" / "python"


def flink_connector() -> Path:
    """The jar of Flink's Kafka connector, with all it needs inside."""
    try:
        jars = resolve_jars(CACHE / "flink" / "connector", (FLINK_CONNECTOR,))
    except SystemExit as error:
        raise MissingPartError(str(error)) from error
    return next(jars.glob("*flink-sql-connector-kafka*.jar"))


def kafka_python_tests() -> Path:
    """The unpacked source of kafka-python, whose tests its wheel does not carry."""
    folder = CACHE / "kafka-python"
    name = f"kafka_python-{KAFKA_PYTHON_VERSION}"
    with once(folder, name) as is_missing:
        if is_missing:
            source = f"kafka-python=={KAFKA_PYTHON_VERSION}"
            options = ("--no-binary", ":all:", "--no-deps", "--dest", str(folder))
            _run([sys.executable, "-m", "pip", "download", *options, source])
            shutil.unpack_archive(folder / f"{name}.tar.gz", folder)
    return folder / name


def rest_client() -> Path:
    """The Python of the venv that holds a client of Confluent's REST proxy."""
    folder = CACHE / "rest-client" / "venv"
    with once(folder, f"kafka-mcp-{REST_CLIENT_VERSION}") as is_missing:
        if is_missing:
            _make_venv(folder)
            _pip(folder, "install", f"kafka-mcp=={REST_CLIENT_VERSION}")
    return folder / "bin" / "python"


def kafka_jars() -> str:
    """The class path of Kafka's clients and tools."""
    _program("java", "a Java runtime (17 or newer)")
    try:
        return kafka_classpath()
    except SystemExit as error:
        raise MissingPartError(str(error)) from error


def debezium_jars() -> Path:
    """The folder with the jars of Kafka Connect and of Debezium's connector for Postgres."""
    _program("java", "a Java runtime (17 or newer)")
    try:
        return resolve_jars(CACHE / "debezium", DEBEZIUM)
    except SystemExit as error:
        raise MissingPartError(str(error)) from error


def prometheus_programs() -> Path:
    """The folder with `prometheus` and `promtool` (apt: prometheus), unpacked, not installed."""
    folder = CACHE / "prometheus"
    with once(folder, "prometheus") as is_missing:
        if is_missing:
            _run([_program("apt-get", "apt-get"), "download", "prometheus"], folder)
            package = next(folder.glob("prometheus_*.deb"))
            _run([_program("dpkg", "dpkg"), "-x", str(package), str(folder)])
            package.unlink()
    return folder / "usr" / "bin"


def postgres_programs() -> Path:
    """The folder with Postgres' programs (apt: postgresql)."""
    found = sorted(Path("/").glob(POSTGRES_FOLDERS.lstrip("/")))
    if not found:
        raise MissingPartError(f"Postgres is not installed: no {POSTGRES_FOLDERS}")
    return found[-1]


def spark_connector() -> list[str]:
    """The jars of Spark's own connector for Kafka."""
    _program("java", "a Java runtime (17 or newer)")
    try:
        return spark_kafka_jars()
    except SystemExit as error:
        raise MissingPartError(str(error)) from error


def spark_row_level_catalog() -> Path:
    """Spark's test jar with an in-memory catalog whose tables have row-level operations."""
    folder = CACHE / "spark-tests"
    name = f"spark-catalyst_2.13-{SPARK_VERSION}-tests.jar"
    with once(folder, name) as is_missing:
        if is_missing:
            artifact = f"org.apache.spark:spark-catalyst_2.13:{SPARK_VERSION}:jar:tests"
            _maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
    return folder / name


def kafkajs() -> tuple[Sequence[str], dict[str, str]]:
    """The command that runs a program which needs KafkaJS, and its environment."""
    node, npm = _program("node", "Node.js"), _program("npm", "npm")
    folder = CACHE / "npm"
    with once(folder, f"kafkajs-{KAFKAJS_VERSION}") as is_missing:
        if is_missing:
            options = ("--prefix", str(folder), "--cache", str(folder / "cache"), "--no-audit")
            _run([npm, "install", *options, "--no-fund", f"kafkajs@{KAFKAJS_VERSION}"])
    return (node,), {"NODE_PATH": str(folder / "node_modules")}


def registry_node() -> tuple[Sequence[str], dict[str, str]]:
    """The command that runs a program which needs the registry clients of npm, its environment."""
    node, npm = _program("node", "Node.js"), _program("npm", "npm")
    folder = CACHE / "npm-registry"
    with once(folder, "-".join(REGISTRY_CLIENTS).replace("/", "-")) as is_missing:
        if is_missing:
            options = ("--prefix", str(folder), "--cache", str(folder / "cache"), "--no-audit")
            _run([npm, "install", *options, "--no-fund", *REGISTRY_CLIENTS])
    return (node,), {"NODE_PATH": str(folder / "node_modules")}


def storm_jars() -> str:
    """The class path of Storm with its local cluster and its connector to Kafka."""
    return f"{example_jars('storm')}/*"


def streams_jars() -> str:
    """The class path of Kafka Streams."""
    return f"{example_jars('streams')}/*"


def connect_file_jars() -> Path:
    """The folder with the jars of Kafka Connect and of its connectors for files."""
    return example_jars("connect")


def mirror_maker_jars() -> str:
    """The class path of MirrorMaker 2."""
    return f"{example_jars('mirrormaker')}/*"


def opensearch() -> tuple[str, Path]:
    """OpenSearch's class path, and the home of the Java (21 or newer) that runs it."""
    home = _java(OPENSEARCH_JAVA).parents[1]
    return f"{maven_jars('opensearch', OPENSEARCH)}/*", home


def rsyslog() -> str:
    """The program of rsyslog with its output to Kafka (apt: rsyslog-kafka)."""
    if not list(Path("/").glob(OMKAFKA.lstrip("/"))):
        raise MissingPartError(f"rsyslog-kafka is not installed: no {OMKAFKA}")
    return _program("rsyslogd", "rsyslog")


def hadoop_jars() -> str:
    """The class path of Hadoop's MapReduce, as pyspark brings it, and of Kafka's client."""
    client = next(Path(kafka_jars().partition("/*")[0]).glob("*_kafka-clients-*.jar"))
    return f"{spark_home() / 'jars'}/*:{client}"


def apicurio_serdes() -> str:
    """The class path of Apicurio's Avro serializers for Kafka, with all that they need."""
    return f"{maven_jars('apicurio-serdes', (APICURIO_SERDES,))}/*"


def maven_jars(name: str, coordinates: Sequence[str]) -> Path:
    """The folder with the jars of these coordinates and of all that they need to run."""
    rows = "".join(DEPENDENCY.format(*row.split(":")) for row in coordinates)
    return _jars_of(name, POM.format(dependencies=rows))


def example_jars(name: str) -> Path:
    """The folder with the jars that the pom.xml of an example names."""
    return _jars_of(name, (INTEGRATIONS / name / "pom.xml").read_text())


def _jars_of(name: str, pom: str) -> Path:
    _program("java", "a Java runtime (17 or newer)")
    folder = CACHE / name
    with once(folder, f"pom-{hashlib.sha256(pom.encode()).hexdigest()[:16]}") as is_missing:
        if is_missing:
            (folder / "pom.xml").write_text(pom)
            shutil.rmtree(folder / "jars", ignore_errors=True)
            jars = f"-DoutputDirectory={folder / 'jars'}"
            _maven("dependency:copy-dependencies", jars, "-DincludeScope=runtime", folder=folder)
    return folder / "jars"


def apicurio_registry() -> tuple[Path, Path]:
    """The unpacked Apicurio registry, and the Java (25 or newer) that runs it."""
    folder = CACHE / "apicurio"
    name = f"apicurio-registry-app-{APICURIO_VERSION}-all.tar.gz"
    with once(folder, name) as is_missing:
        if is_missing:
            artifact = f"io.apicurio:apicurio-registry-app:{APICURIO_VERSION}:tar.gz:all"
            _maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
            shutil.unpack_archive(folder / name, folder)
    return folder, _java(APICURIO_JAVA)


def _maven(*arguments: str, folder: Path | None = None) -> None:
    """Run Maven on a local repository of the project's: Spark's `--packages` reads the user's, and
    fails there for each artifact of which Maven has only the POM."""
    repository = f"-Dmaven.repo.local={CACHE / 'm2'}"
    _run([_program("mvn", "Maven"), "-q", repository, *arguments], folder)


def _java(least: int) -> Path:
    """A Java of at least this version: of JAVA_HOME, or of the system's folder for them."""
    homes = [Path(os.environ["JAVA_HOME"])] if "JAVA_HOME" in os.environ else []
    homes += sorted(Path("/usr/lib/jvm").glob("*"), reverse=True)
    for home in homes:
        program = home / "bin" / "java"
        if program.exists() and _java_version(program) >= least:
            return program
    raise MissingPartError(f"Java {least} or newer is not installed: set JAVA_HOME to one")


def _java_version(program: Path) -> int:
    command = [str(program), "-version"]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    return int(found.group(1)) if found else 0


def go_program(name: str) -> Path:
    """The binary of `programs/<name>`, built anew when a source has changed."""
    go = _program("go", "Go")
    source, binary = PROGRAMS / name, CACHE / "go" / "bin" / name
    binary.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        "GOPATH": str(CACHE / "go"),
        "GOCACHE": str(CACHE / "go" / "build"),
        # Otherwise the module cache is read-only, and `make clean` cannot remove it.
        "GOFLAGS": "-modcacherw",
    }
    _run([go, "build", "-o", str(binary), "."], cwd=source, environment=environment)
    return binary


@contextmanager
def once(folder: Path, name: str) -> Iterator[bool]:
    """True when `name` must be fetched into `folder`; its end marks it as complete.

    Two processes may ask at a time: the second waits for the first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / f"complete-{name}"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_missing = not stamp.exists()
        yield is_missing
        stamp.touch()


def _make_venv(folder: Path) -> None:
    # Flink's packages are built for a few versions only; the project's own Python has them.
    venv.create(folder, with_pip=True, symlinks=True)


def _pip(folder: Path, *arguments: str) -> None:
    _run([str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", *arguments])


def _program(name: str, what: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise MissingPartError(f"{what} is not installed: `{name}` is not on the PATH")
    return path


def _run(
    command: Sequence[str],
    cwd: Path | None = None,
    environment: dict[str, str] | None = None,
) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=FETCH_S,
        check=False,
    )
    if done.returncode != 0:
        told = (done.stderr or done.stdout)[-SHOWN_CHARACTERS:]
        raise MissingPartError(f"`{' '.join(command)}` failed: {told}")


PARTS: dict[str, Callable[[], object]] = {
    "Kafka's clients and tools": kafka_jars,
    f"Flink {FLINK_VERSION}": flink_python,
    f"{FLINK_CONNECTOR}": flink_connector,
    f"kafka-python {KAFKA_PYTHON_VERSION} with its tests": kafka_python_tests,
    f"KafkaJS {KAFKAJS_VERSION}": kafkajs,
    f"kafka-mcp {REST_CLIENT_VERSION}": rest_client,
    "franz-go": lambda: go_program("franz"),
    "franz-go's members of groups": lambda: go_program("franz_groups"),
    "franz-go with Kerberos": lambda: go_program("franz_login"),
    "registry clients of npm": registry_node,
    "franz-go's registry client": lambda: go_program("franz_sr"),
    f"{APICURIO_SERDES}": apicurio_serdes,
    f"Apicurio registry {APICURIO_VERSION}": apicurio_registry,
    "sarama": lambda: go_program("sarama"),
    "spark-kafka": spark_connector,
    "Debezium and Kafka Connect": debezium_jars,
    "Postgres": postgres_programs,
    "Storm": storm_jars,
    "Kafka Streams": streams_jars,
    "Kafka Connect's connectors for files": connect_file_jars,
    "MirrorMaker 2": mirror_maker_jars,
    f"OpenSearch {OPENSEARCH_VERSION}": opensearch,
    "rsyslog": rsyslog,
    "Prometheus": prometheus_programs,
    "Spark's test catalog": spark_row_level_catalog,
}


def main() -> int:
    """Fetch every part; 1 when one cannot be had."""
    missing = 0
    for name, fetch in PARTS.items():
        try:
            fetch()
        except MissingPartError as error:
            missing += 1
            print(f"{name}: cannot be had: {error}", flush=True)
        else:
            print(f"{name}: there", flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
