"""Rights on subjects are rights on topics, by what the brokers tell the user's own connection."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Iterable
from typing import Any

import httpx
import pytest

from headwater.client.admin.acls import TopicRights
from headwater.client.errors import AuthorizationError
from headwater.client.values import NewTopic
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_gateway.app.login import Login
from headwater_gateway.registry.broker_rights import BrokerRights
from headwater_gateway.registry.errors import RegistryError
from unit.registry.registries import Registry

READER, WRITER, OWNER = {"Read"}, {"Write", "Describe"}, {"Alter", "Describe"}


def basic(user: str, password: str) -> str:
    """An Authorization header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Brokers:
    """Users by name: their password is their name; topic -> names of operations."""

    def __init__(self, **rights: dict[str, set[str]]) -> None:
        self.rights = rights
        self.existing = {"t", "u"}
        self.logins: list[str] = []
        self.closed: list[str] = []
        self.token = ""
        """One that they take."""
        self.expired = False

    def connect(self, login: Login) -> Connection:
        self.logins.append(login.name)
        if login.secret not in (login.name, self.token):
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no")
        return Connection(self, login.name)

    def operations(self, user: str, what: str) -> frozenset[Operation]:
        names = self.rights.get(user, {}).get(what, set())
        return frozenset(Operation[name.upper()] for name in names)


class Connection:
    """One user's."""

    def __init__(self, brokers: Brokers, user: str) -> None:
        self.brokers, self.user = brokers, user

    def topic_operations(self, topics: Iterable[str]) -> dict[str, TopicRights]:
        told = {}
        for topic in topics:
            found = self.brokers.operations(self.user, topic)
            if not found:
                told[topic] = TopicRights(found, exists=None)
            elif topic not in self.brokers.existing:
                told[topic] = TopicRights(frozenset(), exists=False)
            else:
                told[topic] = TopicRights(found, exists=True)
        return told

    def cluster_operations(self) -> frozenset[Operation]:
        if self.brokers.expired:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the token has expired")
        return self.brokers.operations(self.user, "cluster")

    def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool) -> None:
        assert validate_only
        for topic in topics:
            if Operation.CREATE not in self.brokers.operations(self.user, topic.name):
                raise AuthorizationError(topic.name)

    def close(self) -> None:
        self.brokers.closed.append(self.user)


class Guarded:
    """A registry whose users are those of the brokers."""

    def __init__(self, brokers: Brokers) -> None:
        self.clock = ManualClock()
        self.rights = BrokerRights(brokers.connect, self.clock, SeededEntropy())
        self.registry = Registry(rights=self.rights)

    def ask(self, user: str, method: str, path: str, body: Any = None, password: str = "") -> Any:
        return self.registry.ask(method, path, body, authorization=basic(user, password or user))

    def register(self, user: str, subject: str) -> Any:
        reply = self.ask(user, "POST", f"/subjects/{subject}/versions", {"schema": '"int"'})
        return reply["id"] if isinstance(reply, dict) else reply[:2]


def test_without_a_login_or_with_a_wrong_password_nothing_is_told() -> None:
    guarded = Guarded(Brokers())
    reply = guarded.registry.client.get("/subjects")
    assert (reply.status_code, reply.json()["error_code"]) == (401, 40101)
    assert reply.headers["www-authenticate"].startswith("Basic")
    assert guarded.ask("ann", "GET", "/subjects", password="wrong")[:2] == [401, 40101]
    for header in (
        "Basic !",
        "Bearer x",
        "Bearer {",
        "Digest x",
        "Basic " + base64.b64encode(b"ann").decode(),
    ):
        assert guarded.registry.ask("GET", "/subjects", authorization=header)[0] == 401


def test_a_password_that_the_sdk_would_look_up_is_no_password() -> None:
    brokers = Brokers()
    guarded = Guarded(brokers)
    assert guarded.ask("ann", "GET", "/subjects", password="file:/etc/passwd")[0] == 401
    assert brokers.logins == []


def test_a_subject_is_written_by_those_who_write_its_topic() -> None:
    guarded = Guarded(Brokers(ann={"t": WRITER}, bob={"t": READER}, eve={}))
    assert guarded.register("ann", "t-value") == 1
    assert guarded.register("ann", "u-value") == [403, 40301]
    assert guarded.register("bob", "t-value") == [403, 40301]
    assert guarded.ask("bob", "GET", "/subjects/t-value/versions") == [1]
    assert guarded.ask("eve", "GET", "/subjects/t-value/versions")[:2] == [403, 40301]
    assert guarded.ask("bob", "DELETE", "/subjects/t-value")[:2] == [403, 40301]
    assert guarded.ask("ann", "DELETE", "/subjects/t-value") == [1]


def test_a_schema_is_read_by_those_who_read_one_of_its_subjects() -> None:
    guarded = Guarded(Brokers(ann={"t": WRITER, "u": WRITER}, bob={"u": READER}, eve={}))
    guarded.register("ann", "t-value")
    assert guarded.ask("bob", "GET", "/schemas/ids/1")[:2] == [403, 40301]
    guarded.register("ann", "u-key")
    guarded.clock.advance(6_000)
    assert guarded.ask("bob", "GET", "/schemas/ids/1")["schema"] == '"int"'
    assert guarded.ask("bob", "GET", "/schemas/ids/1/subjects") == ["u-key"]
    assert guarded.ask("bob", "GET", "/subjects") == ["u-key"]
    assert guarded.ask("eve", "GET", "/subjects") == []
    assert guarded.ask("eve", "GET", "/schemas/ids/1")[:2] == [403, 40301]


def test_before_the_topic_is_there_the_right_to_create_it_decides() -> None:
    guarded = Guarded(Brokers(ann={"new": {"Create", "Describe"}}, bob={"new": WRITER}))
    assert guarded.register("ann", "new-value") == 1
    assert guarded.register("bob", "new-value") == [403, 40301]


def test_settings_need_alter_on_the_topic_or_on_the_cluster() -> None:
    guarded = Guarded(Brokers(ann={"t": OWNER}, bob={"t": WRITER}, root={"cluster": {"Alter"}}))
    level = {"compatibility": "FULL"}
    assert guarded.ask("bob", "PUT", "/config/t-value", level)[:2] == [403, 40301]
    assert guarded.ask("ann", "PUT", "/config/t-value", level) == level
    assert guarded.ask("ann", "PUT", "/config", level)[:2] == [403, 40301]
    assert guarded.ask("ann", "PUT", "/config/:.c:", level)[:2] == [403, 40301]
    assert guarded.ask("root", "PUT", "/config", level) == level
    assert guarded.ask("ann", "GET", "/config") == {"compatibilityLevel": "FULL"}


def test_logins_and_answers_are_kept_for_a_while() -> None:
    brokers = Brokers(ann={"t": WRITER})
    guarded = Guarded(brokers)
    guarded.register("ann", "t-value")
    brokers.rights["ann"] = {}
    assert guarded.register("ann", "t-value") == 1
    guarded.clock.advance(6_000)
    assert guarded.register("ann", "t-value") == [403, 40301]
    assert brokers.logins == ["ann"]
    guarded.clock.advance(300_000)
    guarded.ask("ann", "GET", "/subjects")
    assert (brokers.logins, brokers.closed) == (["ann", "ann"], ["ann"])
    guarded.rights.close()
    assert brokers.closed == ["ann", "ann"]


def test_brokers_out_of_reach_are_no_wrong_password() -> None:
    def connect(_login: Login) -> Connection:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "down")

    rights = BrokerRights(connect, ManualClock(), SeededEntropy())
    with pytest.raises(RegistryError, match="down") as failed:
        rights.log_in(basic("a", "b"))
    assert (failed.value.status, failed.value.code) == (500, 50001)


def token_of(user: str) -> str:
    """A token that names a user, as a JWT does; the brokers would check its signature."""
    claims = base64.urlsafe_b64encode(b'{"sub":"%s"}' % user.encode()).decode().rstrip("=")
    return f"e30.{claims}.c2ln"


def test_a_token_logs_in_whom_the_brokers_take_it_for() -> None:
    brokers = Brokers(ann={"t": WRITER, "cluster": {"Alter"}})
    brokers.token = token_of("ann")
    guarded = Guarded(brokers)
    guarded.register("ann", "t-value")
    bearer = f"Bearer {brokers.token}"
    ask = guarded.registry.ask
    assert ask("GET", "/subjects", authorization=bearer) == ["t-value"]
    level = {"compatibility": "FULL"}
    assert ask("PUT", "/config", level, authorization=bearer) == level
    assert ask("GET", "/subjects", authorization=f"Bearer {token_of('eve')}")[:2] == [401, 40101]
    brokers.expired = True
    assert ask("PUT", "/config", level, authorization=bearer)[:2] == [401, 40101]


class SlowBrokers(Brokers):
    """They answer a wrong password only when the test says so."""

    def __init__(self, **rights: dict[str, set[str]]) -> None:
        super().__init__(**rights)
        self.answer = threading.Event()

    def connect(self, login: Login) -> Connection:
        if login.secret != login.name:
            self.answer.wait()
        return super().connect(login)


def test_who_tries_passwords_leaves_threads_to_others() -> None:
    brokers = SlowBrokers(ann={"t": READER})
    app: Any = Guarded(brokers).registry.client.app

    def client(host: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app, client=(host, 1))
        return httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async def run() -> set[int]:
        async with client("203.0.113.7") as stranger, client("198.51.100.1") as friend:
            tries = [
                asyncio.create_task(
                    stranger.get("/subjects", headers={"Authorization": basic("ann", f"guess {n}")})
                )
                for n in range(60)
            ]
            try:
                async with asyncio.timeout(30):
                    own = {"Authorization": basic("ann", "ann")}
                    assert (await friend.get("/subjects", headers=own)).json() == []
            finally:
                brokers.answer.set()
            return {reply.status_code for reply in await asyncio.gather(*tries)}

    assert asyncio.run(run()) == {401, 429}
