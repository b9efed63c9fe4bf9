"""Nodes below `/log_dir_event_notification`: a disk of a running broker failed (KIP-112)."""

from __future__ import annotations

from headwater_broker.metadata.znode_json import dump
from headwater_broker.metadata.znodes import ZnodeError, load


def encode_log_dir_event(broker_id: int) -> bytes:
    """The event of a failed disk (event 1, as in Kafka)."""
    return dump({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """The broker whose disk failed. Raises ZnodeError."""
    broker_id = load(path, data).get("broker")
    if not isinstance(broker_id, int):
        raise ZnodeError(f"{path}: no broker id")
    return broker_id
