"""Delegation tokens in ZooKeeper, in Kafka's layout.

    /delegation_token/tokens/ID                    the token, without its secret
    /delegation_token/token_changes/token_change_0000000001   the id of a token that changed

Principals are percent-encoded as Kafka's `Sanitizer` does. `signer` is not in Kafka: it names the
secret key, so that brokers with a new one still verify older tokens.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from headwater_broker.metadata.znode_json import GARBLED, dump
from headwater_broker.metadata.znodes import ZnodeError, load
from headwater_broker.security.delegation_tokens import DelegationToken

TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
CHANGE_PREFIX = f"{TOKEN_CHANGES}/token_change_"
TOKEN_VERSION = 3


def token_path(token_id: str) -> str:
    """`/delegation_token/tokens/ID`."""
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    """A token's node, as JSON of version 3."""
    return dump(
        {
            "version": TOKEN_VERSION,
            "owner": _sanitized(token.owner),
            "tokenRequester": _sanitized(token.requester),
            "renewers": [_sanitized(renewer) for renewer in token.renewers],
            "issueTimestamp": token.issue_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expiry_ms,
            "tokenId": token.token_id,
            **({"signer": token.signer} if token.signer else {}),
        }
    )


def decode_token(token_id: str, data: bytes) -> DelegationToken:
    """The token in a node. Raises ZnodeError, NewerVersionError.

    Before version 3 (KIP-373) the owner of a token is who asked for it.
    """
    path = token_path(token_id)
    row = load(path, data, TOKEN_VERSION)
    try:
        owner = unquote(row["owner"])
        token = DelegationToken(
            token_id=str(row["tokenId"]),
            owner=owner,
            requester=unquote(row["tokenRequester"]) if "tokenRequester" in row else owner,
            renewers=tuple(unquote(renewer) for renewer in row["renewers"]),
            issue_ms=int(row["issueTimestamp"]),
            expiry_ms=int(row["expiryTimestamp"]),
            max_ms=int(row["maxTimestamp"]),
            signer=str(row.get("signer", "")),
        )
    except GARBLED as e:
        raise ZnodeError(f"{path}: not a delegation token: {e!r}") from e
    principals = (token.owner, token.requester, *token.renewers)
    if token.token_id != token_id or not all(text.partition(":")[1] for text in principals):
        raise ZnodeError(f"{path}: not a delegation token: id or principals do not fit")
    return token


def _sanitized(text: str) -> str:
    return quote(text, safe="").replace("~", "%7E")  # as Java does
