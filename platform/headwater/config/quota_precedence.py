"""Client quotas (KIP-546, KIP-612): entities, keys, and which quota applies to a client. Pure.

An entity has the form of the wire, {"user": ..., "client-id": ...} or {"ip": ...}; the name None is
the default of its type. It is stored under Kafka's path, `users/alice/clients/<default>`, with
names percent-encoded.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterator, Mapping
from urllib.parse import quote, unquote

from headwater.config.row import INT_MAX, LONG_MAX
from headwater.errors import UsageError

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
DEFAULT = "<default>"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONNECTION_RATE = "connection_creation_rate"
MUTATION_RATE = "controller_mutation_rate"

Entity = Mapping[str, str | None]
Quotas = Mapping[str, Mapping[str, str]]
"""Entity path -> key -> value as text, as in the metadata store."""

_FOLDERS = {USER: "users", CLIENT_ID: "clients", IP: "ips"}
_TYPES = {folder: kind for kind, folder in _FOLDERS.items()}
_CLIENT_KEYS = {
    PRODUCER_BYTE_RATE: LONG_MAX,
    CONSUMER_BYTE_RATE: LONG_MAX,
    REQUEST_PERCENTAGE: math.inf,
    MUTATION_RATE: math.inf,
}
"""Key -> the largest value; finite: whole numbers."""
_IP_KEYS = {CONNECTION_RATE: INT_MAX}


def entity_path(entity: Entity) -> str:
    """The path of an entity: `users/alice`, `users/alice/clients/app`, `ips/10.0.0.1`, ...

    All spellings of an address have one path. Raises UsageError when it is no entity.
    """
    if not entity:
        raise UsageError("a quota needs an entity: a user, a client-id, both, or an ip")
    if unknown := sorted(set(entity) - set(_FOLDERS)):
        raise UsageError(f"quota entity type {unknown[0]!r} is not one of {', '.join(_FOLDERS)}")
    if IP in entity and len(entity) > 1:
        raise UsageError("quota entity: an ip stands alone, without user and client-id")
    if empty := [kind for kind, name in entity.items() if name == ""]:
        raise UsageError(f"quota entity: the {empty[0]} is empty; null is the default's name")
    if (address := entity.get(IP)) is not None:
        _check_address(address)
    return "/".join(
        f"{_FOLDERS[t]}/{encoded(plain_name(t, entity[t]))}" for t in _FOLDERS if t in entity
    )


def _check_address(text: str) -> None:
    """Refuse a host name, which would be stored without effect. Raises UsageError."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        remedy = "write one, as in 10.0.0.1"
        raise UsageError(f"quota entity: ip {text!r} is no address: {remedy}") from None


def plain_name(kind: str, name: str | None) -> str | None:
    """The normal form of an address: `::1` for `0:0:0:0:0:0:0:1`, and IPv4 for addresses mapped
    into IPv6, as in Java's InetAddress. Names of other types are returned unchanged."""
    if kind != IP or name is None:
        return name
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def entity_of(path: str) -> dict[str, str | None] | None:
    """The entity of a path; None when it is no entity's path."""
    parts = path.split("/")
    if len(parts) % 2 or not all(parts):
        return None
    kinds = [_TYPES.get(folder) for folder in parts[::2]]
    if kinds not in ([USER], [CLIENT_ID], [IP], [USER, CLIENT_ID]):
        return None
    names = (None if name == DEFAULT else unquote(name) for name in parts[1::2])
    return {kind: name for kind, name in zip(kinds, names, strict=True) if kind is not None}


def encoded(name: str | None) -> str:
    """A name, encoded as one segment of a path."""
    return DEFAULT if name is None else quote(name, safe="").replace("~", "%7E")  # as Java does


def check_quota_key(entity: Entity, key: str) -> None:
    """Check that an entity of this type may have this quota. Raises UsageError."""
    keys = _IP_KEYS if IP in entity else _CLIENT_KEYS
    if key not in keys:
        whose = "an ip" if IP in entity else "a user or client-id"
        raise UsageError(f"quota {key!r}: {whose} may have {', '.join(keys)}")


def quota_text(entity: Entity, key: str, value: float) -> str:
    """The text of a quota's value for the metadata store. Raises UsageError."""
    check_quota_key(entity, key)
    most = (_IP_KEYS if IP in entity else _CLIENT_KEYS)[key]
    if not value > 0 or math.isinf(value):
        raise UsageError(f"quota {key}={value}: must be greater than 0; remove it for no limit")
    if math.isinf(most):
        return repr(float(value))
    if value != int(value):
        raise UsageError(f"quota {key}={value}: must be a whole number")
    if value > most:
        raise UsageError(f"quota {key}={value}: must be at most {most}")
    return str(min(int(value), int(most)))


def quota_value(configs: Mapping[str, str], key: str) -> float | None:
    """A stored value; None when there is none, or none that is a positive number."""
    try:
        value = float(configs.get(key, "nan"))
    except ValueError:
        return None
    return value if value > 0 and not math.isinf(value) else None


def precedence(user: str, client_id: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Entity paths whose quota applies to this client, the most specific first, with the client's
    share key (user, client id): clients with equal keys share the quota.
    """
    own, client = encoded(user), encoded(client_id)
    yield f"users/{own}/clients/{client}", (user, client_id)
    yield f"users/{own}/clients/{DEFAULT}", (user, client_id)
    yield f"users/{own}", (user, "")
    yield f"users/{DEFAULT}/clients/{client}", (user, client_id)
    yield f"users/{DEFAULT}/clients/{DEFAULT}", (user, client_id)
    yield f"users/{DEFAULT}", (user, "")
    yield f"clients/{client}", ("", client_id)
    yield f"clients/{DEFAULT}", ("", client_id)


def quota_of(
    stored: Quotas, key: str, user: str, client_id: str
) -> tuple[float, tuple[str, str]] | None:
    """(the quota that applies to this client, its share key); None: no limit."""
    for path, shared in precedence(user, client_id):
        value = quota_value(stored.get(path, {}), key)
        if value is not None:
            return value, shared
    return None


def connection_rate_of(stored: Quotas, host: str) -> float | None:
    """The connection creation rate of an address, per second; None: no limit."""
    for path in (f"ips/{encoded(host)}", f"ips/{DEFAULT}"):
        value = quota_value(stored.get(path, {}), CONNECTION_RATE)
        if value is not None:
            return value
    return None
