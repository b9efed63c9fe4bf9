"""A broker's settings: a properties file with Kafka's keys, overridden by `--set key=value`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headwater.config.keys import Values, broker_values
from headwater.config.load import parse_properties
from headwater.config.placeholders import resolve_placeholders
from headwater.errors import UsageError
from headwater.ports.control import tls_address
from headwater.security.protocol import SecurityProtocol
from headwater_broker.app.listener_protocols import (
    check_listener_keys,
    control_uses_tls,
    inter_broker_listener,
    protocols_of,
)

CLUSTER_ID = "cluster.id"
STORAGE_OPTION = "headwater.tables.option."
"""Prefix of storage options (s3, abfss) for the tables; also from HEADWATER_TABLES_OPTION_*."""


@dataclass(frozen=True, slots=True)
class Address:
    """One `NAME://host:port`; an empty host means all interfaces."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The settings that the broker is wired from. `values` holds every key, typed."""

    broker_id: int
    cluster_id: str | None
    log_dirs: tuple[str, ...]
    listeners: tuple[Address, ...]
    advertised: tuple[Address, ...]
    protocols: Mapping[str, SecurityProtocol]
    """By the name of the listener."""
    inter_broker_listener: str
    """The listener that brokers use among themselves."""
    control: Address
    control_advertised: str
    """host:port, with `tls://` before it if the port has TLS."""
    control_tls: bool
    status: Address | None
    zookeeper: str
    tables_uri: str
    table_options: tuple[tuple[str, str], ...] = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)
    values: Values = field(repr=False)


def load(path: str | None, overrides: Iterable[str]) -> NodeConfig:
    """Read the file, if there is one, then the `key=value` overrides. Raises UsageError."""
    properties: dict[str, str] = {}
    if path is not None:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot read the configuration {path}: {error.strerror}") from None
        properties.update(parse_properties(text, path))
    for item in overrides:
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"--set {item!r}: write it as key=value")
        properties[key.strip()] = value.strip()
    return from_properties(resolve_placeholders(properties))


def from_properties(properties: Mapping[str, str]) -> NodeConfig:
    """Check every key and value. Raises UsageError with the key and the remedy."""
    known = dict(properties)
    cluster_id = known.pop(CLUSTER_ID, None)
    options = tuple(
        sorted((k.removeprefix(STORAGE_OPTION), known.pop(k)) for k in _option_keys(known))
    )
    values = broker_values(known)
    broker_id = values.integer("broker.id")
    if broker_id < 0:
        raise UsageError("broker.id is not set: give each broker of a cluster its own number")
    log_dirs = values.strings("log.dirs") if values.is_set("log.dirs") else ()
    log_dirs = log_dirs or (values.string("log.dir"),)
    listeners = _addresses("listeners", values.strings("listeners"))
    advertised = listeners
    if values.is_set("advertised.listeners"):
        advertised = _addresses("advertised.listeners", values.strings("advertised.listeners"))
    _check_advertised(listeners, advertised)
    names = tuple(address.name for address in listeners)
    protocols = protocols_of(values.strings("listener.security.protocol.map"), names)
    check_listener_keys(known, names)
    control = _host_port("control.listener", values.string("control.listener"))
    first = str(Path(log_dirs[0]).resolve())
    inter_broker = inter_broker_listener(known, protocols)
    rows = values.strings("listener.security.protocol.map")
    control_tls = control_uses_tls(known, rows, protocols[inter_broker])
    control_address = values.string("control.advertised.listener") or values.string(
        "control.listener"
    )
    return NodeConfig(
        broker_id=broker_id,
        cluster_id=cluster_id,
        log_dirs=tuple(str(Path(folder).resolve()) for folder in log_dirs),
        listeners=listeners,
        advertised=advertised,
        protocols=protocols,
        inter_broker_listener=inter_broker,
        control=control,
        control_advertised=tls_address(control_address) if control_tls else control_address,
        control_tls=control_tls,
        status=_host_port("status.listener", values.string("status.listener"))
        if values.is_set("status.listener")
        else None,
        zookeeper=values.string("zookeeper.connect"),
        tables_uri=values.string("headwater.tables.uri") or Path(first, "tables").as_uri(),
        table_options=options + _options_of_environment(),
        properties=known,
        values=values,
    )


def _option_keys(properties: Mapping[str, str]) -> list[str]:
    return [key for key in properties if key.startswith(STORAGE_OPTION)]


def _options_of_environment() -> tuple[tuple[str, str], ...]:
    prefix = STORAGE_OPTION.upper().replace(".", "_")
    rows = ((k.removeprefix(prefix), v) for k, v in os.environ.items() if k.startswith(prefix))
    return tuple(sorted(rows))


def _addresses(key: str, texts: tuple[str, ...]) -> tuple[Address, ...]:
    found = []
    for text in texts:
        name, arrow, rest = text.partition("://")
        if not arrow or not name:
            raise UsageError(f"config {key}: {text!r} is not NAME://host:port")
        address = _host_port(key, rest)
        found.append(Address(name.upper(), address.host, address.port))
    if not found:
        raise UsageError(f"config {key}: at least one NAME://host:port is needed")
    if len({a.name for a in found}) != len(found):
        raise UsageError(f"config {key}: a listener name occurs twice")
    return tuple(found)


def _host_port(key: str, text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"config {key}: {text!r} is not host:port with a port of 0 to 65535")
    return Address("", host.strip("[]"), int(port))


def _check_advertised(listeners: tuple[Address, ...], advertised: tuple[Address, ...]) -> None:
    names = {address.name for address in listeners}
    for address in advertised:
        if address.name not in names:
            raise UsageError(f"config advertised.listeners: {address.name} is not in listeners")
        if address.host in ("", "0.0.0.0", "::"):
            raise UsageError(
                f"config advertised.listeners: {address.name} needs a host that clients can "
                "reach: set advertised.listeners"
            )
