"""A tool's credentials and TLS towards ZooKeeper, out of a properties file with brokers' keys
(Kafka's `--zk-tls-config-file`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from headwater.config.java_properties import read_java_properties
from headwater.errors import UsageError
from headwater.local.security_folder import FOLDER, SECRETS
from headwater.local.zk_client import NO_SECURITY, ZooKeeperSecurity
from headwater.local.zk_tls import ENABLE, TLS_KEYS, zookeeper_tls_of

DIGEST = "headwater.zookeeper.digest"
SET_ACL = "zookeeper.set.acl"
CONF, ZOOKEEPER_FILE = "conf", "zookeeper-client.properties"
"""Where a cluster's folder has the keys of its tools, when its ZooKeeper is reached by TLS."""


def security_of_properties(rows: Mapping[str, str]) -> ZooKeeperSecurity:
    """As the brokers with these properties. Nodes get ACLs with a digest, unless
    `zookeeper.set.acl` is false. Raises UsageError."""
    digest = rows.get(DIGEST, "")
    tls = zookeeper_tls_of(rows)
    unused = [key for key in rows if key.startswith(TLS_KEYS)]
    if tls is None and unused:
        raise UsageError(f"config {unused[0]}: it counts only with {ENABLE}=true: add that line")
    sets_acl = bool(digest) and rows.get(SET_ACL, "true") == "true"
    return ZooKeeperSecurity(digest=digest, tls=tls, set_acl=sets_acl)


def zookeeper_security(
    path: str | os.PathLike[str] | None, option: str = "--zookeeper-config"
) -> ZooKeeperSecurity:
    """How an operator shows itself to ZooKeeper, by the file that `option` names; none without a
    file. What it writes there is for the digest's owner alone. Raises UsageError."""
    if path is None:
        return NO_SECURITY
    found = security_of_properties(read_java_properties(os.fspath(path), option))
    if not found.digest and found.tls is None:
        raise UsageError(
            f"{path} has neither {DIGEST} nor {ENABLE}=true: give a secure cluster's "
            "secrets.properties, or the brokers' zookeeper.ssl.* keys"
        )
    return found


def zookeeper_file(directory: Path) -> Path | None:
    """The file with which tools reach the ZooKeeper of the cluster in a folder; None: they need
    none."""
    found = (directory / CONF / ZOOKEEPER_FILE, directory / FOLDER / SECRETS)
    return next((path for path in found if path.exists()), None)
