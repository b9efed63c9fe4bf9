"""`headwater up --secure --schema-registry`: users log in with the brokers' passwords, and their
rights on topics are those on subjects."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.config.java_properties import read_java_properties
from headwater.local import processes
from headwater_tier.typed.quarantine_reasons import SchemaUnavailableError
from headwater_tier.typed.registry_client import RegistryClient

pytestmark = [pytest.mark.integration, pytest.mark.long]

HEADWATER = str(Path(sys.executable).with_name("headwater"))
PASSWORD = "alice-has-this-password"
REGISTRY_OFFSET = 5
IN_FORCE_S = 30
SCHEMA = {"schema": '"int"'}

Run = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "d"


@pytest.fixture
def url(free_base_port: int) -> str:
    return f"http://127.0.0.1:{free_base_port + REGISTRY_OFFSET}"


@pytest.fixture
def run(folder: Path, free_base_port: int) -> Iterator[Run]:
    def command(*words: str, stdin: str = "") -> Any:
        done = subprocess.run(
            [HEADWATER, *words, "--dir", str(folder), "--json"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            input=stdin,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return json.loads(done.stdout) if done.stdout else None

    port = str(free_base_port + REGISTRY_OFFSET)
    options = ("--brokers", "1", "--port", str(free_base_port))
    command("up", "--secure", f"--schema-registry={port}", *options)
    yield command
    command("down")
    assert processes.of_cluster(folder) == []


def status_of(url: str, method: str, path: str, body: Any = None) -> int:
    """What alice is answered."""
    reply = httpx.request(method, url + path, json=body, auth=("alice", PASSWORD), timeout=60)
    return reply.status_code


def test_users_and_acls_of_the_brokers_hold_in_the_registry(
    run: Run, url: str, folder: Path, tmp_path: Path
) -> None:
    assert httpx.get(f"{url}/subjects").status_code == 401
    schema = tmp_path / "int.avsc"
    schema.write_text(SCHEMA["schema"])
    run("topics", "create", "flights", "--partitions", "1")
    versions = "/subjects/flights-value/versions"
    made = run("registry", "register", "flights-value", str(schema), "--url", url)
    assert made["id"] == 1  # as the admin
    run("users", "add", "alice", "--password-file", "-", stdin=PASSWORD + "\n")
    assert status_of(url, "GET", versions) == 403
    assert httpx.get(f"{url}/subjects", auth=("alice", "wrong"), timeout=60).status_code == 401
    allow = ("acls", "add", "--allow-principal", "User:alice", "--topic", "flights")
    run(*allow, "--operation", "Read")
    wait_for(lambda: status_of(url, "GET", versions) == 200)
    assert status_of(url, "POST", versions, SCHEMA) == 403
    run(*allow, "--operation", "Write")
    wait_for(lambda: status_of(url, "POST", versions, SCHEMA) == 200)
    assert status_of(url, "PUT", "/config", {"compatibility": "NONE"}) == 403
    log = (folder / "logs" / "registry.log").read_text()
    assert PASSWORD not in log and "Traceback" not in log


def test_tiering_reads_schemas_as_a_user_of_its_own(run: Run, url: str, folder: Path) -> None:
    run("topics", "create", "flights", "--partitions", "1")
    rows = read_java_properties(str(folder / "security" / "tiering.properties"), "tiering's login")
    client = RegistryClient(url, rows)
    assert client.latest("flights-value") is None  # and not refused
    del rows["schema.registry.basic.auth.user.info"]
    del rows["schema.registry.basic.auth.credentials.source"]
    with pytest.raises(SchemaUnavailableError, match="status 401"):
        RegistryClient(url, rows).latest("flights-value")


def wait_for(holds: Callable[[], bool]) -> None:
    """ACLs are in force after some seconds."""
    import time

    deadline = time.monotonic() + IN_FORCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.5)
