"""`headwater up --secure` from within: control plane, replicas, znodes, status port attacked."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from blocking_control import ControlClient
from headwater import Admin, NewTopic
from headwater.client.blocking.connection import BlockingConnection
from headwater.errors import ErrorCode
from headwater.local.data_folders import read_properties
from headwater.ports.control import ControlUnavailableError
from headwater.ports.credentials import Credentials
from headwater.security.certificates import KeyPair, Subject, issue
from headwater.security.client_security import credentials_of
from headwater.system import SystemClock
from headwater.wire.apis.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from headwater.wire.apis.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headwater.wire.apis.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headwater.wire.control import ForwardReply, ForwardRequest
from headwater.wire.schema import encode
from integration.conftest import next_base_port
from integration.test_secured_zookeeper import assert_shut

pytestmark = pytest.mark.integration

HEADWATER = Path(sys.executable).with_name("headwater")
BROKERS = 2
INTERNAL_AT, CONTROL_AT, STATUS_AT, ZOOKEEPER_AT = 400, 100, 200, 300
"""Ports of broker 0, from the base port."""
TOPIC = "kept"


@dataclass
class Secure:
    """A cluster of `headwater up --secure`."""

    directory: Path
    base: int

    def admin(self) -> Admin:
        rows = read_properties(self.directory / "security" / "client.properties")
        return Admin(f"127.0.0.1:{self.base}", **{k.replace(".", "_"): v for k, v in rows.items()})

    def mallory(self) -> KeyPair:
        """A certificate of the cluster's own authority that is no broker's."""
        key, begin, rest = (
            (self.directory / "security" / "authority.pem")
            .read_bytes()
            .partition(b"-----BEGIN CERTIFICATE")
        )
        authority = KeyPair(begin + rest, key)
        return issue(authority, Subject("mallory", ("127.0.0.1",)), SystemClock().now_ms())

    def credentials(self, pair: KeyPair) -> Credentials:
        return credentials_of(
            {
                "security.protocol": "SSL",
                "ssl.keystore.key": pair.key.decode(),
                "ssl.keystore.certificate.chain": pair.certificate.decode(),
                "ssl.truststore.certificates": self.trusted.decode(),
            }
        )

    @property
    def trusted(self) -> bytes:
        return (self.directory / "security" / "ca.pem").read_bytes()

    def at(self, offset: int) -> str:
        return f"127.0.0.1:{self.base + offset}"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("secure")
    made = Secure(folder / "d", next_base_port(folder))
    command = [HEADWATER, "up", "--secure", "--brokers", str(BROKERS), "--port", str(made.base)]
    subprocess.run([*command, "--dir", made.directory], check=True, timeout=120)
    try:
        with made.admin() as admin:
            admin.create_topics([NewTopic(TOPIC, 1, BROKERS)])
        yield made
    finally:
        subprocess.run([HEADWATER, "down", "--dir", made.directory], check=True, timeout=120)


def forged(name: str) -> ForwardRequest:
    wanted = CreateTopicsRequest(
        topics=(CreatableTopic(name=name, num_partitions=1, replication_factor=1),),
        timeout_ms=5_000,
    )
    return ForwardRequest(
        forwarded_key=19, forwarded_version=7, principal="User:admin", body=encode(wanted, 7)
    )


@pytest.mark.parametrize("shown", ["plaintext", "no certificate", "mallory's certificate"])
def test_a_forged_forward_does_nothing(secure: Secure, shown: str) -> None:
    pair = secure.mallory()
    credentials = {
        "plaintext": None,
        "no certificate": grpc.ssl_channel_credentials(secure.trusted),
        "mallory's certificate": grpc.ssl_channel_credentials(
            secure.trusted, pair.key, pair.certificate
        ),
    }[shown]
    for broker_id in range(BROKERS):  # one of them is the controller
        with (
            ControlClient(secure.at(CONTROL_AT + broker_id), credentials) as client,
            pytest.raises(ControlUnavailableError) as caught,
        ):
            client.call(forged("planted"), ForwardReply, 3_000)
        if shown.startswith("mallory"):
            assert "PERMISSION_DENIED" in str(caught.value)
    with secure.admin() as admin:
        assert "planted" not in admin.list_topics()


def fetch(version: int, topic_id: object) -> FetchRequest:
    is_tagged = version >= 15
    return FetchRequest(
        **({"replica_state": ReplicaState(replica_id=1)} if is_tagged else {"replica_id": 1}),
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 20,
        topics=(
            FetchTopic(
                topic=TOPIC, topic_id=topic_id,
                partitions=(
                    FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20),
                ),
            ),
        ),
    )  # fmt: skip


def test_a_forged_replica_id_is_refused(secure: Secure) -> None:
    """CVE-2018-1288: who fetches as a follower could raise the high watermark."""
    with secure.admin() as admin:
        described = admin.describe_topics([TOPIC])[TOPIC]
    leader, topic_id = described.partitions[0].leader, described.topic_id
    connection = BlockingConnection(
        "127.0.0.1", secure.base + INTERNAL_AT + leader, client_id="mallory", timeout_s=10.0,
        credentials=secure.credentials(secure.mallory()),
    )  # fmt: skip
    refusals = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                ErrorCode.UNKNOWN_TOPIC_ID)  # fmt: skip
    for version in (11, 12, 13, 15, 16):
        reply = connection.call(fetch(version, topic_id), FetchResponse, cap=version)
        codes = [p.error_code for t in reply.responses for p in t.partitions]
        assert codes or reply.error_code, f"version {version}"
        assert all(code in refusals for code in codes or [reply.error_code]), (version, codes)
    asked = OffsetForLeaderEpochRequest(
        replica_id=1,
        topics=(
            OffsetForLeaderTopic(
                topic=TOPIC, partitions=(OffsetForLeaderPartition(partition=0, leader_epoch=0),)
            ),
        ),
    )
    answer = connection.call(asked, OffsetForLeaderEpochResponse)
    assert answer.topics[0].partitions[0].error_code in refusals
    connection.close()


def test_no_znode_is_open(secure: Secure) -> None:
    assert_shut(secure.at(ZOOKEEPER_AT))


def test_the_status_port_answers_to_its_own_name_only(secure: Secure) -> None:
    def head(host: str) -> bytes:
        with socket.create_connection(("127.0.0.1", secure.base + STATUS_AT), 5) as made:
            request = f"GET /cluster.json HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            made.sendall(request.encode())
            return made.recv(64)

    assert b" 421 " in head("rebound.example:80")
    assert b" 200 " in head(f"localhost:{secure.base + STATUS_AT}")
