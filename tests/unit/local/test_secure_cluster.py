"""The files of a secure cluster, what brokers and clients get, and where no secret may be."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import BadVersionError, NoNodeError

from headwater.errors import UsageError
from headwater.local import cluster_file, scram_bootstrap
from headwater.local.cluster_file import of_spec, resolve
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.data_folders import read_properties
from headwater.local.scram_bootstrap import put_config
from headwater.local.secure_cluster import (
    SecureCluster,
    Stores,
    client_properties_of,
)
from headwater.local.service_spec import REGISTRY, TIERING, ServiceSpec
from headwater.local.supervisor import broker_properties
from headwater.local.zk_client import PUBLIC_ACL, SECRET_ACL, ZooKeeperSecurity
from headwater.security.jaas import parse_jaas
from headwater.security.scram_credential import (
    ScramMechanism,
    credential_of_password,
    parse_credential,
)
from headwater.system import SystemClock, SystemEntropy
from headwater.testing.secret_search import secrets_of


class Store:
    """The calls of a kazoo client that are needed here; `race` comes between read and write."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.race: dict[str, str] | None = None

    def get(self, path: str) -> tuple[bytes, Any]:
        if path not in self.nodes:
            raise NoNodeError
        data, number = self.nodes[path]

        class Stat:
            version = number

        if self.race is not None:
            race, self.race = self.race, None
            put_config(self, path, race, replace=True)
        return data, Stat

    def create(self, path: str, value: bytes, makepath: bool) -> None:
        assert makepath
        self.nodes[path] = value, 0

    def set(self, path: str, value: bytes, version: int) -> None:
        if self.nodes[path][1] != version:
            raise BadVersionError
        self.nodes[path] = value, version + 1

    def config(self, path: str) -> dict[str, str]:
        document = json.loads(self.nodes[path][0])
        assert document["version"] == 1
        config: dict[str, str] = document["config"]
        return config


@pytest.fixture
def spec(tmp_path: Path) -> ClusterSpec:
    return ClusterSpec(tmp_path, "abc", 2, 9092, secure=True)


@pytest.fixture
def secure(spec: ClusterSpec) -> SecureCluster:
    made = SecureCluster(spec.directory, SystemClock(), SystemEntropy())
    made.prepare(spec)
    return made


def secrets(secure: SecureCluster) -> set[str]:
    """The admin's password and the brokers' shared key."""
    rows = read_properties(secure.client_properties)
    password = parse_jaas(rows["sasl.jaas.config"]).options["password"]
    shared = read_properties(secure.folder.path / "secrets.properties")
    return {password, *shared.values()}


def test_every_file_is_private(secure: SecureCluster) -> None:
    assert {stat.S_IMODE(p.stat().st_mode) for p in secure.folder.path.iterdir()} == {0o600}
    assert stat.S_IMODE(secure.folder.path.stat().st_mode) == 0o700


def test_a_second_start_keeps_all_secrets(spec: ClusterSpec, secure: SecureCluster) -> None:
    before = {path.name: path.read_bytes() for path in secure.folder.path.iterdir()}
    SecureCluster(spec.directory, SystemClock(), SystemEntropy()).prepare(spec)
    assert {path.name: path.read_bytes() for path in secure.folder.path.iterdir()} == before


def test_a_broker_has_tls_users_and_acls(spec: ClusterSpec, secure: SecureCluster) -> None:
    rows = {**broker_properties(spec, spec.slot(1)), **secure.broker_properties(spec.slot(1))}
    assert rows["listeners"] == "SECURE://127.0.0.1:9093,INTERNAL://127.0.0.1:9493"
    assert rows["listeners"] == rows["advertised.listeners"]
    assert rows["listener.security.protocol.map"] == "SECURE:SASL_SSL,INTERNAL:SSL"
    assert rows["listener.name.internal.ssl.client.auth"] == "required"
    users = ("broker", "admin", "tiering", "registry")
    assert rows["super.users"] == ";".join(f"User:{name}" for name in users)
    assert Path(rows["ssl.keystore.location"]).name == "broker-1.pem"
    assert len(rows["delegation.token.secret.key"]) == 48


def test_no_secret_is_outside_of_the_folder(spec: ClusterSpec, secure: SecureCluster) -> None:
    cluster_file.save(spec.directory, of_spec(spec))
    shown = (spec.directory / "cluster.json").read_text() + str(
        broker_properties(spec, spec.slot(0))
    )
    assert not [secret for secret in secrets(secure) if secret in shown + repr(secure) + repr(spec)]
    assert len(secrets(secure)) == 3


def test_a_cluster_stays_secure(spec: ClusterSpec) -> None:
    cluster_file.save(spec.directory, of_spec(spec))
    assert resolve(spec.directory, None, None, SystemEntropy()).secure


def test_an_open_cluster_becomes_secure_at_a_start(tmp_path: Path) -> None:
    cluster_file.save(tmp_path, of_spec(ClusterSpec(tmp_path, "abc", 2, 9092)))
    found = resolve(tmp_path, None, None, SystemEntropy(), secure=True)
    assert found.secure and found.cluster_id == "abc"
    assert 9492 in found.ports() and 9492 not in ClusterSpec(tmp_path, "abc", 2, 9092).ports()


def test_the_admin_gets_a_password_before_brokers_start(
    spec: ClusterSpec,
) -> None:
    calls: list[dict[str, Any]] = []

    def note(servers: str, user: str, password: str, *_more: object, **more: bool) -> None:
        calls.append({"servers": servers, "user": user, "password": password, **more})

    secure = SecureCluster(spec.directory, SystemClock(), SystemEntropy(), note)
    secure.prepare(spec)
    secure.ensure_admin("z:1")
    secure.ensure_admin("z:1", own_server=True)
    assert [(c["servers"], c["user"], c["replace"], c["own_server"]) for c in calls] == [
        ("z:1", "admin", True, False),
        ("z:1", "admin", False, True),
    ]
    assert calls[0]["password"] in secrets(secure)


def test_tiering_logs_in_at_the_registry_of_its_cluster(spec: ClusterSpec) -> None:
    users: list[tuple[str, str, bool]] = []

    def note(_servers: str, user: str, password: str, *_more: object, **more: bool) -> None:
        users.append((user, password, more["replace"]))

    names = (TIERING, REGISTRY)
    both = replace(spec, services=tuple(ServiceSpec(name, ()) for name in names))
    secure = SecureCluster(spec.directory, SystemClock(), SystemEntropy(), note)
    secure.prepare(both)
    secure.ensure_admin("z:1")
    files = {name: read_properties(secure.service_properties(name, both)) for name in names}
    user, _, password = files[TIERING]["schema.registry.basic.auth.user.info"].partition(":")
    assert files[TIERING]["schema.registry.basic.auth.credentials.source"] == "USER_INFO"
    assert users[1:] == [(user, password, True)] and user == "tiering" and len(password) == 48
    assert password in secrets_of(spec.directory).values(), "the search looks for it"
    assert not [key for key in files[REGISTRY] if key.startswith("schema.registry.")]
    alone = SecureCluster(spec.directory, SystemClock(), SystemEntropy(), note)
    alone.prepare(spec)
    alone.ensure_admin("z:1")
    assert users[2:] == [("admin", users[0][1], False)]
    assert password not in alone.service_properties(TIERING, spec).read_text()


def test_brokers_elsewhere_have_their_own_files(spec: ClusterSpec) -> None:
    secure = SecureCluster(spec.directory, SystemClock(), SystemEntropy())
    secure.prepare(spec, leaves=False)
    assert not list(secure.folder.path.glob("broker-*"))
    rows = secure.broker_properties(spec.slot(1), Stores(Path("/k.pem"), Path("/t.pem")))
    assert (rows["ssl.keystore.location"], rows["ssl.truststore.location"]) == ("/k.pem", "/t.pem")
    assert rows["headwater.zookeeper.digest"]


class ConnectedStore(Store):
    """A kazoo client; `acls` has the nodes whose ACLs were set, and the users known by then."""

    def __init__(self) -> None:
        super().__init__()
        self.acls: list[tuple[str, Any, list[str]]] = []

    def start(self, _timeout: float) -> None:
        pass

    stop = close = lambda _self: None

    def set_acls(self, path: str, acls: Any) -> None:
        self.acls.append((path, acls, list(self.nodes)))


@pytest.mark.parametrize("own_server", [True, False])
def test_the_root_of_an_own_zookeeper_is_shut_before_anything_is_in_it(
    own_server: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else everybody may delete `/controller` and create it. Another's root is not touched."""
    store = ConnectedStore()
    monkeypatch.setattr(scram_bootstrap, "kazoo_client", lambda *_rows, **_more: store)
    security = ZooKeeperSecurity(digest="broker:s", set_acl=True)
    mechanism, entropy = ScramMechanism.SCRAM_SHA_512, SystemEntropy()
    scram_bootstrap.ensure_scram_user(
        "z:1", "admin", "secret", mechanism, entropy, security, own_server=own_server
    )
    user = "/config/users/admin"
    of_root: list[tuple[str, Any, list[str]]] = [("/", PUBLIC_ACL, [])]
    assert store.acls == (of_root if own_server else []) + [(user, SECRET_ACL, [user])]


def test_a_spoilt_login_is_named_without_its_password(secure: SecureCluster) -> None:
    text = secure.client_properties.read_text().replace('username="admin" ', "")
    secure.client_properties.write_text(text)
    with pytest.raises(UsageError, match=r"client\.properties") as error:
        secure.ensure_admin("z:1")
    assert not [secret for secret in secrets(secure) if secret in str(error.value)]


def test_only_a_secure_folder_has_properties_for_clients(
    spec: ClusterSpec, secure: SecureCluster, tmp_path: Path
) -> None:
    assert client_properties_of(spec.directory) == secure.client_properties
    assert client_properties_of(tmp_path / "other") is None


def test_a_new_user_is_in_kafkas_form() -> None:
    store = Store()
    text = scram_bootstrap.format_credential(
        credential_of_password(ScramMechanism.SCRAM_SHA_512, "secret", b"salt", 8_192)
    )
    put_config(store, "/config/users/admin", {"SCRAM-SHA-512": text}, replace=False)
    found = parse_credential(store.config("/config/users/admin")["SCRAM-SHA-512"])
    assert (found.salt, found.iterations) == (b"salt", 8_192)


def test_a_known_password_stays_unless_it_is_replaced() -> None:
    store = Store()
    put_config(store, "/u", {"quota": "5", "SCRAM-SHA-512": "former"}, replace=False)
    put_config(store, "/u", {"SCRAM-SHA-512": "new"}, replace=False)
    assert store.config("/u") == {"quota": "5", "SCRAM-SHA-512": "former"}
    put_config(store, "/u", {"SCRAM-SHA-512": "new"}, replace=True)
    assert store.config("/u") == {"quota": "5", "SCRAM-SHA-512": "new"}


def test_another_writer_loses_nothing() -> None:
    store = Store()
    put_config(store, "/u", {"quota": "5"}, replace=False)
    store.race = {"quota": "6"}
    put_config(store, "/u", {"SCRAM-SHA-512": "new"}, replace=True)
    assert store.config("/u") == {"quota": "6", "SCRAM-SHA-512": "new"}
