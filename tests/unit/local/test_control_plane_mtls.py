"""The control plane with mTLS: brokers get through; others are refused before any handler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from blocking_control import ControlClient
from headwater.config.keys import broker_values
from headwater.errors import UsageError
from headwater.ports.authorizer import AllowAll, Operation, Requester, ResourceType
from headwater.ports.control import ControlUnavailableError
from headwater.security.principal import principal_mapper
from headwater.wire.control import ForwardReply, ForwardRequest, StatusReply, StatusRequest
from headwater.wire.control_payload import SERVICE
from headwater.wire.schema import Message
from headwater_broker.app.config import from_properties
from headwater_broker.app.control_security import (
    ControlKeys,
    ControlSecurity,
    ControlTls,
    control_security,
)
from headwater_broker.controller import control_client
from headwater_broker.controller.control_client import GrpcControlCalls
from headwater_broker.network import control_grpc
from headwater_broker.network.control_grpc import ControlServer
from headwater_broker.security.control_admission import ControlAdmission
from tls_authority import Authority, Leaf
from unit.local.test_control_plane import serving_on_a_loop

RULES = "RULE:^CN=broker-[0-9]+.*$/broker/, DEFAULT"
FORGED = ForwardRequest(forwarded_key=19, forwarded_version=7, principal="User:admin", body=b"")


class BrokersOnly(AllowAll):
    """ClusterAction for `User:broker`."""

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        wanted = (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
        return requester.principal.name == "broker" and (operation, resource, name) == wanted


class World:
    """A control server with mTLS, and the calls that reached its handlers."""

    def __init__(self) -> None:
        self.authority = Authority()
        self.reached: list[str] = []
        self.admission = ControlAdmission(principal_mapper(RULES), BrokersOnly())

    async def _status(self, request: Message) -> Message:
        self.reached.append("status")
        return StatusReply(ready=True, broker_id=7)

    async def _forward(self, request: Message) -> Message:
        self.reached.append("forward")
        return ForwardReply()

    @contextmanager
    def serving(self) -> Iterator[str]:
        own = self.leaf("broker-7")
        self.keys = self.keys_of(own)
        asked = control_grpc.mutual_tls(lambda: self.keys)
        handlers = {StatusRequest: self._status, ForwardRequest: self._forward}

        def make(loop: asyncio.AbstractEventLoop) -> ControlServer:
            admit = self.admission.admit
            return ControlServer(handlers, loop, credentials=asked, admit=admit)

        with serving_on_a_loop(make) as server:
            yield f"127.0.0.1:{server.port}"

    def leaf(self, name: str, authority: Authority | None = None) -> Leaf:
        return (authority or self.authority).leaf(name, hosts=("127.0.0.1",))

    def credentials(self, leaf: Leaf) -> grpc.ChannelCredentials:
        keys = self.keys_of(leaf)
        return control_client.CurrentKeys(lambda: keys)()

    def keys_of(self, leaf: Leaf) -> ControlTls:
        return ControlTls(*_pem(leaf), self.authority.pem.encode())


def _pem(leaf: Leaf) -> tuple[bytes, bytes]:
    return leaf.key_pem.encode(), leaf.certificate_pem.encode()


def test_a_broker_calls_and_its_forward_is_believed() -> None:
    world = World()
    with world.serving() as where:

        async def run() -> None:
            shown = world.credentials(world.leaf("broker-2"))
            calls, there = GrpcControlCalls(lambda: shown), f"tls://{where}"
            assert (await calls.call(there, StatusRequest(), StatusReply, 5_000)).broker_id == 7
            await calls.call(there, FORGED, ForwardReply, 5_000)
            await calls.close()

        asyncio.run(run())
    assert world.reached == ["status", "forward"]


def test_a_forged_forward_of_another_certificate_is_refused() -> None:
    """A client of the cluster's own authority names User:admin."""
    world = World()
    mallory = world.credentials(world.leaf("mallory"))
    with (
        world.serving() as where,
        ControlClient(where, mallory) as client,
        pytest.raises(ControlUnavailableError, match=r"PERMISSION_DENIED.*CLUSTER_ACTION"),
    ):
        client.call(FORGED, ForwardReply)
    assert world.reached == []


def test_the_bytes_of_a_stranger_are_not_decoded() -> None:
    """Whoever has a certificate of the authority, and is no broker."""
    world = World()
    mallory = world.credentials(world.leaf("mallory"))
    with world.serving() as where, grpc.secure_channel(where, mallory) as channel:
        call = channel.unary_unary(f"/{SERVICE}/{ForwardRequest.__name__}")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"\xff" * 100, timeout=5)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert world.reached == []


@pytest.mark.parametrize("shown", ["nothing", "plaintext", "another authority's"])
def test_who_shows_no_certificate_of_the_authority_makes_no_call(shown: str) -> None:
    world = World()
    trusted = world.authority.pem.encode()
    other = world.leaf("broker-2", Authority("Other root"))
    credentials = {
        "nothing": grpc.ssl_channel_credentials(trusted),
        "plaintext": None,
        "another authority's": world.credentials(other),
    }[shown]
    with (
        world.serving() as where,
        ControlClient(where, credentials) as client,
        pytest.raises(ControlUnavailableError),
    ):
        client.call(FORGED, ForwardReply, 2_000)
    assert world.reached == []


def test_both_sides_go_on_with_the_certificates_of_a_new_authority() -> None:
    """`headwater certs rotate`: trust both, reissue, drop; no broker restarts."""
    world = World()
    shown = [world.keys_of(world.leaf("broker-2"))]
    with world.serving() as where:

        async def run() -> None:
            calls = GrpcControlCalls(control_client.CurrentKeys(lambda: shown[0]))

            async def ask() -> None:
                await calls.call(f"tls://{where}", StatusRequest(), StatusReply, 5_000)

            await ask()
            former, world.authority = world.authority, Authority("Second root")
            both = (former.pem + world.authority.pem).encode()
            world.keys = replace(world.keys, trusted=both)
            shown[0] = ControlTls(*_pem(world.leaf("broker-2")), both)
            await ask()
            world.keys = world.keys_of(world.leaf("broker-7"))
            shown[0] = world.keys_of(world.leaf("broker-2"))
            await ask()
            shown[0] = ControlTls(*_pem(world.leaf("broker-2", former)), both)
            with pytest.raises(ControlUnavailableError):
                await ask()
            await calls.close()

        asyncio.run(run())
    assert world.reached == ["status"] * 3


def test_changed_files_are_read_again_and_bad_ones_are_not_taken(tmp_path: Path) -> None:
    authority, path = Authority(), tmp_path / "broker.pem"
    first = authority.leaf("broker-1")
    path.write_text(first.key_pem + first.certificate_pem)
    rows = {"ssl.keystore.location": str(path), "ssl.truststore.certificates": authority.pem}
    keys = ControlKeys(broker_values(rows))
    before = keys.now()
    assert keys.now() is before
    path.write_text("no certificate at all")
    assert keys.now() is before
    second = authority.leaf("broker-1")
    path.write_text(second.key_pem + second.certificate_pem)
    assert keys.now().key != before.key


def test_a_broker_without_keys_does_not_call_a_port_with_tls() -> None:
    async def run() -> None:
        calls = GrpcControlCalls()
        with pytest.raises(ControlUnavailableError, match=r"set ssl\.keystore\.location"):
            await calls.call("tls://127.0.0.1:1", StatusRequest(), StatusReply, 1_000)
        await calls.close()

    asyncio.run(run())


def test_keys_come_before_the_port_turns_to_tls() -> None:
    """First roll: keys, and the port as it was; second roll: the port with TLS."""
    authority = Authority()
    key, chain = _pem(authority.leaf("broker-1"))
    keys = {
        "ssl.keystore.key": key.decode(),
        "ssl.keystore.certificate.chain": chain.decode(),
        "ssl.truststore.certificates": authority.pem,
    }
    first = _config(**keys)
    assert first is not None and first.mapper is None
    second = _config(**keys, **{"listener.security.protocol.map": MAP + ",CONTROL:SSL"})
    assert second is not None and second.mapper is not None


MAP = "PLAINTEXT:PLAINTEXT"


def _config(**more: str) -> ControlSecurity | None:
    properties = {"broker.id": "1", "log.dir": "/tmp/x", "listeners": "PLAINTEXT://h:1"}
    config = from_properties({**properties, **{k.replace("__", "."): v for k, v in more.items()}})
    return control_security(config)


SASL = {"listeners": "CLIENTS://h:1", "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT"}
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


@pytest.mark.parametrize("host", ["0.0.0.0", "", "10.0.0.7", "broker-1.example", "[::]"])
def test_an_authorizer_is_not_started_beside_an_open_control_port(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who reaches such a port sends forwarded requests as any principal."""
    wide = {"control.listener": f"{host}:9192"}
    for rows in (AUTHORIZER, {**SASL, **AUTHORIZER}):
        with pytest.raises(UsageError, match=r"control\.listener: .* add CONTROL:SSL") as caught:
            _config(**wide, **rows)
        assert "\n" not in str(caught.value)
    with caplog.at_level(logging.WARNING):
        _config(**wide)
        assert not caplog.records  # every port of this cluster is open
        _config(**wide, **SASL)  # a step of the rolling move: the authorizer comes last
    assert "acts as a broker" in caplog.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_control_port_on_loopback_may_be_without_tls(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert _config(**{"control.listener": f"{host}:9192", **SASL, **AUTHORIZER}) is None
    assert not caplog.records


def test_a_control_port_with_tls_may_be_wide() -> None:
    authority = Authority()
    key, chain = _pem(authority.leaf("broker-1"))
    found = _config(
        **AUTHORIZER,
        **{
            "control.listener": "0.0.0.0:9192",
            "listener.security.protocol.map": MAP + ",CONTROL:SSL",
            "ssl.keystore.key": key.decode(),
            "ssl.keystore.certificate.chain": chain.decode(),
            "ssl.truststore.certificates": authority.pem,
        },
    )
    assert found is not None and found.mapper is not None


def test_keys_of_the_control_listener_turn_mtls_on() -> None:
    authority = Authority()
    key, chain = _pem(authority.leaf("broker-1"))
    own = "listener.name.control.ssl."
    assert _config() is None
    with pytest.raises(UsageError, match=r"ssl\.truststore\.location: not set"):
        _config(**{f"{own}keystore.key": key.decode(),
                   f"{own}keystore.certificate.chain": chain.decode()})  # fmt: skip
    found = _config(
        **{
            f"{own}keystore.key": key.decode(),
            f"{own}keystore.certificate.chain": chain.decode(),
            f"{own}truststore.certificates": authority.pem,
        }
    )
    assert found is not None
    assert "PRIVATE KEY" not in repr(found)
