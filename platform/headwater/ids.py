"""Kafka's text form of the ids of topics, folders and clusters."""

from __future__ import annotations

import base64
from uuid import UUID


def id_text(value: UUID) -> str:
    """base64url of the 16 bytes, without padding: `mb7ktUyQRLqEOsuIwKHa3w`."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def id_from_text(text: str) -> UUID:
    """The reverse of `id_text`. Raises ValueError."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
