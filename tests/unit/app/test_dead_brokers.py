"""A dead broker's session is closed, and only when the broker is surely dead."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headwater.local.zk_session import DeadSession
from headwater.ports.metadata_store import Node, NoNodeError
from headwater.wire.control import LiveBroker, UpdateMetadataRequest
from headwater_broker.app.dead_brokers import DeadBrokers
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.metadata.session_znodes import encode_session
from headwater_broker.metadata.znodes import BrokerRegistration

EPOCH = 40
OWNER = 77
IN_SESSIONS, IN_REGISTRATION, OF_ANOTHER = "sessions", "registration", "another"


class OneNode:
    """A metadata store that holds the registration of broker 2, and its session's password."""

    def __init__(self, czxid: int | None, password: str, address: str, where: str) -> None:
        registration = BrokerRegistration(
            broker_id=2, cluster_id="c", endpoints=(), control_address=address
        )
        row = json.loads(registration.encode())
        assert "session_password" not in row, "everybody may read it"
        if where == IN_REGISTRATION:
            row["session_password"] = password
        self.nodes: dict[str, Node] = {}
        if czxid is None:
            return
        self.nodes["/brokers/ids/2"] = Node(json.dumps(row).encode(), 0, czxid, OWNER)
        if password and where != IN_REGISTRATION:
            owner = OWNER if where == IN_SESSIONS else OWNER + 1
            data = encode_session(bytes.fromhex(password))
            self.nodes["/headwater/sessions/2"] = Node(data, 0, czxid, owner)

    async def get(self, path: str) -> Node:
        if path not in self.nodes:
            raise NoNodeError(path)
        return self.nodes[path]


async def closed_sessions(
    czxid: int | None, password: str, *, listens: bool, where: str = "sessions"
) -> list[DeadSession]:
    async def nobody(*_: Any) -> None:
        return None

    server = await asyncio.start_server(nobody, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if not listens:
        server.close()
        await server.wait_closed()
    view = MetadataCache("c", lambda: 1)
    view.apply(
        UpdateMetadataRequest(
            controller_id=1, controller_epoch=1, broker_epoch=1, cluster_id="c", full=True,
            brokers=(
                LiveBroker(broker_id=2, broker_epoch=EPOCH, control_address=f"127.0.0.1:{port}"),
            ),
        )
    )  # fmt: skip
    found: list[DeadSession] = []

    def close(session: DeadSession) -> bool:
        found.append(session)
        return True

    store: Any = OneNode(czxid, password, f"127.0.0.1:{port}", where)
    brokers = DeadBrokers(store, view, close)
    brokers.refuses_connections(2)
    assert 2 not in view.brokers
    while brokers.busy:
        await asyncio.sleep(0)
    brokers.refuses_connections(2)  # unknown by now: nothing more happens
    await brokers.close()
    server.close()
    return found


@pytest.mark.parametrize(
    ("czxid", "password", "listens", "expected"),
    [
        (EPOCH, "0aff", False, [DeadSession(77, b"\x0a\xff")]),
        (EPOCH, "0aff", True, []),  # it drains: the control plane answers
        (EPOCH + 1, "0aff", False, []),  # restarted: that is another life
        (None, "", False, []),  # its supervisor was faster
        (EPOCH, "", False, []),
    ],
)
def test_only_the_session_of_the_dead_is_closed(
    czxid: int | None, password: str, listens: bool, expected: list[DeadSession]
) -> None:
    assert asyncio.run(closed_sessions(czxid, password, listens=listens)) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [(IN_REGISTRATION, [DeadSession(OWNER, b"\x0a\xff")]), (OF_ANOTHER, [])],
)
def test_the_password_of_an_older_release_is_found_and_that_of_another_session_is_not_used(
    where: str, expected: list[DeadSession]
) -> None:
    found = asyncio.run(closed_sessions(EPOCH, "0aff", listens=False, where=where))
    assert found == expected
