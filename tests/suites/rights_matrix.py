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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from peers import KAFKA_VERSION, KafkaPeer, free_port

from differential.exchange import Exchange
from docs_pages import DOCS, table
from headwater.config.rows_security import STANDARD_AUTHORIZER
from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation, ResourceType
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
from headwater.wire.apis import k38_create_delegation_token as k38
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from suites.rights_by_id import GONE_ID, requests_by_id
from suites.rights_meant import reason
from suites.rights_own_keys import SINK_ID, is_refused, own_requests
from suites.rights_requests import ADMIN, GONE, HERE, PREFIX, Request, requests
from suites.rights_share import SHARE_PARTITION, share_requests

PAGE = DOCS / "rights.md"
PASSWORD = "matrix"
ELSEWHERE = "10.9.9.9"
LOOPBACK = "127.0.0.1"
READY_S = 60.0
SASL_PORT = 9
SECURITY = {
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
    "inter.broker.listener.name": "PLAINTEXT",
    "delegation.token.secret.key": "of the matrix",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
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
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE, Operation.ALL),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS, Operation.ALL),
}  # fmt: skip
NAMES_OF = {
    ResourceType.CLUSTER: (CLUSTER_NAME,),
    ResourceType.DELEGATION_TOKEN: (WILDCARD,),
    ResourceType.USER: (f"User:{ADMIN}", f"User:{GONE}"),
    ResourceType.TRANSACTIONAL_ID: (HERE, GONE, SINK_ID),
}
"""The names of the literal ACLs; HERE and GONE for the others."""
PREFIX_OF = {
    ResourceType.CLUSTER: "",
    ResourceType.DELEGATION_TOKEN: "",
    ResourceType.USER: "User:",
}
"""The name of the prefixed ACL; empty: none. PREFIX for the others."""
MODES = ("allow", "deny", "prefix", "host", "this host")


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
                name = f"u-{kind.value}-{operation.value}-{mode.replace(' ', '-')}"
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
    if mode == "prefix":
        if prefix := PREFIX_OF.get(kind, PREFIX):
            yield _acl(user, kind, prefix, operation, pattern_type=PatternType.PREFIXED)
        return
    if mode == "deny":
        yield from _everything(user)
    permission = PermissionType.DENY if mode == "deny" else PermissionType.ALLOW
    hosts = {"host": (ELSEWHERE,), "this host": (LOOPBACK,)}.get(mode, (WILDCARD,))
    for name in NAMES_OF.get(kind, (HERE, GONE)):
        for host in hosts:
            yield _acl(user, kind, name, operation, permission=permission, host=host)


# The two servers.

Answers = dict[tuple[str, str], Any]
"""By request and user."""


def kafka_answers(folder: Path) -> Answers:
    """Apache Kafka's, with its own authorizer and PLAIN."""
    people = list(users())
    peer = KafkaPeer(
        folder,
        properties={
            **SECURITY,
            **logins(people),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "early.start.listeners": "CONTROLLER",
        },
        sasl_port=free_port(),
    )
    assert peer.sasl_port is not None
    try:
        peer.start()
        return _answers_at(peer.sasl_port, people, _prepared(peer.sasl_port, people))
    finally:
        peer.stop()


def headwater_answers(folder: Path) -> tuple[Answers, OwnKeys]:
    """Headwater's, of one broker as `headwater up` starts it; and of its own API keys."""
    people = list(users())
    base = next_base_port(folder)
    sasl_port = base + SASL_PORT
    properties = {
        **SECURITY,
        **logins(people),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "listeners": f"PLAINTEXT://{LOOPBACK}:{base},SASL://{LOOPBACK}:{sasl_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{base},SASL://{LOOPBACK}:{sasl_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    }
    with LocalCluster(folder, base, 1, properties):
        topic_id = _prepared(sasl_port, people)
        answers = _answers_at(sasl_port, people, topic_id)
        return answers, _own_keys(sasl_port, people, topic_id)


def _prepared(port: int, people: list[User]) -> UUID:
    """The id of the topic that exists."""
    admin = logged_in(port, ADMIN)
    topic_id = _prepare(admin)
    _create_acls(admin, [acl for user in people for acl in user.acls])
    return topic_id


def _answers_at(port: int, people: list[User], topic_id: UUID) -> Answers:
    return _ask_all(people, topic_id, lambda user: logged_in(port, user.name))


class OwnKeys(NamedTuple):
    """What was asked with Headwater's own keys, and which replies are not as the rule says."""

    requests: int
    replies: int
    wrong: list[str]


def _own_keys(port: int, people: list[User], topic_id: UUID) -> OwnKeys:
    asked, replies, wrong = list(own_requests(topic_id)), 0, []
    for user in people:
        exchange = logged_in(port, user.name)
        for own in asked:
            is_allowed = own.rule(user.acls)
            if is_allowed and own.is_for_refused_only:
                continue
            found, replies = answer(exchange, own.request), replies + 1
            if is_refused(own, _texts(found)) is is_allowed:
                wrong.append(f"{own.request.name}, {user.right}: {found}")
        exchange.close()
    return OwnKeys(len(asked), replies, wrong)


def logins(people: Iterable[User]) -> dict[str, str]:
    """The listener SASL, with PLAIN and all users."""
    names = [ADMIN, *(user.name for user in people)]
    users_ = " ".join(f'user_{name}="{PASSWORD}"' for name in names)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return {
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f"{module} {users_};",
    }


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


def _prepare(admin: Exchange) -> UUID:
    """The topic, the group and the transactional id that exist; the topic's id."""
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
    for key_type, key in ((0, HERE), (1, HERE), (2, SHARE_PARTITION)):
        find = k10.FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,))
        _until(lambda: admin.ask(find, k10.FindCoordinatorResponse, 6).coordinators[0].error_code)  # noqa: B023
    _until(
        lambda: admin.ask(commit, k08.OffsetCommitResponse, 8).topics[0].partitions[0].error_code
    )
    _until(lambda: admin.ask(begin, k22.InitProducerIdResponse, 4).error_code)
    token = k38.CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=(), max_lifetime_ms=-1
    )
    _until(lambda: admin.ask(token, k38.CreateDelegationTokenResponse, 3).error_code)
    return made.topics[0].topic_id


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


def all_requests(topic_id: UUID = GONE_ID) -> Iterator[Request]:
    """Those that both servers are sent; `topic_id` of the topic that exists."""
    yield from requests()
    yield from requests_by_id(topic_id)
    yield from (Request(*row) for row in share_requests(HERE, GONE))


def _ask_all(people: Iterable[User], topic_id: UUID, connect: Any) -> Answers:
    found: Answers = {}
    asked = list(all_requests(topic_id))
    if len({request.name for request in asked}) < len(asked):
        raise RuntimeError("two requests of the matrix have the same name")
    for user in people:
        exchange = connect(user)
        for request in asked:
            found[request.name, user.name] = answer(exchange, request)
        exchange.close()
    return found


def answer(exchange: Exchange, request: Request) -> Any:
    """The reply in a form that is the same for the same behaviour."""
    end = time.monotonic() + READY_S
    try:
        while time.monotonic() < end:
            reply = exchange.ask(request.message, request.response, request.version)
            found = plain(reply)
            if not {code.name for code in NOT_READY} & set(_texts(found)):
                return found
            time.sleep(0.05)
    except (TimeoutError, ConnectionError, struct.error) as error:
        return f"closed: {type(error).__name__}"
    raise RuntimeError(f"{request.name} is told {found} for {READY_S:.0f} s")


LEFT_OUT = {"brokers", "configs", "members"}
"""Arrays that differ between two servers whatever the rights are."""
NAMES = {
    "name",
    "topic",
    "group_id",
    "transactional_id",
    "topic_name",
    "key",
    "resource_name",
    "user",
}
NAMES |= {"principal_name"}


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


class Difference(NamedTuple):
    """A request whose replies differ for some users."""

    request: str
    kafka: str
    headwater: str
    rights: list[str]

    @property
    def reason(self) -> str:
        """Why; empty when nobody knows."""
        return reason(self.request)


def differences(kafka: Answers, ours: Answers) -> list[Difference]:
    """By request and replies."""
    found: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for user in users():
        for request in all_requests():
            theirs, mine = kafka[request.name, user.name], ours[request.name, user.name]
            if theirs != mine:
                key = request.name, json.dumps(theirs), json.dumps(mine)
                found[key].append(user.right)
    return [Difference(*key, rights) for key, rights in found.items()]


def page(replies: int, found: Iterable[Difference], own: OwnKeys) -> str:
    """docs/rights.md."""
    people, asked = list(users()), list(all_requests())
    keys = {request.message.api_key for request in asked}
    by_request: dict[str, list[Difference]] = defaultdict(list)
    for row in found:
        by_request[row.request].append(row)
    rows = (
        (name, str(sum(len(d.rights) for d in each)), each[0].reason or "not known")
        for name, each in by_request.items()
    )
    own_keys = sorted({own_.request.message.api_key for own_ in own_requests(GONE_ID)})
    differ = table(("request", "users", "why"), rows) if by_request else "None."
    return f"""# Rights, compared with Apache Kafka {KAFKA_VERSION}

`make suite-rights` starts Apache Kafka with its StandardAuthorizer and one broker of Headwater,
gives {len(people)} users of each the same ACLs, and has each of them send the same {len(asked)} raw
requests ({len(keys)} API keys), about resources that exist and resources that do not, topics by
name and by id. A user has no right, all rights, or one operation on one resource type: allowed,
denied beside all others, by a prefix, from another host, or from the host it comes from. Replies
are compared by their error codes, the rows they have, the names in them and their authorized
operations.

{replies:,} replies were compared. These differ, and why:

{differ}

Headwater's own API keys ({own_keys[0]} to {own_keys[-1]}), which Kafka has not, are held to
a rule (the rights are in [inside.md](inside.md); those on a sink are those on the transactional
id `__hw.SINK`):
{own.requests} requests, {own.replies:,} replies, {len(own.wrong)} of them against the rule.
DrainBroker, which ends the broker, is sent only by those who may not.
"""


def main(arguments: Iterable[str]) -> int:
    """Ask both servers, write the page; 1 when replies differ and no reason is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kafka-answers", type=Path, help="a file for the answers of Kafka")
    options = parser.parse_args(list(arguments))
    saved: Path | None = options.kafka_answers
    with tempfile.TemporaryDirectory(prefix="rights-") as name:
        folder = Path(name)
        if saved is not None and saved.exists():
            kafka = {(r, u): a for r, u, a in json.loads(saved.read_text())}
        else:
            kafka = kafka_answers(folder / "kafka")
            if saved is not None:
                saved.write_text(json.dumps([[r, u, a] for (r, u), a in kafka.items()]))
        ours, own = headwater_answers(folder / "headwater")
    found = differences(kafka, ours)
    for row in found:
        print(f"{row.request}: {len(row.rights)} users, as {row.rights[:3]}")
        print(f"  Kafka     {row.kafka}\n  Headwater {row.headwater}\n  {row.reason}")
    print(f"{len(kafka)} replies, {sum(len(row.rights) for row in found)} differ")
    print(f"own keys: {own.replies} replies, {len(own.wrong)} wrong", *own.wrong[:20], sep="\n  ")
    PAGE.write_text(page(len(kafka), found, own))
    return 1 if own.wrong or any(not row.reason for row in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
