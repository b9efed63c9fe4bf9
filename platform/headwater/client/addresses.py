"""Bootstrap servers: what the caller writes, as (host, port) pairs."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import UsageError

PORT_DEFAULT = 9092


def parse_bootstrap(servers: str | Sequence[str]) -> list[tuple[str, int]]:
    """`"a:9092,b:9093"` or a list of such; `[::1]:9092` for IPv6. Raises UsageError."""
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    out = []
    for text in texts:
        stripped = text.strip()
        if not stripped:
            continue
        host, colon, port_text = stripped.rpartition(":")
        if not colon or stripped.endswith("]"):
            host, port_text = stripped, str(PORT_DEFAULT)
        if not port_text.isdigit() or not 0 < int(port_text) < 65536 or not host:
            raise UsageError(f"bootstrap server {stripped!r} is not host:port")
        out.append((host.strip("[]"), int(port_text)))
    if not out:
        raise UsageError("bootstrap_servers is empty: give host:port, for example 127.0.0.1:9092")
    return out
