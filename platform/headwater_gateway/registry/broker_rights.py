"""Rights by the brokers: each user's own connection asks what the user may do.

The password or token of an Authorization header is that of a SASL login at the brokers, which check
it; the registry keeps a digest to know it again, for some minutes. What the user may do is what the
brokers tell that connection (KIP-430).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol, TypeVar

from headwater.client.admin.acls import TopicRights
from headwater.client.admin.client import Admin
from headwater.client.errors import AuthorizationError
from headwater.client.security_options import security_keywords
from headwater.client.values import NewTopic
from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import ErrorCode, HeadwaterError, KafkaError, UsageError
from headwater.ports.authorizer import Operation
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.app.login import Login, login_of, password_mechanism
from headwater_gateway.registry.errors import STORE_ERROR, RegistryError
from headwater_gateway.registry.rights import Right
from headwater_gateway.registry.subjects import parse_subject, topic_of

T = TypeVar("T")
LOGINS_MAX = 200
LOGIN_S = 300.0
"""After this time the brokers check the password or token again."""
ANSWER_S = 5.0
"""A change of ACLs is in force after this time."""
LOGIN_TIMEOUT_MS = 10_000
_NEEDED = {
    Right.READ: {Operation.READ, Operation.DESCRIBE},
    Right.WRITE: {Operation.WRITE, Operation.ALTER},
    Right.CONFIGURE: {Operation.ALTER, Operation.ALTER_CONFIGS},
}
"""One of these is enough."""


class BrokerConnection(Protocol):
    """What a user's connection answers (`Admin`)."""

    def topic_operations(self, topics: Iterable[str]) -> dict[str, TopicRights]:
        """What the user may do with topics."""
        ...

    def cluster_operations(self) -> frozenset[Operation]:
        """What the user may do with the cluster."""
        ...

    def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool) -> None:
        """With `validate_only` it asks whether the user may create them."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


Connect = Callable[[Login], BrokerConnection]
"""A connection that has logged in. Raises KafkaError, UsageError."""
_REFUSED = (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_SASL_MECHANISM)


def without_identity(properties: Mapping[str, str]) -> dict[str, str]:
    """Security properties without what proves who a client is, for connections where users log
    in by SASL."""
    shared = {
        name: text
        for name, text in properties.items()
        if not name.startswith(("sasl.", "ssl.keystore.", "ssl.key."))
    }
    is_encrypted = properties.get("security.protocol", "").upper() in ("SSL", "SASL_SSL")
    shared["security.protocol"] = "SASL_SSL" if is_encrypted else "SASL_PLAINTEXT"
    return shared


def connector(servers: str, properties: Mapping[str, str]) -> Connect:
    """Connections with the registry's own security properties, but the user's login."""
    mechanism = password_mechanism(properties)
    shared = without_identity(properties)

    def connect(login: Login) -> BrokerConnection:
        return Admin(
            servers,
            client_id="headwater-registry-user",
            bootstrap_timeout_ms=LOGIN_TIMEOUT_MS,
            default_api_timeout_ms=LOGIN_TIMEOUT_MS,
            **security_keywords({**shared, **login.properties(mechanism)}),
        )

    return connect


@dataclass(slots=True)
class LoggedIn:
    """A user with a connection, and the rights that it asked for lately."""

    name: str
    connection: BrokerConnection
    since_s: float
    topics: dict[str, tuple[TopicRights, float]] = field(default_factory=dict)


class BrokerRights:
    """`Rights` of a cluster with logins. Any thread may call it."""

    def __init__(self, connect: Connect, clock: Clock, entropy: Entropy) -> None:
        self._connect = connect
        self._clock = clock
        self._salt = entropy.randbytes(32)
        self._logins: OrderedDict[bytes, LoggedIn] = OrderedDict()
        self._lock = Lock()

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            logins, self._logins = list(self._logins.values()), OrderedDict()
        for login in logins:
            login.connection.close()

    def log_in(self, authorization: str) -> LoggedIn:
        """The user of a Basic or Bearer header. Raises RegistryError (401)."""
        given = _given(authorization)
        digest = given.digest(self._salt)
        found = self._fresh(digest)
        if found is not None:
            return found
        login = LoggedIn(given.name, self._connected(given), self._clock.monotonic())
        self._keep(digest, login)
        return login

    def to_ask(self, authorization: str) -> bytes | None:
        """See the port."""
        digest = _given(authorization).digest(self._salt)
        return digest if self._fresh(digest) is None else None

    def _fresh(self, digest: bytes) -> LoggedIn | None:
        now = self._clock.monotonic()
        with self._lock:
            found = self._logins.get(digest)
            if found is None or now - found.since_s >= LOGIN_S:
                return None
            self._logins.move_to_end(digest)
            return found

    def _connected(self, login: Login) -> BrokerConnection:
        try:
            return self._connect(login)
        except UsageError as error:
            raise unauthorized() from error
        except KafkaError as error:
            raise _failed(error) from error

    def _keep(self, digest: bytes, login: LoggedIn) -> None:
        with self._lock:
            gone = [self._logins.pop(digest, None)]
            self._logins[digest] = login
            if len(self._logins) > LOGINS_MAX:
                gone.append(self._logins.popitem(last=False)[1])
        for old in gone:
            if old is not None:
                old.connection.close()

    def check(self, user: LoggedIn, right: Right, subject: str) -> None:
        """Raises RegistryError (403) without the right."""
        name = parse_subject(subject).subject
        if not name:  # of all, or of a context
            if right is not Right.READ and not self._cluster(user) & _NEEDED[right]:
                raise denied(user, right, "the cluster")
            return
        topic = topic_of(subject)
        rights = self._topics(user, {topic})[topic]
        if not self._has(user, right, topic, rights):
            raise denied(user, right, f"topic {topic}")

    def readable(self, user: LoggedIn, subjects: Iterable[str]) -> set[str]:
        """Those whose topics the user may describe."""
        topics = {subject: topic_of(subject) for subject in subjects}
        rights = self._topics(user, set(topics.values()))
        return {s for s, t in topics.items() if self._has(user, Right.READ, t, rights[t])}

    def _has(self, user: LoggedIn, right: Right, topic: str, rights: TopicRights) -> bool:
        if right is Right.READ:
            return rights.exists is False or bool(rights.operations & _NEEDED[right])
        return (
            self._may_create(user, topic)
            if rights.exists is False
            else bool(rights.operations & _NEEDED[right])
        )

    def _topics(self, user: LoggedIn, topics: set[str]) -> dict[str, TopicRights]:
        now = self._clock.monotonic()
        fresh = {t: row[0] for t, row in list(user.topics.items()) if now - row[1] < ANSWER_S}
        missing = sorted(t for t in topics if t not in fresh)
        if missing:
            answered = self._asked(lambda: user.connection.topic_operations(missing))
            answers = {t: answered.get(t, NOTHING) for t in missing}
            user.topics = {t: row for t, row in user.topics.items() if t in fresh} | {
                t: (row, now) for t, row in answers.items()
            }
            fresh |= answers
        return fresh

    def _cluster(self, user: LoggedIn) -> frozenset[Operation]:
        return self._asked(user.connection.cluster_operations)

    def _may_create(self, user: LoggedIn, topic: str) -> bool:
        def ask() -> bool:
            try:
                user.connection.create_topics([NewTopic(topic)], validate_only=True)
            except AuthorizationError:
                return False
            except KafkaError as error:
                if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                    return False
                raise
            return True

        return bool(self._asked(ask))

    def _asked(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except HeadwaterError as error:
            raise _failed(error) from error


NOTHING = TopicRights(frozenset(), exists=None)


def _given(authorization: str) -> Login:
    try:
        return login_of(authorization)
    except GatewayError as error:
        raise RegistryError(error.status, error.code, str(error)) from error


def _failed(error: HeadwaterError) -> RegistryError:
    """Brokers that refuse the login, also later: a token has an end. Or that do not answer."""
    if isinstance(error, KafkaError) and error.code in _REFUSED:
        return unauthorized()
    return RegistryError(500, STORE_ERROR, f"the brokers do not answer: {error}")


def unauthorized() -> RegistryError:
    """Nobody has logged in."""
    problem = "Unauthorized: give user and password of the brokers (Basic), or a token (Bearer)"
    return RegistryError(401, 40101, problem)


def denied(user: LoggedIn, right: Right, what: str) -> RegistryError:
    """The brokers' ACLs do not allow it."""
    needed = " or ".join(sorted(o.name.title().replace("_", "") for o in _NEEDED[right]))
    return RegistryError(403, 40301, f"User Denied Operation: {user.name} needs {needed} on {what}")
