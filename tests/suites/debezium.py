"""A Postgres of a test's own, and the settings of Debezium's connector for it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from suites import parts

STARTS_S = 60.0
POLL_S = 0.2
SUPERUSER = "postgres"
HOST = "127.0.0.1"


class Postgres:
    """A database server with logical decoding. It must not run as root."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._programs = parts.postgres_programs()
        self._folder = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))
        self._user = SUPERUSER if os.geteuid() == 0 else None
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Postgres:
        if self._user:
            shutil.chown(self._folder, self._user)
        data = self._folder / "data"
        self._run("initdb", "-D", str(data), "-U", SUPERUSER, "-A", "trust", "-N")
        options = ("-D", str(data), "-p", str(self.port), "-k", str(self._folder), "-h", HOST)
        self._server = subprocess.Popen(
            [self._programs / "postgres", *options, "-c", "wal_level=logical", "-F"],
            cwd=self._folder,
            user=self._user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ends = time.monotonic() + STARTS_S
        while not self._answers():
            if time.monotonic() > ends:
                raise RuntimeError("Postgres does not answer")
            time.sleep(POLL_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)  # at once, without a checkpoint
            self._server.wait(STARTS_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, sql: str) -> None:
        """Run statements, each in a transaction of its own."""
        self._run("psql", *self._connection(), "-v", "ON_ERROR_STOP=1", "-q", "-c", sql)

    def _answers(self) -> bool:
        command = [self._programs / "psql", *self._connection(), "-c", "select 1"]
        done = subprocess.run(command, capture_output=True, cwd=self._folder, check=False)
        return done.returncode == 0

    def _connection(self) -> tuple[str, ...]:
        return ("-h", HOST, "-p", str(self.port), "-U", SUPERUSER)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self._folder,
            user=self._user,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr}")


def postgres_connector(postgres: Postgres, prefix: str, table: str) -> dict[str, str]:
    """The settings of Debezium's connector for one table, as its tutorial has them."""
    return {
        "name": "postgres",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": HOST,
        "database.port": str(postgres.port),
        "database.user": SUPERUSER,
        "database.password": "unused",
        "database.dbname": SUPERUSER,
        "topic.prefix": prefix,
        "plugin.name": "pgoutput",
        "table.include.list": table,
    }
