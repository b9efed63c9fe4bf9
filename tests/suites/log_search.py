"""A search node (OpenSearch in one JVM) and a log shipper (rsyslog) of a test's own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suites import java_programs, parts
from suites.killing import KillableProgram, wait_until
from suites.parts import INTEGRATIONS, PROGRAMS

STARTS_S = 90.0
REQUEST_S = 30.0
STOPS_S = 30.0
HOST = "127.0.0.1"


class SearchNode:
    """OpenSearch on a port of loopback."""

    def __init__(self, folder: Path, port: int) -> None:
        jars, home = parts.opensearch()
        (folder / "config").mkdir(parents=True)
        classpath = f"{java_programs.classes(PROGRAMS / 'opensearch', jars, home)}:{jars}"
        command = java_programs.java(classpath, "SearchNode", str(folder), str(port), home=home)
        self.url = f"http://{HOST}:{port}"
        self._program = KillableProgram(command, folder / "search.log")

    def __enter__(self) -> SearchNode:
        self._program.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._program.kill()

    def wait(self) -> None:
        """Return once it answers."""
        wait_until(self._answers, "OpenSearch", STARTS_S)

    def search(self, index: str, **body: Any) -> Any:
        """The reply to a search, which sees all that was indexed before."""
        self._request(f"{index}/_refresh", {})
        return self._request(f"{index}/_search", body)

    def _answers(self) -> bool:
        assert self._program.exit_code() is None, self._program.last_words()
        try:
            with urllib.request.urlopen(self.url, timeout=REQUEST_S):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def _request(self, path: str, body: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(
            f"{self.url}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=REQUEST_S) as reply:
            return json.load(reply)


class Rsyslog:
    """The example's configuration with this test's addresses and folders."""

    def __init__(self, folder: Path, servers: str, port: int) -> None:
        folder.mkdir()
        self.file = folder / "app.log"
        self.file.touch()
        self._port = port
        text = (INTEGRATIONS / "elk" / "rsyslog.conf").read_text()
        for old, new in (
            ("127.0.0.1:9092", servers),
            ("/var/spool/rsyslog", str(folder)),
            ("/var/log/app.log", str(self.file)),
            ('address="0.0.0.0" port="514"', f'address="{HOST}" port="{port}"'),
        ):
            assert old in text, old
            text = text.replace(old, new)
        config = folder / "rsyslog.conf"
        config.write_text(text)
        pid = folder / "pid"
        command = [parts.rsyslog(), "-n", "-f", str(config), "-i", str(pid)]
        self._program = KillableProgram(command, folder / "rsyslog.log")

    def __enter__(self) -> Rsyslog:
        self._program.start()
        wait_until(self._listens, "rsyslog", STARTS_S)
        return self

    def __exit__(self, *_error: object) -> None:
        self._program.signal(signal.SIGTERM)
        try:
            self._program.wait(STOPS_S)
        except subprocess.TimeoutExpired:
            self._program.kill()
            raise

    def send(self, *messages: str) -> None:
        """Messages of syslog (RFC 5424) from another machine."""
        with socket.create_connection((HOST, self._port)) as connection:
            connection.sendall("".join(f"{message}\n" for message in messages).encode())

    def _listens(self) -> bool:
        assert self._program.exit_code() is None, self._program.last_words()
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self._port)) == 0
