"""The REST gateway with a stock client of Confluent's proxy, which `make integrations` fetches."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.registry_process import http_process
from suites import parts

pytestmark = [pytest.mark.integration, pytest.mark.integrations]

LIMIT_S = 120


def test_a_client_that_others_wrote(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    try:
        python = parts.rest_client()
    except parts.MissingPartError as error:
        pytest.skip(str(error))
    listen = f"127.0.0.1:{next_base_port(tmp_path)}"
    words = ("gateway", "--bootstrap-server", shared_cluster.bootstrap, "--listen", listen)
    with http_process(words, tmp_path / "log") as gateway:
        program = str(parts.PROGRAMS / "rest_client.py")
        command = [str(python), program, gateway.url, "rest-stock", "rest-stock-group"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "values": [0, 1, 2, 3, 4],
        "codes": [200],
        "retention": "500000",
        "bytes": "500000",
        "topics": True,
        "partitions": 2,
        "leader": True,
        "groups": True,
        "state": "STABLE",
        "members": 1,
        "lag": 0,
        "lags": 2,
        "brokers": 3,
        "broker": True,
    }
