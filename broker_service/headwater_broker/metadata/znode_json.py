"""JSON in the metadata store: anybody may have written it, so it is read strictly. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

GARBLED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What a decoder may stumble over in a value that is JSON but not what it should be."""


def dump(value: Mapping[str, Any]) -> bytes:
    """As it is written: without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def parse(data: bytes) -> object:
    """A JSON value of finite numbers, and of text that has a UTF-8 form: anything else would fail
    far from here, where it is counted with or told to brokers. Raises ValueError."""
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
        raise ValueError(f"{text} is no finite number")
    return value


_STRICT = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
