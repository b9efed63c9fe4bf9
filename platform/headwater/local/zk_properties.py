"""A tool's credentials and TLS towards ZooKeeper, out of a properties file with brokers' keys."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.local.zk_client import ZooKeeperSecurity
from headwater.security.tls_context import client_context

DIGEST = "headwater.zookeeper.digest"
SET_ACL = "zookeeper.set.acl"
TLS_ENABLE = "zookeeper.ssl.client.enable"
TLS_PREFIX = "zookeeper."
TLS_START = "zookeeper.ssl."


def security_of_properties(rows: Mapping[str, str]) -> ZooKeeperSecurity:
    """As the brokers with these properties. Nodes get ACLs with a digest, unless
    `zookeeper.set.acl` is false. Raises UsageError."""
    digest = rows.get(DIGEST, "")
    tls = None
    if rows.get(TLS_ENABLE) == "true":
        keys = {k.removeprefix(TLS_PREFIX): v for k, v in rows.items() if k.startswith(TLS_START)}
        keys.pop(TLS_ENABLE.removeprefix(TLS_PREFIX))
        tls = client_context(keys)
    sets_acl = bool(digest) and rows.get(SET_ACL, "true") == "true"
    return ZooKeeperSecurity(digest=digest, tls=tls, set_acl=sets_acl)
