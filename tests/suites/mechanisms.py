"""Every stock client with every mechanism it has, and the table in docs/clients.md.

    make suite-mechanisms                 # all clients; writes the table
    make suite-mechanisms ARGS="franz-go"

One broker has a SASL_SSL listener with five mechanisms and an SSL listener that asks for a
certificate; the only ACLs are alice's. A cell says "yes" when the client logged in as alice, wrote
and read its record with her rights, and was not let in with a wrong password, a token or
a certificate of another signer, or another principal's ticket.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from joserfc import jwk, jwt

import kerberos_realm
from docs_pages import DOCS, table, with_block
from headwater.client.admin.scram import ScramUpsertion
from headwater.config.rows_security import STANDARD_AUTHORIZER
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, PatternType, PermissionType
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from kerberos_realm import REALM, Realm
from suites import judge, parts
from suites.mechanism_clients import CLIENTS, GSSAPI, LACKING, MECHANISMS, MODULES, MTLS, Login
from suites.outcomes import WORKS, outcome
from tls_authority import Authority

PAGE = DOCS / "clients.md"
BLOCK = "client-mechanisms"
LACKS = "the client has it not"
ALICE = "alice"
STRANGER = "mallory"
PASSWORD = "s3cret=3D"
TOPIC = "mechanisms"
GROUPS = "readers-"
ISSUER = "https://idp"
AUDIENCE = "kafka"
TOKEN_S = 600
SASL_PORT, MTLS_PORT, KDC_PORT = 90, 91, 92
LISTENER = "listener.name.clients."
KEY_ID = "one"


class SecuredBroker:
    """A broker with every mechanism, and what its clients need."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.port = next_base_port(folder)
        self._keys = {is_ours: _signing_key() for is_ours in (True, False)}
        self._authorities = {True: Authority(), False: Authority("Another root")}
        self.realm = self._kdc(stack)
        self._write_files()
        self.cluster = stack.enter_context(
            LocalCluster(folder / "cluster", self.port, brokers=1, properties=self._properties())
        )
        self._prepare()

    def login(self, mechanism: str, *, is_welcome: bool = True) -> Login:
        """alice's, or one that must be refused."""
        who = ALICE if is_welcome else STRANGER
        at = MTLS_PORT if mechanism == MTLS else SASL_PORT
        value = f"{mechanism}-{uuid.uuid4().hex[:10]}"
        user = who if mechanism == GSSAPI else ALICE
        folder = self.folder
        return Login(
            bootstrap=f"localhost:{self.port + at}",
            mechanism=mechanism,
            topic=TOPIC,
            value=value,
            group=f"{GROUPS}{value}",
            username=user,
            password=PASSWORD if is_welcome else "wrong",
            token=self._token(is_welcome),
            authority=folder / "ca.pem",
            certificate=folder / f"{who}.crt",
            key=folder / f"{who}.key",
            keytab=folder / "kdc" / f"{user}.keytab",
            ticket=folder / "kdc" / f"{user}.ticket",
            krb5=folder / "kdc" / "krb5.conf",
            realm=REALM,
            is_welcome=is_welcome,
        )

    def _kdc(self, stack: ExitStack) -> Realm | None:
        if not kerberos_realm.IS_THERE:
            return None
        folder = self.folder / "kdc"
        folder.mkdir()
        principals = ("kafka/localhost", ALICE, STRANGER)
        port = self.port + KDC_PORT
        realm = stack.enter_context(kerberos_realm.started(folder, port, principals))
        for user in (ALICE, STRANGER):
            realm.ticket(user)
        return realm

    def _write_files(self) -> None:
        ours = self._authorities[True]
        (self.folder / "ca.pem").write_text(ours.pem)
        (self.folder / "broker.pem").write_text(ours.leaf().pem)
        for user, authority in ((ALICE, ours), (STRANGER, self._authorities[False])):
            leaf = authority.leaf(ALICE, hosts=())
            (self.folder / f"{user}.crt").write_text(leaf.certificate_pem)
            (self.folder / f"{user}.key").write_text(leaf.key_pem)
        public = self._keys[True].as_dict(private=False)
        (self.folder / "keys.json").write_text(json.dumps({"keys": [public]}))

    def _properties(self) -> dict[str, str]:
        listeners = ",".join(
            (
                f"PLAINTEXT://127.0.0.1:{self.port}",
                f"CLIENTS://localhost:{self.port + SASL_PORT}",
                f"CERTIFIED://localhost:{self.port + MTLS_PORT}",
            )
        )
        oauth = f"{LISTENER}oauthbearer.sasl.oauthbearer."
        made = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,CERTIFIED:SSL"
            ),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS",
            "ssl.keystore.location": str(self.folder / "broker.pem"),
            "ssl.truststore.location": str(self.folder / "ca.pem"),
            "listener.name.certified.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
            f"{LISTENER}sasl.enabled.mechanisms": ",".join(self._served()),
            f"{LISTENER}plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_{ALICE}="{PASSWORD}";'
            ),
            f"{oauth}jwks.endpoint.url": (self.folder / "keys.json").as_uri(),
            f"{oauth}expected.issuer": ISSUER,
            f"{oauth}expected.audience": AUDIENCE,
        }
        if self.realm is not None:
            made[f"{LISTENER}gssapi.sasl.jaas.config"] = self.realm.jaas("kafka/localhost")
            made["sasl.kerberos.service.name"] = "kafka"
        return made

    def _served(self) -> list[str]:
        left_out = {MTLS} if self.realm is not None else {MTLS, GSSAPI}
        return [mechanism for mechanism in MECHANISMS if mechanism not in left_out]

    def _prepare(self) -> None:
        self.cluster.create_topic(TOPIC, partitions=1)
        with self.cluster.admin() as admin:
            admin.create_acls(list(_acls()))
            scram = [mechanism for mechanism in MECHANISMS if mechanism.startswith("SCRAM")]
            admin.alter_user_scram_credentials(
                [ScramUpsertion(ALICE, PASSWORD, mechanism) for mechanism in scram]
            )

    def _token(self, is_welcome: bool) -> str:
        now = int(time.time())
        claims = {
            "iss": ISSUER, "aud": AUDIENCE, "sub": ALICE, "scope": "kafka",
            "iat": now, "exp": now + TOKEN_S,
        }  # fmt: skip
        header = {"alg": "RS256", "kid": KEY_ID}
        return jwt.encode(header, claims, self._keys[is_welcome], algorithms=["RS256"])


def _signing_key() -> jwk.RSAKey:
    return jwk.RSAKey.generate_key(2048, {"kid": KEY_ID})


def _acls() -> Iterator[AclBinding]:
    topic = (ResourceType.TOPIC, TOPIC, PatternType.LITERAL)
    groups = (ResourceType.GROUP, GROUPS, PatternType.PREFIXED)
    reads = (*topic, Operation.READ), (*topic, Operation.WRITE), (*groups, Operation.READ)
    for kind, name, pattern, operation in reads:
        allow = PermissionType.ALLOW
        yield AclBinding(kind, name, pattern, f"User:{ALICE}", "*", operation, allow)


@contextmanager
def started(folder: Path) -> Iterator[SecuredBroker]:
    """The broker, until the end."""
    with ExitStack() as stack:
        yield SecuredBroker(folder, stack)


def run(broker: SecuredBroker, client: str, mechanism: str) -> None:
    """Try one mechanism with one client; raises when it does not work as it should."""
    if mechanism == GSSAPI and broker.realm is None:
        raise parts.MissingPartError("no KDC (apt install krb5-kdc krb5-admin-server krb5-user)")
    welcome = broker.login(mechanism)
    CLIENTS[client](welcome)
    refused = broker.login(mechanism, is_welcome=False)
    try:
        CLIENTS[client](refused)
    except Exception as error:  # noqa: BLE001 - whatever the client throws is its refusal
        print(f"  refused as it should: {type(error).__name__}", flush=True)
    else:
        raise AssertionError("a stranger was let in")
    written = judge.values(broker.cluster.bootstrap, TOPIC, judge.COMMITTED)
    assert welcome.value in written
    assert refused.value not in written


def page_block(results: dict[tuple[str, str], str]) -> str:
    """The table; `results` by client and mechanism."""
    rows = (
        (client, *(results.get((client, mechanism), "not run") for mechanism in MECHANISMS))
        for client in CLIENTS
    )
    return table(("client", *MECHANISMS), iter(rows))


def _outcome(broker: SecuredBroker, client: str, mechanism: str) -> str:
    if (client, mechanism) in LACKING:
        return LACKS
    return outcome(lambda: run(broker, client, mechanism))


def main(arguments: Iterable[str]) -> int:
    """Run all clients, or those named; write the table after a whole run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("clients", nargs="*", choices=[*CLIENTS, []], help="all without a name")
    options = parser.parse_args(list(arguments))
    results: dict[tuple[str, str], str] = {}
    with (
        tempfile.TemporaryDirectory(prefix="mechanisms-") as folder,
        started(Path(folder)) as broker,
    ):
        for client in options.clients or CLIENTS:
            for mechanism in MECHANISMS:
                found = results[client, mechanism] = _outcome(broker, client, mechanism)
                print(f"{client}: {mechanism}: {found}", flush=True)
    if not options.clients:
        PAGE.write_text(with_block(PAGE.read_text(), BLOCK, page_block(results)))
    return 0 if set(results.values()) <= {WORKS, LACKS} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
