"""The gateway before a secure cluster: `headwater up --secure --gateway` on loopback, and off it
with TLS. Users log in with the brokers' passwords, and their ACLs decide."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.config.java_properties import read_java_properties
from headwater.local import processes
from headwater.security.jaas import parse_jaas
from integration.registry_process import http_process
from self_signed import CERTIFICATE, KEY

pytestmark = [pytest.mark.integration, pytest.mark.long]

HEADWATER = str(Path(sys.executable).with_name("headwater"))
PASSWORD = "alice-has-this-password"
ALICE = httpx.BasicAuth("alice", PASSWORD)
GATEWAY_OFFSET, TLS_OFFSET = 5, 6
IN_FORCE_S = 30
AVRO_V2 = {"Content-Type": "application/vnd.kafka.avro.v2+json"}
JSON_V2 = {"Content-Type": "application/vnd.kafka.json.v2+json"}
V2 = {"Content-Type": "application/vnd.kafka.v2+json"}
RECORDS = json.dumps({"records": [{"value": 1}]})

Run = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "d"


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

    port = f"--gateway={free_base_port + GATEWAY_OFFSET}"
    options = ("--brokers", "1", "--port", str(free_base_port), "--no-tiering")
    told = command("up", "--secure", port, *options)
    assert told["gateway"] == f"http://127.0.0.1:{free_base_port + GATEWAY_OFFSET}"
    command("users", "add", "alice", "--password-file", "-", stdin=PASSWORD + "\n")
    command("topics", "create", "flights", "--partitions", "1")
    yield command
    command("down")
    assert processes.of_cluster(folder) == []


def wait_for(holds: Callable[[], bool]) -> None:
    """ACLs and users are in force after some seconds."""
    deadline = time.monotonic() + IN_FORCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_users_and_acls_of_the_brokers_hold(run: Run, folder: Path, free_base_port: int) -> None:
    url = f"http://127.0.0.1:{free_base_port + GATEWAY_OFFSET}"
    with httpx.Client(base_url=url, timeout=60, auth=ALICE) as client:
        assert httpx.get(f"{url}/topics").status_code == 401
        assert httpx.get(f"{url}/health").status_code == 200
        assert httpx.get(f"{url}/console/").headers["location"].startswith("/console/login")
        wrong = httpx.get(f"{url}/topics", auth=("alice", "wrong"), timeout=60)
        assert [wrong.status_code, wrong.json()["error_code"]] == [401, 40101]
        wait_for(lambda: client.get("/topics").status_code == 200)
        assert client.get("/topics").json() == []  # she may see none

        def send() -> httpx.Response:
            return client.post("/topics/flights", content=RECORDS, headers=JSON_V2)

        refused = send()
        assert [refused.status_code, refused.json()["error_code"]] == [403, 40301]
        allow = ("acls", "add", "--allow-principal", "User:alice", "--topic", "flights")
        run(*allow, "--producer")
        wait_for(lambda: send().status_code == 200)
        assert client.get("/topics").json() == ["flights"]
        path = read_as_alice(run, client)
        clusters = client.get("/v3/clusters").json()["data"]
        acls = client.get(f"/v3/clusters/{clusters[0]['cluster_id']}/acls")
        assert [acls.status_code, acls.json()["error_code"]] == [403, 40301]
        admin = admin_login(folder)
        rows = httpx.get(acls.url, auth=admin, timeout=60).json()["data"]
        assert "User:alice" in {row["principal"] for row in rows}
        assert httpx.get(f"{path}/assignments", auth=admin, timeout=60).status_code == 404
    log = (folder / "logs" / "gateway.log").read_text()
    assert "Principal = User:alice asked the gateway: POST /topics/flights" in log
    assert PASSWORD not in log and "Traceback" not in log
    run("down")
    assert run("up")["gateway"] == url, "a later start of the folder has it again"
    assert httpx.get(f"{url}/topics").status_code == 401


def read_as_alice(run: Run, client: httpx.Client) -> str:
    """A consumer that reads what was sent; its address."""
    made = client.post("/consumers/readers", headers=V2, json={
        "format": "json", "auto.offset.reset": "earliest"})  # fmt: skip
    path = str(made.json()["base_uri"])
    client.post(f"{path}/subscription", headers=V2, json={"topics": ["flights"]})
    assert client.get(f"{path}/records?timeout=2000").status_code == 403  # the group is not hers
    client.delete(path)
    words = ("--allow-principal", "User:alice", "--topic", "flights", "--group", "readers")
    run("acls", "add", "--consumer", *words)
    path = str(client.post("/consumers/readers", headers=V2, json={
        "format": "json", "auto.offset.reset": "earliest"}).json()["base_uri"])  # fmt: skip
    client.post(f"{path}/subscription", headers=V2, json={"topics": ["flights"]})

    def has_read() -> bool:
        reply = client.get(f"{path}/records?timeout=1000")
        return reply.status_code == 200 and [r["value"] for r in reply.json()][:1] == [1]

    wait_for(has_read)
    return path


def admin_login(folder: Path) -> tuple[str, str]:
    """The admin's user and password, of the file for commands."""
    rows = read_java_properties(str(folder / "security" / "client.properties"), "file")
    options = parse_jaas(rows["sasl.jaas.config"]).options
    return options["username"], options["password"]


def test_off_loopback_with_tls(run: Run, folder: Path, free_base_port: int, tmp_path: Path) -> None:
    port = free_base_port + TLS_OFFSET
    (tmp_path / "cert.pem").write_bytes(CERTIFICATE)
    (tmp_path / "key.pem").write_bytes(KEY)
    listen = ("gateway", "--dir", str(folder), "--listen", f"0.0.0.0:{port}")
    plain = subprocess.run([HEADWATER, *listen], capture_output=True, text=True, timeout=60,
                           check=False)  # fmt: skip
    assert plain.returncode == 2 and "in clear" in plain.stderr
    tls = ("--tls-certificate", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    trust = ssl.create_default_context(cadata=CERTIFICATE.decode())
    with http_process((*listen, *tls, "--schema-registry"), tmp_path / "log"):
        url = f"https://localhost:{port}"
        with httpx.Client(base_url=url, verify=trust, auth=ALICE, timeout=60) as client:
            wait_for(lambda: client.get("/topics").status_code == 200)
            reply = client.get("/topics")
            assert reply.headers["strict-transport-security"]
            base = client.get("/v3/clusters").json()["metadata"]["self"]
            assert base == f"{url}/v3/clusters"
            strange = client.get("/topics", headers={"Host": "evil.example"})
            assert strange.status_code == 421
        with httpx.Client(
            base_url=url, verify=trust, auth=admin_login(folder), timeout=60
        ) as admin:
            records_by_schema_are_decoded(admin, admin_login(folder))


def records_by_schema_are_decoded(client: httpx.Client, login: tuple[str, str]) -> None:
    """The console asks the registry of its own process, whatever certificate it listens with."""
    body = {"value_schema": '"string"', "records": [{"value": "delayed"}]}
    made = client.post("/topics/flights", content=json.dumps(body), headers=AVRO_V2)
    assert made.status_code == 200, made.text
    offset = made.json()["offsets"][0]["offset"]
    assert client.get("/subjects").json() == ["flights-value"]
    user, password = login
    entered = client.post(
        "/console/login",
        data={"user": user, "password": password},
        headers={"Origin": str(client.base_url).rstrip("/")},
    )
    assert entered.status_code == 303
    assert "flights-value" in client.get("/console/schemas").text
    detail = client.get(f"/console/topics/flights/messages/0/{offset}/detail").json()
    steps = [(step["name"], step["ok"]) for step in detail["value"]["trace"]]
    assert steps == [("frame", True), ("registry", True), ("schema", True)], detail
    told = client.get("/metrics").text
    assert 'route="/topics/{topic}"' in told
