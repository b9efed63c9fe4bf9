"""Writes a SCRAM user to ZooKeeper before brokers run, in Kafka's znode (`kafka-configs.sh
--zookeeper` did so).

    /config/users/admin    {"version":1,"config":{"SCRAM-SHA-512":"salt=..,stored_key=..,..."}}
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote_plus

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from headwater.entropy import Entropy
from headwater.errors import HeadwaterError
from headwater.local.zk_client import (
    NO_SECURITY,
    PUBLIC_ACL,
    SECRET_ACL,
    ZooKeeperSecurity,
    kazoo_client,
)
from headwater.security.scram_credential import (
    ScramMechanism,
    credential_of_password,
    format_credential,
    new_salt,
)

USERS = "/config/users"
CONNECT_TIMEOUT_S = 30.0
SESSION_TIMEOUT_S = 10.0
ATTEMPTS_MAX = 5
VERSION = 1
ITERATIONS = 8_192


def ensure_scram_user(
    servers: str,
    user: str,
    password: str,
    mechanism: ScramMechanism,
    entropy: Entropy,
    security: ZooKeeperSecurity = NO_SECURITY,
    *,
    replace: bool = False,
    own_server: bool = False,
) -> None:
    """Give the user this password unless it has one; with `replace` also then.

    `servers`: `host:port,.../chroot`. With `security.set_acl` only its digest may read the node;
    with `own_server`, where no other cluster is, only it may add and delete nodes at the root.
    Raises HeadwaterError.
    """
    hosts, slash, chroot = servers.partition("/")
    client = kazoo_client(hosts, security, timeout=SESSION_TIMEOUT_S)
    try:
        client.start(CONNECT_TIMEOUT_S)
        if security.set_acl and own_server:
            client.set_acls("/", PUBLIC_ACL)
        credential = credential_of_password(mechanism, password, new_salt(entropy), ITERATIONS)
        path = f"{slash}{chroot}{USERS}/{quote_plus(user)}"
        row = {mechanism.value: format_credential(credential)}
        put_config(client, path, row, replace=replace)
        if security.set_acl:
            client.set_acls(path, SECRET_ACL)
    except (KazooException, KazooTimeoutError, OSError) as error:
        raise HeadwaterError(
            f"ZooKeeper at {servers}: the user {user} is not written: {error!r}"
        ) from error
    finally:
        client.stop()
        client.close()


def put_config(client: Any, path: str, row: dict[str, str], *, replace: bool) -> None:
    """Add keys to the configuration in a znode; without `replace` those that are absent. Keys that
    are not named, such as quotas, stay. `client` has the calls of kazoo's."""
    for _ in range(ATTEMPTS_MAX):
        try:
            data, stat = client.get(path)
        except NoNodeError:
            try:
                client.create(path, _encoded(row), makepath=True)
                return
            except NodeExistsError:
                continue  # another writer was first
        known = _config(data)
        changed = {**known, **row} if replace else {**row, **known}
        if changed == known:
            return
        try:
            client.set(path, _encoded(changed), version=stat.version)
            return
        except BadVersionError:
            continue
    raise HeadwaterError(f"{path} changes again and again: try later")


def _encoded(config: dict[str, str]) -> bytes:
    return json.dumps({"version": VERSION, "config": config}, separators=(",", ":")).encode()


def _config(data: bytes) -> dict[str, str]:
    """The keys and values in a znode; none in one that is empty or not in Kafka's form."""
    try:
        document = json.loads(data or b"{}")
    except ValueError:
        return {}
    found = document.get("config") if isinstance(document, dict) else None
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}
