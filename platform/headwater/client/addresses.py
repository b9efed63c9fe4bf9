"""`bootstrap_servers` as callers write it, parsed to (host, port) pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.client.errors import OptionError
from headwater.errors import UsageError

PORT_DEFAULT = 9092


def parse_bootstrap(servers: str | Sequence[str]) -> list[tuple[str, int]]:
    """(host, port) pairs of `"a:9092,b:9093"` or a list of such; `[::1]:9092` is IPv6.

    Without a port it is 9092. Raises OptionError for another type, UsageError for bad text.
    """
    out = []
    for text in _texts(servers):
        stripped = text.strip()
        if not stripped:
            continue
        scheme, mark, rest = stripped.partition("://")
        if mark:
            plain = rest.partition("/")[0] or "host:9092"
            raise UsageError(
                f"bootstrap server {stripped!r} begins with {scheme}://, which Kafka addresses do "
                f"not have: write {plain!r}"
            )
        host, colon, port_text = stripped.rpartition(":")
        if not colon or stripped.endswith("]"):
            host, port_text = stripped, str(PORT_DEFAULT)
        if not port_text.isdigit() or not 0 < int(port_text) < 65536 or not _is_host(host):
            raise UsageError(f"bootstrap server {stripped!r} is not host:port")
        out.append((host.strip("[]"), int(port_text)))
    if not out:
        raise UsageError("bootstrap_servers is empty: give host:port, for example 127.0.0.1:9092")
    return out


def _texts(servers: Any) -> list[str]:
    if isinstance(servers, str):
        return servers.split(",")
    if isinstance(servers, Mapping):
        raise OptionError(
            "bootstrap_servers is a dict: give options as keywords, with underscores for dots, as "
            'in bootstrap_servers="127.0.0.1:9092", client_id="app"'
        )
    if not isinstance(servers, Sequence | set | frozenset) or isinstance(servers, bytes):
        raise OptionError(
            f"bootstrap_servers is {servers!r}, of type {type(servers).__name__}: give a string or "
            "a list of strings"
        )
    for text in servers:
        if not isinstance(text, str):
            raise OptionError(f"bootstrap server {text!r} is a {type(text).__name__}, not a string")
    return list(servers)


def _is_host(host: str) -> bool:
    """A name, an IPv4 address, or an IPv6 address in brackets."""
    if host.startswith("[") and host.endswith("]"):
        return bool(host[1:-1])
    return bool(host) and not any(c in host for c in "/ []@")
