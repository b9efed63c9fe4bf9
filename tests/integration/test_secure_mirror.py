"""A mirror between two secure clusters of ours: TLS of two authorities, SCRAM users of its own, and
no other rights than those that docs/mirror.md lists."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater import Admin, Consumer, Producer
from headwater.client.security_options import security_keywords
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.config.java_properties import read_java_properties
from headwater.local import processes
from headwater.ports.authorizer import Operation
from headwater.security.acl import AclFilter
from headwater.security.client_keys import security_properties
from integration.conftest import next_base_port
from mirror_pair import QUICK, MirrorProcess, payloads, read_all, run_cli, until

pytestmark = [pytest.mark.integration, pytest.mark.long]

HEADWATER = str(Path(sys.executable).with_name("headwater"))
PASSWORD = "the-mirror-has-this-password"
WAIT_S = 60.0
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
FIRST = TopicPartition("orders", 0)
SOURCE_RIGHTS = (
    ("--cluster", "--operation", "Describe"),
    ("--topic", "orders", "--operation", "Read", "--operation", "DescribeConfigs"),
    ("--group", "billing", "--operation", "Describe"),
)
TARGET_RIGHTS = (
    ("--cluster", "--operation", "Create", "--operation", "Alter"),
    ("--topic", "orders", "--operation", "Write", "--operation", "Describe", "--operation",
     "Alter", "--operation", "AlterConfigs"),
    ("--topic", "__mirror.ab.positions", "--operation", "Read", "--operation", "Write"),
    ("--transactional-id", "mirror.ab.", "--resource-pattern-type", "prefixed", "--operation",
     "Write"),
    ("--group", "billing", "--operation", "Read"),
    ("--group", "__mirror.ab", "--operation", "Read"),
)  # fmt: skip


class SecureCluster:
    """A cluster of `headwater up --secure` with one broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = next_base_port(folder.parent)
        self.bootstrap = f"127.0.0.1:{self.port}"

    def run(self, *words: str, stdin: str = "") -> None:
        """A command of it."""
        done = subprocess.run(
            [HEADWATER, *words, "--dir", str(self.folder)],
            capture_output=True, text=True, timeout=120, check=False, input=stdin,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"

    def allow(self, *rights: tuple[str, ...]) -> None:
        """Give the mirror's user these rights."""
        for words in rights:
            self.run("acls", "add", "--allow-principal", "User:mirror", *words)

    @property
    def admin(self) -> dict[str, str]:
        """The admin's client properties."""
        path = str(self.folder / "security" / "client.properties")
        return dict(read_java_properties(path, "file"))

    @property
    def options(self) -> dict[str, Any]:
        """The same as the SDK's keywords."""
        return dict(security_keywords(security_properties(self.admin)))

    def login(self, side: str, password: str = PASSWORD) -> dict[str, str]:
        """The mirror's login at this cluster, as properties of one side."""
        jaas = f'{SCRAM} required username="mirror" password="{password}";'
        rows = {k: v for k, v in self.admin.items() if k != "sasl.jaas.config"}
        own = {**rows, "sasl.jaas.config": jaas, "bootstrap.servers": self.bootstrap}
        return {f"{side}.{key}": value for key, value in own.items()}


@contextmanager
def secure_cluster(folder: Path) -> Iterator[SecureCluster]:
    cluster = SecureCluster(folder)
    port = str(cluster.port)
    cluster.run("up", "--secure", "--brokers", "1", "--port", port, "--no-tiering")
    try:
        cluster.run("users", "add", "mirror", "--password-file", "-", stdin=PASSWORD + "\n")
        yield cluster
    finally:
        cluster.run("down")
    assert processes.of_cluster(folder) == []


def test_a_mirror_with_its_own_users_and_only_the_rights_of_the_page(tmp_path: Path) -> None:
    with secure_cluster(tmp_path / "a") as a, secure_cluster(tmp_path / "b") as b:
        a.run("topics", "create", "orders", "--partitions", "2")
        reader = ("--allow-principal", "User:erin", "--topic", "orders", "--operation", "Read")
        a.run("acls", "add", *reader)
        a.allow(*SOURCE_RIGHTS)
        b.allow(*TARGET_RIGHTS)
        with Producer(a.bootstrap, compression_type="zstd", **a.options) as producer:
            for number in range(500):
                producer.send("orders", b"order %d" % number, key=b"%d" % (number % 7))
        with Admin(a.bootstrap, **a.options) as admin:
            admin.alter_group_offsets("billing", {FIRST: OffsetAndMetadata(3)})
        given = {
            **QUICK, **a.login("source"), **b.login("target"),
            "mirror.id": "ab", "topics": "orders", "groups": "billing", "replication.factor": "1",
        }  # fmt: skip
        original = payloads(read_all(a.bootstrap, "orders", a.options))
        with MirrorProcess(tmp_path, given) as mirror:

            def is_there() -> bool:
                assert mirror.ended() is None, mirror.log.read_text()
                with Admin(b.bootstrap, **b.options) as admin:
                    if "orders" not in admin.list_topics():
                        return False
                return payloads(read_all(b.bootstrap, "orders", b.options)) == original

            until(is_there, "all records are at B", WAIT_S)
            with Admin(b.bootstrap, **b.options) as admin:

                def offset() -> Any:
                    return admin.list_group_offsets("billing").get(FIRST)

                assert until(offset, "the group is translated", WAIT_S).offset == 3
                of_orders = AclFilter(name="orders")

                def erin() -> list[Operation]:
                    found = admin.describe_acls(of_orders)
                    return [acl.operation for acl in found if acl.principal == "User:erin"]

                assert until(erin, "the reader's right is at B", WAIT_S) == [Operation.READ]
            code, text = run_cli(tmp_path, given, "status", "--json")
            assert code == 0, text
            assert mirror.end() == 0
            log = mirror.log.read_text()
            assert PASSWORD not in log and "AUTHORIZATION" not in log, log
        code, text = run_cli(tmp_path, given, "promote", "--json")
        assert code == 0 and json.loads(text)["gap_records"] == 0, text
        with Consumer("orders", bootstrap_servers=b.bootstrap, auto_offset_reset="earliest",
                      **b.options) as consumer:  # fmt: skip
            assert until(lambda: consumer.poll(timeout_ms=500), "B is read", WAIT_S)
