"""The security protocol of each listener, the listener between brokers, and keys of one listener.

Kafka's `listener.security.protocol.map`, `inter.broker.listener.name`,
`security.inter.broker.protocol` (KIP-103), and `listener.name.<listener>.KEY`.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.config.keys import LISTENER_PREFIX
from headwater.config.listener_values import OVERRIDABLE, listener_values, split_override
from headwater.errors import UsageError
from headwater.security.protocol import SecurityProtocol, security_protocol

MAP_KEY = "listener.security.protocol.map"
NAME_KEY = "inter.broker.listener.name"
PROTOCOL_KEY = "security.inter.broker.protocol"


CONTROL_LISTENER, STATUS_LISTENER = "CONTROL", "STATUS"
"""Control plane and status port, for keys `listener.name.control.ssl.*`; no listener has this name.
"""


def protocols_of(rows: tuple[str, ...], names: tuple[str, ...]) -> dict[str, SecurityProtocol]:
    """The protocol of each of these listeners, from the rows `NAME:PROTOCOL` of the map.

    Raises UsageError for a bad row, and for a listener that has none.
    """
    found: dict[str, SecurityProtocol] = {}
    for row in rows:
        name, colon, protocol = row.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"config {MAP_KEY}: {row!r} is not NAME:PROTOCOL")
        name = name.strip().upper()
        if name in found:
            raise UsageError(f"config {MAP_KEY}: {name} occurs twice; keep one of the rows")
        found[name] = security_protocol(protocol, f"config {MAP_KEY}: {name}")
    for name in names:
        if name not in found:
            raise UsageError(
                f"config listeners: {name} has no security protocol; add {name}:SSL, or another "
                f"protocol, to {MAP_KEY}"
            )
    return {name: found[name] for name in names}


def inter_broker_listener(
    properties: Mapping[str, str], protocols: Mapping[str, SecurityProtocol]
) -> str:
    """The listener that brokers use among themselves: the named one, or the first one.

    Raises UsageError when it is none of the listeners.
    """
    name, protocol = properties.get(NAME_KEY, "").upper(), properties.get(PROTOCOL_KEY, "")
    if name and protocol:
        raise UsageError(f"config {NAME_KEY}: {PROTOCOL_KEY} is set too; use one of them")
    wanted = name or protocol.upper()
    if not wanted:
        return next(iter(protocols))
    if wanted not in protocols:
        key = NAME_KEY if name else PROTOCOL_KEY
        raise UsageError(
            f"config {key}: {wanted} is not in listeners; use one of {', '.join(protocols)}"
        )
    return wanted


def control_uses_tls(
    properties: Mapping[str, str], rows: tuple[str, ...], inter_broker: SecurityProtocol
) -> bool:
    """Whether the control port has TLS: as the map says of CONTROL; else where it has a key of its
    own, or the inter-broker listener has TLS. Raises UsageError."""
    names = {row.partition(":")[0].strip().upper() for row in rows}
    if CONTROL_LISTENER in names:
        protocol = protocols_of(rows, (CONTROL_LISTENER,))[CONTROL_LISTENER]
        if protocol.uses_sasl:
            raise UsageError(
                f"config {MAP_KEY}: {CONTROL_LISTENER}:{protocol.name}: use SSL or PLAINTEXT"
            )
        return protocol.uses_tls
    own = f"{LISTENER_PREFIX}{CONTROL_LISTENER.lower()}.ssl.keystore."
    return inter_broker.uses_tls or any(
        name in (f"{own}location", f"{own}key") for name in properties
    )


def check_listener_keys(properties: Mapping[str, str], names: tuple[str, ...]) -> None:
    """Check the keys `listener.name.<listener>.KEY`, and their values. Raises UsageError."""
    known = {name.lower(): name for name in (*names, CONTROL_LISTENER, STATUS_LISTENER)}
    for name in properties:
        if not name.startswith(LISTENER_PREFIX):
            continue
        found = split_override(name)
        assert found is not None  # it has the prefix
        listener, mechanism, key = found
        if listener not in known:
            raise UsageError(
                f"config {name}: no listener {listener.upper()}; use one of "
                + ", ".join(f"{LISTENER_PREFIX}{known_name}" for known_name in known)
            )
        if key not in OVERRIDABLE:
            raise UsageError(f"config {name}: {key} holds for the whole broker; set {key}")
        listener_values(properties, known[listener], mechanism)
