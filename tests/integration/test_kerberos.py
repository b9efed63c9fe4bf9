"""GSSAPI against a real Kerberos KDC of this machine: the SDK, Kafka's Java clients, a stranger.

Needs the packages krb5-kdc, krb5-admin-server and krb5-user, and Python's gssapi.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater import Admin, KafkaError, Producer
from integration.cluster import LocalCluster
from integration.jvm_tools import kafka_tool

pytest.importorskip("gssapi", reason="Python's gssapi is not installed")
KDC, ADMIN, UTIL = (
    shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    for name in ("krb5kdc", "kadmin.local", "kdb5_util")
)
pytestmark = [
    pytest.mark.integration,
    pytest.mark.integrations,
    pytest.mark.skipif(not (KDC and ADMIN and UTIL), reason="no KDC: apt install krb5-kdc"),
]

PORT = 33_300
SASL_PORT = 33_390
KDC_PORT = 33_399
REALM = "HEADWATER.TEST"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
LISTENER = "listener.name.sasl_plaintext."


@dataclass(frozen=True)
class Realm:
    """A KDC with its key tables."""

    folder: Path

    def key_table(self, principal: str) -> Path:
        return self.folder / f"{principal.replace('/', '_')}.keytab"

    def jaas(self, principal: str, *, is_java: bool = False) -> str:
        more = "useKeyTab=true storeKey=true " if is_java else ""
        table = self.key_table(principal)
        return f'{MODULE} {more}keyTab="{table}" principal="{principal}@{REALM}";'


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    folder = tmp_path_factory.mktemp("kdc")
    (folder / "krb5.conf").write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n"
        " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
        f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{KDC_PORT}\n }}\n"
    )
    (folder / "kdc.conf").write_text(
        f'[kdcdefaults]\n kdc_tcp_listen = 127.0.0.1:{KDC_PORT}\n kdc_listen = ""\n'
        f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n"
        f"  key_stash_file = {folder}/stash\n  acl_file = {folder}/acl\n }}\n"
    )
    settings = {
        "KRB5_CONFIG": str(folder / "krb5.conf"),
        "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        "KRB5RCACHENAME": f"dfl:{folder}/replays",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    made = Realm(folder)
    run(UTIL, "create", "-s", "-r", REALM, "-P", "master key of a test")
    for principal in ("kafka/localhost", "kafka/127.0.0.1", "alice", "mallory/admin"):
        run(ADMIN, "-q", f"addprinc -randkey {principal}@{REALM}")
        run(ADMIN, "-q", f"ktadd -k {made.key_table(principal)} {principal}@{REALM}")
    kdc = subprocess.Popen([str(KDC), "-n", "-r", REALM])
    time.sleep(1)
    yield made
    kdc.terminate()
    kdc.wait(10)
    for name, value in before.items():
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value


def run(*command: str | None) -> None:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def cluster(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    listeners = f"PLAINTEXT://127.0.0.1:{PORT},SASL_PLAINTEXT://localhost:{SASL_PORT}"
    properties = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        f"{LISTENER}sasl.enabled.mechanisms": "GSSAPI",
        f"{LISTENER}gssapi.sasl.jaas.config": realm.jaas("kafka/localhost"),
        "sasl.kerberos.service.name": "kafka",
    }
    folder = tmp_path_factory.mktemp("kerberos")
    with LocalCluster(folder, PORT, brokers=1, properties=properties) as running:
        running.create_topic("t", partitions=1)
        yield running


def options(realm: Realm, principal: str) -> dict[str, str]:
    return {
        "bootstrap_servers": f"localhost:{SASL_PORT}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "sasl_jaas_config": realm.jaas(principal),
    }


def test_a_ticket_logs_in_and_its_principal_gets_the_local_name(
    cluster: LocalCluster, realm: Realm
) -> None:
    with Producer(**options(realm, "alice")) as producer:
        producer.send("t", b"x").result(20)
    with Admin(**options(realm, "mallory/admin")) as admin:
        assert admin.list_topics() == ["t"]
    with pytest.raises(KafkaError, match="SASL"):
        Admin(**{**options(realm, "alice"), "sasl_mechanism": "PLAIN", "sasl_jaas_config":
                 'org.apache.kafka.common.security.plain.PlainLoginModule required '
                 'username="alice" password="x";'})  # fmt: skip


def test_javas_clients_log_in(cluster: LocalCluster, realm: Realm, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n"
        "sasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={realm.jaas('alice', is_java=True)}\n"
    )
    plaintext = ("--bootstrap-server", cluster.bootstrap)
    kafka_tool("kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics", *plaintext)
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Djava.security.krb5.conf={realm.folder}/krb5.conf"
    try:
        server = ("--bootstrap-server", f"localhost:{SASL_PORT}", "--command-config", str(config))
        listed = kafka_tool("org.apache.kafka.tools.TopicCommand", "--list", *server)
    finally:
        del os.environ["JAVA_TOOL_OPTIONS"]
    assert listed.split() == ["t"]
