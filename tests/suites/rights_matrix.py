"""Every request with every right, missing, granted, denied: Apache Kafka's replies and Headwater's.

Each user of the matrix has one set of ACLs. Users of both servers have the same ACLs and send the
same requests; replies are compared by their error codes, names and authorized operations.

    make suite-rights
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import struct
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from peers import KafkaPeer, free_port

from differential.exchange import Exchange
from docs_pages import DOCS
from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation, Requester, ResourceType
from headwater.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    PatternType,
    PermissionType,
)
from headwater.wire.apis import k08_offset_commit as k08
from headwater.wire.apis import k10_find_coordinator as k10
from headwater.wire.apis import k17_sasl_handshake as k17
from headwater.wire.apis import k19_create_topics as k19
from headwater.wire.apis import k22_init_producer_id as k22
from headwater.wire.apis import k30_create_acls as k30
from headwater.wire.apis import k36_sasl_authenticate as k36
from suites.rights_requests import GONE, HERE, PREFIX, Request, requests
from whole_cluster import ServedCluster

PAGE = DOCS / "rights.md"
ADMIN = "admin"
PASSWORD = "matrix"
ELSEWHERE = "10.9.9.9"
LOOPBACK = "127.0.0.1"
READY_S = 60.0
PROPERTIES = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
NOT_READY = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
OPERATIONS = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
        Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL,
    ),
    ResourceType.GROUP: (
        Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS, Operation.ALL,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
        Operation.ALL,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.ALL),
}  # fmt: skip
MODES = ("allow", "deny", "prefix", "host")


class User(NamedTuple):
    """A principal of the matrix, and what its ACLs are about."""

    name: str
    right: str
    acls: tuple[AclBinding, ...]


def users() -> Iterator[User]:
    """One without any right, one with all, and one per operation, resource type and mode."""
    yield User("u-none", "none", ())
    yield User("u-all", "all", tuple(_everything("u-all")))
    for kind, operations in OPERATIONS.items():
        for operation in operations:
            for mode in MODES:
                name = f"u-{kind.value}-{operation.value}-{mode}"
                right = f"{mode} {operation.name} on {kind.name}"
                yield User(name, right, tuple(_acls(name, kind, operation, mode)))


def _acl(
    user: str, kind: ResourceType, name: str, operation: Operation, **other: Any
) -> AclBinding:
    values = {
        "pattern_type": PatternType.LITERAL,
        "host": WILDCARD,
        "permission": PermissionType.ALLOW,
        **other,
    }
    return AclBinding(
        resource_type=kind, name=name, principal=f"User:{user}", operation=operation, **values
    )


def _everything(user: str) -> Iterator[AclBinding]:
    for kind in OPERATIONS:
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else WILDCARD
        yield _acl(user, kind, name, Operation.ALL)


def _acls(user: str, kind: ResourceType, operation: Operation, mode: str) -> Iterator[AclBinding]:
    names = (CLUSTER_NAME,) if kind is ResourceType.CLUSTER else (HERE, GONE)
    if mode == "prefix":
        if kind is not ResourceType.CLUSTER:
            yield _acl(user, kind, PREFIX, operation, pattern_type=PatternType.PREFIXED)
        return
    if mode == "deny":
        yield from _everything(user)
    permission = PermissionType.DENY if mode == "deny" else PermissionType.ALLOW
    hosts = (ELSEWHERE,) if mode == "host" else (WILDCARD,)
    for name in names:
        for host in hosts:
            yield _acl(user, kind, name, operation, permission=permission, host=host)


# The two servers.

Answers = dict[tuple[str, str], Any]
"""By request and user."""


def kafka_answers(folder: Path) -> Answers:
    """Apache Kafka's, with its own authorizer and PLAIN."""
    people = list(users())
    names = [ADMIN, *(user.name for user in people)]
    logins = " ".join(f'user_{name}="{PASSWORD}"' for name in names)
    sasl_port = free_port()
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    peer = KafkaPeer(
        folder,
        properties={
            **PROPERTIES,
            "authorizer.class.name": ("org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
            "early.start.listeners": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": f"{module} {logins};",
        },
    )
    peer.sasl_port = sasl_port
    try:
        peer.start()
        admin = logged_in(sasl_port, ADMIN)
        _prepare(admin)
        _create_acls(admin, [acl for user in people for acl in user.acls])
        return _ask_all(people, lambda user: logged_in(sasl_port, user.name))
    finally:
        peer.stop()


def headwater_answers(folder: Path) -> Answers:
    """Headwater's, of a broker in this process: each user has a loopback address of its own."""
    people = list(users())
    hosts = {f"127.0.7.{number}": user for number, user in enumerate(people, 1)}
    addresses = {user.name: host for host, user in hosts.items()}
    properties = {key.replace(".", "_"): value for key, value in PROPERTIES.items()}
    with ServedCluster(folder, 1, authorizer=ByAddress(hosts), **properties) as served:
        port = int(served.bootstrap.rpartition(":")[2])
        _prepare(Exchange(LOOPBACK, port))
        return _ask_all(people, lambda user: Exchange(LOOPBACK, port, addresses[user.name]))


class ByAddress:
    """Kafka's rules (StandardAuthorizer) for principals that are told by their address."""

    generation = 0
    IMPLIED = {  # noqa: RUF012
        Operation.DESCRIBE: {
            Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER,
        },
        Operation.DESCRIBE_CONFIGS: {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS},
    }  # fmt: skip

    def __init__(self, people: Mapping[str, User]) -> None:
        self._people = people

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """Deny first; then what allows the operation, or one that implies it."""
        user = self._people.get(requester.host)
        if user is None:
            return True
        acls = [
            acl
            for acl in user.acls
            if acl.resource_type is resource and acl.host == WILDCARD and _covers(acl, name)
        ]
        denied = {a.operation for a in acls if a.permission is PermissionType.DENY}
        if denied & {operation, Operation.ALL}:
            return False
        granted = {a.operation for a in acls if a.permission is PermissionType.ALLOW}
        return bool(granted & ({Operation.ALL} | self.IMPLIED.get(operation, {operation})))

    def authorize_any(
        self, requester: Requester, operation: Operation, resource: ResourceType
    ) -> bool:
        """True when a name is allowed that no ACL denies."""
        user = self._people.get(requester.host)
        if user is None:
            return True
        names = {a.name for a in user.acls if a.resource_type is resource}
        return any(
            self.authorize(requester, operation, resource, "other" if n == WILDCARD else n)
            for n in names
        )


def _covers(acl: AclBinding, name: str) -> bool:
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, WILDCARD)


def logged_in(port: int, user: str) -> Exchange:
    """A connection with PLAIN."""
    exchange = Exchange(LOOPBACK, port)
    first = k17.SaslHandshakeRequest(mechanism="PLAIN")
    exchange.ask(first, k17.SaslHandshakeResponse, 1)
    token = f"\0{user}\0{PASSWORD}".encode()
    reply = exchange.ask(
        k36.SaslAuthenticateRequest(auth_bytes=token), k36.SaslAuthenticateResponse, 2
    )
    if reply.error_code:
        raise RuntimeError(f"{user} cannot log in: {reply.error_message}")
    return exchange


def _prepare(admin: Exchange) -> None:
    """The topic, the group and the transactional id that exist."""
    topic = k19.CreatableTopic(name=HERE, num_partitions=2, replication_factor=1)
    made = admin.ask(
        k19.CreateTopicsRequest(topics=(topic,), timeout_ms=60_000), k19.CreateTopicsResponse, 7
    )
    if made.topics[0].error_code:
        raise RuntimeError(ErrorCode(made.topics[0].error_code).name)
    row = k08.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    commit = k08.OffsetCommitRequest(
        group_id=HERE, topics=(k08.OffsetCommitRequestTopic(name=HERE, partitions=(row,)),)
    )
    begin = k22.InitProducerIdRequest(transactional_id=HERE, transaction_timeout_ms=1000)
    for key_type in (0, 1):
        find = k10.FindCoordinatorRequest(key_type=key_type, coordinator_keys=(HERE,))
        _until(lambda: admin.ask(find, k10.FindCoordinatorResponse, 4).coordinators[0].error_code)  # noqa: B023
    _until(
        lambda: admin.ask(commit, k08.OffsetCommitResponse, 8).topics[0].partitions[0].error_code
    )
    _until(lambda: admin.ask(begin, k22.InitProducerIdResponse, 4).error_code)


def _until(ask: Any) -> None:
    end = time.monotonic() + READY_S
    while code := ErrorCode(ask()):
        if code is not ErrorCode.NONE and time.monotonic() > end:
            raise RuntimeError(code.name)
        time.sleep(0.05)


def _create_acls(admin: Exchange, acls: Iterable[AclBinding]) -> None:
    creations = tuple(
        k30.AclCreation(
            resource_type=a.resource_type, resource_name=a.name,
            resource_pattern_type=a.pattern_type, principal=a.principal, host=a.host,
            operation=a.operation, permission_type=a.permission,
        )
        for a in acls
    )  # fmt: skip
    request = k30.CreateAclsRequest(creations=creations)
    for row in admin.ask(request, k30.CreateAclsResponse, 3).results:
        if row.error_code:
            raise RuntimeError(f"{ErrorCode(row.error_code).name}: {row.error_message}")
    time.sleep(2.0)  # the broker replays them from the metadata log


def _ask_all(people: Iterable[User], connect: Any) -> Answers:
    found: Answers = {}
    for user in people:
        exchange = connect(user)
        for request in requests():
            found[request.name, user.name] = answer(exchange, request)
        exchange.close()
    return found


def answer(exchange: Exchange, request: Request) -> Any:
    """The reply in a form that is the same for the same behaviour."""
    try:
        while True:
            reply = exchange.ask(request.message, request.response, request.version)
            found = plain(reply)
            if not {code.name for code in NOT_READY} & set(_texts(found)):
                return found
            time.sleep(0.05)
    except (TimeoutError, ConnectionError, struct.error) as error:
        return f"closed: {type(error).__name__}"


LEFT_OUT = {"brokers", "configs", "members"}
"""Arrays that differ between two servers whatever the rights are."""
NAMES = {"name", "topic", "group_id", "transactional_id", "topic_name", "key", "resource_name"}


def plain(value: Any) -> Any:
    """Error codes, names and authorized operations of a reply."""
    rows: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if field.name.endswith("error_code"):
            rows[field.name] = ErrorCode(inner).name
        elif field.name in NAMES or field.name.endswith("authorized_operations"):
            rows[field.name] = inner
        elif field.name == "topic_id":
            rows[field.name] = "zero" if inner == UUID(int=0) else "an id"
        elif field.name not in LEFT_OUT and _is_rows(inner):
            rows[field.name] = sorted(map(plain, inner), key=repr)
    return rows


def _is_rows(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and dataclasses.is_dataclass(value[0])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def differences(kafka: Answers, ours: Answers) -> dict[str, list[tuple[str, str, str]]]:
    """By request: (user, Kafka's reply, Headwater's)."""
    found: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    rights = {user.name: user.right for user in users()}
    for (request, user), theirs in kafka.items():
        mine = ours[request, user]
        if theirs != mine:
            found[request].append((rights[user], json.dumps(theirs), json.dumps(mine)))
    return found


def main(arguments: Iterable[str]) -> int:
    """Ask both servers, print what differs; 1 when something does."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kafka-answers", type=Path, help="a file of earlier answers of Kafka")
    options = parser.parse_args(list(arguments))
    with tempfile.TemporaryDirectory(prefix="rights-") as name:
        folder = Path(name)
        saved = options.kafka_answers
        if saved is not None and saved.exists():
            kafka = {(r, u): a for r, u, a in json.loads(saved.read_text())}
        else:
            kafka = kafka_answers(folder / "kafka")
            if saved is not None:
                saved.write_text(json.dumps([[r, u, a] for (r, u), a in kafka.items()]))
        ours = headwater_answers(folder / "headwater")
    found = differences(kafka, ours)
    for request, rows in found.items():
        groups: dict[tuple[str, str], list[str]] = defaultdict(list)
        for right, theirs, mine in rows:
            groups[theirs, mine].append(right)
        for (theirs, mine), rights in groups.items():
            print(f"{request}: {len(rights)} users, as {rights[:3]}\n  K {theirs}\n  H {mine}")
    print(f"{len(kafka)} replies compared, {sum(map(len, found.values()))} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
