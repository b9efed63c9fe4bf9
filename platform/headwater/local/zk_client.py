"""kazoo clients with a cluster's credentials: digest authentication, TLS, ACLs of new nodes."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE

CONNECT_TIMEOUT_S = 10.0
DIGEST_SCHEME = "digest"
PUBLIC_ACL = (*CREATOR_ALL_ACL, *READ_ACL_UNSAFE)
"""Its creator's credentials may do everything, everybody may read: Kafka's ACL of most nodes."""
SECRET_ACL = tuple(CREATOR_ALL_ACL)
"""Its creator's credentials only: Kafka's ACL of nodes with secrets."""


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """How a process shows itself to ZooKeeper."""

    digest: str = field(default="", repr=False)
    """`user:password`; empty: no authentication."""
    tls: ssl.SSLContext | None = None
    set_acl: bool = False
    """Whether the nodes that it creates belong to these credentials (zookeeper.set.acl)."""

    @property
    def auth_data(self) -> list[tuple[str, str]]:
        """As kazoo takes it."""
        return [(DIGEST_SCHEME, self.digest)] if self.digest else []


NO_SECURITY = ZooKeeperSecurity()


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """Connections with a TLS context of ours: kazoo's own takes files in PEM only.

    Without a context connections are plain.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.tls = tls

    def create_connection(
        self, address: Any, hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> Any:
        """A connected socket, after the handshake."""
        plain = super().create_connection(address, timeout=timeout)
        if self.tls is None:
            return plain
        try:
            return self.tls.wrap_socket(plain, server_hostname=hostname or address[0])
        except OSError:
            plain.close()
            raise

    def select(self, readable: Any, *args: Any, **kwargs: Any) -> Any:
        """As `select.select`. What TLS has decrypted already is readable: the kernel has none."""
        decrypted = [s for s in readable if isinstance(s, ssl.SSLSocket) and s.pending()]
        if decrypted:
            return decrypted, [], []
        return self.wait(readable, *args, **kwargs)

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """kazoo's `select`."""
        return super().select(*args, **kwargs)


def kazoo_client(
    servers: str, security: ZooKeeperSecurity = NO_SECURITY, **options: Any
) -> KazooClient:
    """A client of `host:port,...` that is not started. `options` are kazoo's."""
    if security.tls is not None:
        options.setdefault("handler", TlsHandler(security.tls))
    return KazooClient(
        hosts=servers,
        auth_data=security.auth_data or None,
        default_acl=list(PUBLIC_ACL) if security.set_acl else None,
        use_ssl=security.tls is not None,
        **options,
    )


def readable_znodes(servers: str) -> Iterator[tuple[str, bytes]]:
    """The znodes that a client without credentials may read, with their content."""
    client = kazoo_client(servers)
    client.start(CONNECT_TIMEOUT_S)
    left = ["/"]
    try:
        while left:
            path = left.pop()
            try:
                yield path, client.get(path)[0]
                left += [f"{path.rstrip('/')}/{name}" for name in client.get_children(path)]
            except (NoAuthError, NoNodeError):
                continue  # it is shut, or has gone
    finally:
        client.stop()
        client.close()
