"""The security of a local cluster: its secrets, the brokers' properties, the clients' properties.

Clients use the listener SECURE (TLS, SCRAM) on the usual ports; brokers reach each other by
INTERNAL, where both sides show a certificate. Secrets are in D/security alone:

    secrets.properties     keys that all brokers share: of tokens, of their ZooKeeper nodes
    client.properties      the admin's login, for Kafka's clients and tools and for `headwater`
    tiering.properties     the login of a service of this name: its key, on INTERNAL; of tiering
                           also its password at the cluster's schema registry
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import UsageError
from headwater.local.cluster_spec import ClusterSpec, Slot
from headwater.local.data_folders import read_properties
from headwater.local.private_file import write_private
from headwater.local.scram_bootstrap import ensure_scram_user
from headwater.local.security_folder import FOLDER, SECRETS, SecurityFolder
from headwater.local.service_spec import REGISTRY, TIERING
from headwater.local.zk_client import ZooKeeperSecurity
from headwater.local.zk_properties import DIGEST
from headwater.security.jaas import LoginModule, parse_jaas
from headwater.security.scram_credential import ScramMechanism

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECURE = "SECURE"
INTERNAL = "INTERNAL"
ADMIN = "admin"
BROKER_PRINCIPAL = "broker"
SERVICE_PRINCIPALS = (TIERING, REGISTRY)
"""Services that may do everything, as tiering reads every topic."""
INTERNAL_RULES = (
    f"RULE:^CN=broker-[0-9]+$/{BROKER_PRINCIPAL}/,"
    f"RULE:^CN=({'|'.join(SERVICE_PRINCIPALS)})$/$1/,DEFAULT"
)
SUPER_USERS = (BROKER_PRINCIPAL, ADMIN, *SERVICE_PRINCIPALS)
MECHANISM = ScramMechanism.SCRAM_SHA_512
CLIENT_PROPERTIES = "client.properties"
TOKEN_SECRET = "delegation.token.secret.key"
SECRET_BYTES = 24
REAUTHENTICATION_MS = 3_600_000
"""A stolen session ends after this time, unless its client still knows the password."""
JAAS_KEY = "sasl.jaas.config"
REGISTRY_SOURCE = "schema.registry.basic.auth.credentials.source"
REGISTRY_LOGIN = "schema.registry.basic.auth.user.info"
"""Confluent's keys of a client of a registry."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The files of one broker, on its host."""

    key: Path
    """Its key and certificate."""
    trust: Path
    """The trusted authorities."""


class SecureCluster:
    """The files in D/security of one cluster, and what follows from them."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        entropy: Entropy,
        ensure_user: Callable[..., None] = ensure_scram_user,
    ) -> None:
        """`ensure_user` writes the admin to ZooKeeper."""
        self._ensure_user = ensure_user
        self.folder = SecurityFolder(directory, clock)
        self._entropy = entropy
        self._is_new_admin = False
        self._registry_password = ""
        """Of User:tiering, where the cluster has a registry of its own."""

    def prepare(self, spec: ClusterSpec, *, leaves: bool = True) -> None:
        """Make the files that are absent, and renew the certificates that are due. Without `leaves`
        the brokers' keys are made elsewhere, by those who run them."""
        slots = spec.slots if leaves else ()
        self.folder.create(spec.cluster_id, {s.name: (s.host, "localhost") for s in slots})
        self.folder.renew_due()
        if not self.secrets.exists():
            rows = {
                TOKEN_SECRET: self._new_secret(),
                DIGEST: f"{BROKER_PRINCIPAL}:{self._new_secret()}",
            }
            write_private(self.secrets, "".join(f"{k}={v}\n" for k, v in rows.items()).encode())
        if not self.client_properties.exists():
            write_private(self.client_properties, self._client_rows(self._new_secret()).encode())
            self._is_new_admin = True
        if {TIERING, REGISTRY} <= {service.name for service in spec.services}:
            self._registry_password = self._registry_password or self._new_secret()

    def ensure_admin(
        self, servers: str, *, own_server: bool = False, tls: ssl.SSLContext | None = None
    ) -> None:
        """Let the user of client.properties log in, and tiering at the cluster's registry: before
        the first broker starts. An admin's password that was changed in ZooKeeper stays, while
        client.properties is the old file.

        `own_server`: ZooKeeper is this cluster's alone, so that its root belongs to the brokers.
        `tls`: of the connection to ZooKeeper.
        """
        users = [(*self._login(), self._is_new_admin)]
        if self._registry_password:
            users.append((TIERING, self._registry_password, True))  # a new one at each start
        for user, password, is_new in users:
            self._ensure_user(
                servers,
                user,
                password,
                MECHANISM,
                self._entropy,
                replace(self.zookeeper(), tls=tls),
                replace=is_new,
                own_server=own_server,
            )
        self._is_new_admin = False

    def broker_properties(self, slot: Slot, stores: Stores | None = None) -> dict[str, str]:
        """The security properties of one broker, with secrets: for a file of its own. `stores`:
        its files, where they are not in this folder."""
        own = Stores(self.folder.leaf_path(slot.name), self.folder.trusted_path)
        return {
            **listener_properties(slot),
            **_files(stores or own),
            "zookeeper.set.acl": "true",
            **read_properties(self.secrets),
        }

    def service_properties(self, name: str, spec: ClusterSpec) -> Path:
        """The file by which a service logs in on INTERNAL: a key of its own, for `User:NAME`."""
        self.folder.create(spec.cluster_id, {name: (spec.host, "localhost")})
        files = _files(Stores(self.folder.leaf_path(name), self.folder.trusted_path))
        path = self.folder.path / f"{name}.properties"
        rows = {"security.protocol": "SSL", **files}
        if name == TIERING and self._registry_password:
            rows[REGISTRY_SOURCE] = "USER_INFO"
            rows[REGISTRY_LOGIN] = f"{TIERING}:{self._registry_password}"
        write_private(path, "".join(f"{k}={v}\n" for k, v in rows.items()).encode())
        return path

    def zookeeper(self) -> ZooKeeperSecurity:
        """How the brokers, and the manager, show themselves to ZooKeeper."""
        digest = read_properties(self.secrets).get(DIGEST, "")
        return ZooKeeperSecurity(digest=digest, set_acl=bool(digest))

    @property
    def client_properties(self) -> Path:
        """The file for clients: the value of `--command-config`."""
        return self.folder.path / CLIENT_PROPERTIES

    @property
    def secrets(self) -> Path:
        """The file of the keys that all brokers share."""
        return self.folder.path / SECRETS

    def _client_rows(self, password: str) -> str:
        login = f'{LoginModule.SCRAM.value} required username="{ADMIN}" password="{password}";'
        return (
            "security.protocol=SASL_SSL\n"
            f"sasl.mechanism={MECHANISM.value}\n"
            f"{JAAS_KEY}={login}\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.folder.trusted_path}\n"
        )

    def _login(self) -> tuple[str, str]:
        rows = read_properties(self.client_properties)
        options = parse_jaas(
            rows.get(JAAS_KEY, ""), f"{self.client_properties}: {JAAS_KEY}"
        ).options
        if "username" not in options or "password" not in options:
            raise UsageError(
                f"{self.client_properties}: {JAAS_KEY} has no username or no password: remove the"
                " file, and the next start makes it again with a new password"
            )
        return options["username"], options["password"]

    def _new_secret(self) -> str:
        return self._entropy.randbytes(SECRET_BYTES).hex()


def listener_properties(slot: Slot, *, listen: str = "", advertised: str = "") -> dict[str, str]:
    """The properties of a secure broker's listeners and rights. There is no secret among them.
    `listen` and `advertised` are hosts that differ from the slot's."""
    internal = f"listener.name.{INTERNAL.lower()}."
    return {
        "listeners": _listeners(slot, listen or slot.host),
        "advertised.listeners": _listeners(slot, advertised or slot.host),
        "listener.security.protocol.map": f"{SECURE}:SASL_SSL,{INTERNAL}:SSL",
        "inter.broker.listener.name": INTERNAL,
        f"{internal}ssl.client.auth": "required",
        f"{internal}ssl.principal.mapping.rules": INTERNAL_RULES,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.protocol": "TLSv1.3",
        "connections.max.reauth.ms": str(REAUTHENTICATION_MS),
        "authorizer.class.name": AUTHORIZER,
        "super.users": ";".join(f"User:{name}" for name in SUPER_USERS),
    }


def _listeners(slot: Slot, host: str) -> str:
    return f"{SECURE}://{host}:{slot.port},{INTERNAL}://{host}:{slot.internal_port}"


def _files(stores: Stores) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(stores.key),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores.trust),
    }


def client_properties_of(directory: Path) -> Path | None:
    """The clients' file of a secure cluster's folder; None if there is none."""
    path = directory / FOLDER / CLIENT_PROPERTIES
    return path if path.exists() else None
