"""Kafka's text form of topic ids, directory ids and cluster ids."""

from __future__ import annotations

import base64
from uuid import UUID


def id_text(value: UUID) -> str:
    """base64url of the 16 bytes, without padding: `mb7ktUyQRLqEOsuIwKHa3w`."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def id_from_text(text: str) -> UUID:
    """The id of this text form. Raises ValueError."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
