"""A registry at work: its topic followed, its application over it, whoever serves that."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from importlib.metadata import version

from starlette.types import ASGIApp

from headwater.system import SystemClock, SystemEntropy
from headwater_gateway.app.login_gate import LoginGate
from headwater_gateway.registry.broker_rights import BrokerRights, Connect
from headwater_gateway.registry.formats.catalog import FormatCatalog
from headwater_gateway.registry.http_app import registry_app
from headwater_gateway.registry.http_guard import HttpGuard
from headwater_gateway.registry.parts import RegistryParts
from headwater_gateway.registry.rights import OpenRights, Rights
from headwater_gateway.registry.schemas_topic import SchemasTopic, TopicOptions
from headwater_gateway.registry.topic_store import TopicStore


def running_registry(
    stack: ExitStack, options: TopicOptions, connect: Connect | None, hosts: Iterable[str]
) -> ASGIApp:
    """The application of a registry that has read its topic; it ends with the stack.

    `connect` logs users in; None: nobody logs in. Raises UsageError, KafkaError.
    """
    clock, entropy = SystemClock(), SystemEntropy()
    store = TopicStore(SchemasTopic(options), clock, entropy)
    stack.callback(store.close)
    store.start()
    rights: Rights = OpenRights()
    if connect is not None:
        rights = BrokerRights(connect, clock, entropy)
        stack.callback(rights.close)
    parts = RegistryParts(store, FormatCatalog(), rights, store.cluster_id, version("headwater"))
    return registry_app(parts, HttpGuard(hosts), LoginGate(clock))
