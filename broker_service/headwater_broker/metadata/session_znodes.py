"""`/headwater/sessions/1` (ephemeral): the password of a broker's session, for brokers only.

With it and the node's owner a peer closes the session of a dead process. Older releases kept it in
`/brokers/ids/1`, which everybody may read.
"""

from __future__ import annotations

from headwater_broker.metadata.znode_acls import SESSIONS
from headwater_broker.metadata.znode_json import GARBLED, dump
from headwater_broker.metadata.znodes import ZnodeError, load

VERSION = 1


def session_path(broker_id: int) -> str:
    """`/headwater/sessions/1`."""
    return f"{SESSIONS}/{broker_id}"


def encode_session(password: bytes) -> bytes:
    """As JSON."""
    return dump({"version": VERSION, "password": password.hex()})


def decode_session(path: str, data: bytes) -> bytes:
    """The password. Raises ZnodeError."""
    try:
        return bytes.fromhex(str(load(path, data, VERSION)["password"]))
    except GARBLED as error:
        raise ZnodeError(f"{path}: not a session: {type(error).__name__}") from error
