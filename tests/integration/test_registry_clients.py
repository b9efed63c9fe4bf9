"""The schema registry with stock clients of other languages: npm's two, franz-go, Apicurio's Java.

What they need is fetched by `make integrations`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from integration.cluster import LocalCluster
from integration.registry_process import RegistryProcess, serving
from suites import parts

pytestmark = [pytest.mark.integration, pytest.mark.integrations]

ROW = {"carrier": "UA", "delay": 11}
LIMIT_S = 120


@pytest.fixture(scope="module")
def registry(
    shared_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RegistryProcess]:
    log = tmp_path_factory.mktemp("registry-clients") / "log"
    topic = ("--topic", "_clients_schemas")
    with serving(shared_cluster.bootstrap, log, *topic) as process:
        yield process


def run(*command: str, environment: dict[str, str] | None = None) -> Any:
    """The JSON that a program prints on its last line."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("program", "protobuf"),
    [("kafkajs_registry.js", ROW), ("confluent_registry.js", {"seconds": "7"})],
)
def test_clients_of_javascript(
    registry: RegistryProcess, program: str, protobuf: dict[str, Any]
) -> None:
    try:
        command, environment = parts.registry_node()
    except parts.MissingPartError as error:
        pytest.skip(str(error))
    path = str(parts.PROGRAMS / "registry_node" / program)
    decoded = run(*command, path, registry.url, environment=environment)
    assert decoded == {"AVRO": ROW, "JSON": ROW, "PROTOBUF": protobuf}


def test_franz_go(registry: RegistryProcess) -> None:
    try:
        binary = parts.go_program("franz_sr")
    except parts.MissingPartError as error:
        pytest.skip(str(error))
    assert run(str(binary), registry.url) == {
        "version": 1,
        "lookup": True,
        "byID": True,
        "compatible": False,
        "refused": 409,
        "taken": 2,
        "types": 3,
        "protobuf": True,
        "deleted": [1, 2],
        "gone": [1, 2],
        "missing": 40401,
        "carrier": "UA",
    }


def test_apicurios_java_serdes(registry: RegistryProcess) -> None:
    try:
        jars = parts.apicurio_serdes()
    except parts.MissingPartError as error:
        pytest.skip(str(error))
    source = str(parts.PROGRAMS / "java" / "ApicurioSerdes.java")
    read = run("java", "-cp", jars, source, registry.url)
    schema_id = read.pop("id")  # Confluent's frame: any other client finds the schema
    assert read == ROW
    subjects = httpx.get(f"{registry.url}/schemas/ids/{schema_id}/subjects").json()
    assert subjects == ["java-value"]
