"""ACLs of a cluster's nodes in ZooKeeper (Kafka's `ZkData`).

With `zookeeper.set.acl` each node belongs to the brokers' credentials, and everybody may read it,
except nodes with secrets: those of `/config/users`, `/config/brokers`, `/delegation_token/tokens`,
of `/headwater/sessions` (with a session's password anyone can end a broker), `/headwater/secrets`
(with the secret behind absent users' salts anyone can tell which users exist).
"""

from __future__ import annotations

from enum import Enum

from headwater_broker.metadata.scram_secret import SECRETS

SESSIONS = "/headwater/sessions"
SECRET_PATHS = ("/config/users", "/config/brokers", "/delegation_token/tokens", SESSIONS, SECRETS)
SECURE_ROOTS = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/delegation_token",
    "/headwater",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/kafka-acl-extended-changes",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
)
"""Trees of the cluster: a chroot, or a server without one, may hold others."""


class ZnodeAcl(Enum):
    """The ACL of a node."""

    OPEN = "open"
    """Everybody may do everything."""
    PUBLIC = "public"
    """Brokers may do everything, everybody may read."""
    SECRET = "secret"
    """Brokers only."""


class ZnodeAcls:
    """The ACLs of nodes by path."""

    def __init__(self, *, is_authenticated: bool = False, set_acl: bool = False) -> None:
        """`is_authenticated`: the brokers have credentials."""
        self.set_acl = set_acl
        self._is_authenticated = is_authenticated

    def of(self, path: str) -> ZnodeAcl:
        """The ACL of a new node. Sessions are secret as soon as there are credentials."""
        if self.set_acl:
            return ZnodeAcl.SECRET if is_secret(path) else ZnodeAcl.PUBLIC
        is_session = self._is_authenticated and path.startswith(f"{SESSIONS}/")
        return ZnodeAcl.SECRET if is_session else ZnodeAcl.OPEN


def is_secret(path: str) -> bool:
    """True for a node that only brokers may read."""
    return any(path == secret or path.startswith(f"{secret}/") for secret in SECRET_PATHS)
