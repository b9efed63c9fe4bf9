"""JSON in ZooKeeper nodes. Any tool may have written it, so it is read strictly. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

GARBLED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""Exceptions of a decoder on JSON of another form than expected."""


def dump(value: Mapping[str, Any]) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def parse(data: bytes) -> object:
    """A JSON value with finite numbers, and with text that UTF-8 can encode. Raises ValueError.

    Other values would fail later: in arithmetic, or on the way to brokers.
    """
    try:
        text = data.decode()
        value: object = _STRICT.decode(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as e:
        raise ValueError("nested too deeply") from e
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


_STRICT = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
