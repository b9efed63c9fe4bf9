"""The registry's questions about rights, answered by a real broker in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.ports.authorizer import Operation, Requester, ResourceType
from headwater.system import SystemClock, SystemEntropy
from headwater_broker.app.data_plane import build_listener
from headwater_broker.app.sasl_listeners import SaslParts, sasl_authenticator
from headwater_broker.network.listener import Listener
from headwater_gateway.registry.broker_rights import BrokerRights, connector
from headwater_gateway.registry.errors import RegistryError
from headwater_gateway.registry.rights import Right
from solo_broker import SoloBroker
from unit.registry.test_broker_rights import basic

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "
USERS = 'user_ann="anns" user_bob="bobs" user_root="roots";'
PROPERTIES = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN",
    "listener_name_plaintext_plain_sasl_jaas_config": PLAIN + USERS,
}
ALLOWED = {
    ("ann", Operation.WRITE, "t"),
    ("ann", Operation.DESCRIBE, "t"),
    ("ann", Operation.CREATE, "new"),
    ("ann", Operation.DESCRIBE, "new"),
    ("bob", Operation.READ, "t"),
    ("bob", Operation.DESCRIBE, "t"),
    ("bob", Operation.DESCRIBE, "new"),
    ("root", Operation.ALTER, "kafka-cluster"),
    ("root", Operation.DESCRIBE, "kafka-cluster"),
}


class Acls:
    """Who may do what, by name."""

    generation = 0

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return (requester.principal.name, operation, name) in ALLOWED

    def authorize_any(
        self, requester: Requester, operation: Operation, resource: ResourceType
    ) -> bool:
        return False


def told(rights: BrokerRights) -> None:
    """Each user's rights, as the broker tells them."""
    users = {name: rights.log_in(basic(name, name + "s")) for name in ("ann", "bob", "root")}
    for name, right, subject, is_allowed in (
        ("ann", Right.WRITE, "t-value", True),
        ("ann", Right.READ, "t-key", True),
        ("ann", Right.CONFIGURE, "t-value", False),
        ("ann", Right.READ, "other-value", False),
        ("bob", Right.READ, ":.c:t-value", True),
        ("bob", Right.WRITE, "t-value", False),
        ("ann", Right.READ, "new-value", True),
        ("ann", Right.CONFIGURE, "", False),
        ("root", Right.CONFIGURE, "", True),
        ("root", Right.READ, "t-value", False),
    ):
        if is_allowed:
            rights.check(users[name], right, subject)
            continue
        with pytest.raises(RegistryError) as denied:
            rights.check(users[name], right, subject)
        assert denied.value.status == 403, (name, right, subject)
    assert rights.readable(users["bob"], ["t-value", "other-value"]) == {"t-value"}
    for wrong in (basic("ann", "bobs"), basic("eve", "eves")):
        with pytest.raises(RegistryError) as refused:
            rights.log_in(wrong)
        assert refused.value.status == 401


def test_a_broker_tells_each_user_its_own_rights(tmp_path: Path) -> None:
    async def run() -> None:
        broker = SoloBroker(tmp_path, **PROPERTIES)
        broker.authorizer = Acls()
        async with broker:
            listener = with_logins(broker)
            broker.port = await listener.start("127.0.0.1", 0)
            broker.create_topic("t")
            broker.create_topic("other")
            own = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
            connect = connector(f"127.0.0.1:{broker.port}", own)
            rights = BrokerRights(connect, SystemClock(), SystemEntropy())
            try:
                await asyncio.to_thread(told, rights)
            finally:
                await asyncio.to_thread(rights.close)
                await listener.close()

    asyncio.run(run())


def with_logins(broker: SoloBroker) -> Listener:
    """The broker's listener, as a real broker wires it."""
    parts = SaslParts(
        users=lambda: broker.view.client_quotas,
        secret=b"s" * 32,
        clock=SystemClock(),
        entropy=SystemEntropy(),
    )
    authenticator = sasl_authenticator(broker.config, "PLAINTEXT", parts)
    return build_listener(
        broker.dynamic, broker.services, "PLAINTEXT", make_authenticator=authenticator
    )
