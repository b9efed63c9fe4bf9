"""kafka-python's own integration tests, unchanged, against a running cluster.

    python -m suites.kafka_python                          # all that can pass
    python -m suites.kafka_python --kafka -- -k transactional

The tests come with the package's source. They can be told of a running broker (KAFKA_URI); only
`test/service.py`, which starts one, is not in the source: a stand-in takes its place.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from suites import parts
from suites.clusters import HEADWATER, KAFKA, started

TESTED_AS = "4.0"
"""The broker's version by which the tests choose what they expect."""
SERVICE = '''"""Stands in for the module that starts brokers: these are running."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass

    def stop(self):
        pass


SpawnedService = ExternalService
'''
PRODUCER = "test_producer_integration.py"
CONSUMER = "test_consumer_integration.py"
ADMIN = "test_admin_integration.py"
FILES = (PRODUCER, CONSUMER, ADMIN)
NOT_SERVED: Mapping[str, str] = {
    f"{ADMIN}::test_create_describe_delete_acls": "ACLs: a later issue",
    f"{ADMIN}::test_describe_metadata_quorum": "KRaft's own: the metadata is in ZooKeeper",
    f"{ADMIN}::test_list_config_resources": "ListConfigResources is not served",
    f"{CONSUMER}::test_kafka_version_infer": (
        "it guesses 4.3; with TESTED_AS 4.2 or newer the clients send ListOffsets v11 unasked, "
        "which is not served"
    ),
}
"""Tests of what Headwater does not have, with the reason."""
PROPERTIES = {"num.partitions": "4", "group.min.session.timeout.ms": "1000"}
"""As the tests' own broker has them."""
TESTS_S = 900.0


def run(bootstrap: str, folder: Path, *arguments: str, skipped: Iterable[str] = ()) -> int:
    """pytest's exit code."""
    source = parts.kafka_python_tests()
    (source / "test" / "__init__.py").touch()
    (source / "test" / "service.py").write_text(SERVICE)
    address = bootstrap.partition(",")[0]
    environment = {
        **os.environ,
        "KAFKA_URI": f"kafka://{address}",
        "KAFKA_VERSION": TESTED_AS,
        # The fixture asks for the folder of a broker that it would start.
        "KAFKA_ROOT": str(folder),
        "PYTHONPATH": str(source),
        "PYTEST_ADDOPTS": "",
    }
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"),
        *(
            "--override-ini",
            "addopts=",
            "--timeout",
            "120",
            "--no-header",
            "-rs",
            "--show-capture=no",
        ),
        *(f"test/integration/{name}" for name in FILES),
        *(f"--deselect=test/integration/{name}" for name in skipped),
        *arguments,
    ]
    done = subprocess.run(command, cwd=source, env=environment, timeout=TESTS_S, check=False)
    return done.returncode


def main(arguments: Iterable[str]) -> int:
    """Run the tests; pytest's exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    options = parser.parse_args(list(arguments))
    with tempfile.TemporaryDirectory(prefix="kafka-python-") as name:
        folder = Path(name)
        kind = KAFKA if options.kafka else HEADWATER
        with started(kind, folder, PROPERTIES) as cluster:
            skipped = () if options.kafka else NOT_SERVED
            return run(cluster.bootstrap, folder, *options.pytest, skipped=skipped)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
