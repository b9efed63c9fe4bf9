"""The serializers that need no library: text and JSON. Pure."""

from __future__ import annotations

import json
from typing import Any

from headwater.client.serializers.values import Context, some


class StringSerializer:
    """Text, as UTF-8."""

    def dumps(self, value: str, at: Context) -> bytes:
        """See Serializer."""
        if not isinstance(value, str):
            raise TypeError(f"give a string, not {type(value).__name__}")
        return value.encode()

    def loads(self, data: bytes | None, at: Context) -> str:
        """See Serializer."""
        return some(data).decode()


class JsonSerializer:
    """What Python's json can write: dicts, lists, numbers, text. NaN and infinities are refused, as
    JSON has neither."""

    def dumps(self, value: Any, at: Context) -> bytes:
        """See Serializer."""
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()

    def loads(self, data: bytes | None, at: Context) -> Any:
        """See Serializer."""
        return json.loads(some(data))
