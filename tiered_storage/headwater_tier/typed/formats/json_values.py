"""JSON texts as Python values (Kafka's JsonDeserializer): fast by orjson, exact by the standard
library. The one adapter of orjson for decoding.

orjson takes the last of two equal keys and rounds long numbers; the exact way refuses the first
and keeps the second. orjson is the judge of what is JSON for both: RFC 8259, so no NaN.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

import orjson

from headwater_tier.typed.formats.misfit import NotFittingError, malformed, shown
from headwater_tier.typed.quarantine_reasons import Reason

INTEGER_CHARS_MAX = 40
"""A longer integer becomes a Decimal: Python's int refuses 4,300 digits, and is slow before."""
Value = Any
"""None, bool, int, str, list, dict; fractions: float by `fast_value`, Decimal by `exact_value`."""


def fast_value(text: bytes) -> Value:
    """The value of a text without equal keys and long numbers. Raises NotFittingError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise malformed(f"no JSON: {error}") from None


def json_fault(text: bytes) -> tuple[str, int] | None:
    """(what is wrong, at which byte) of a text that is no JSON; None for JSON."""
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        return "no UTF-8", error.start
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return error.msg.partition(": line ")[0], len(decoded[: error.pos].encode("utf-8"))
    return None


def exact_value(text: bytes) -> Value:
    """The value, with fractions as Decimal. Raises NotFittingError, also for equal keys."""
    try:
        decoded = text.decode("utf-8")
        if "\\u" in decoded:  # half of a surrogate pair is no text: only orjson refuses it
            fast_value(text)
        return _DECODER.decode(decoded)
    except UnicodeDecodeError as error:
        raise malformed(f"byte {error.start} is no UTF-8") from None
    except (json.JSONDecodeError, RecursionError) as error:
        detail = str(error) if isinstance(error, json.JSONDecodeError) else "it nests too deep"
        raise malformed(f"no JSON: {detail}") from None


def json_text(value: Value) -> str:
    """An exact value as compact JSON, its numbers as they were written."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(k)}:{json_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, str):
        return _quoted(value)
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


def cache_key(value: Value) -> bytes:
    """The same bytes for the same value, quickly; not for reading."""
    return orjson.dumps(value, default=str)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _object(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise NotFittingError(Reason.DUPLICATE_KEY, f"the key {shown(twice)} is there twice")
    return found


def _integer(literal: str) -> int | Decimal:
    return int(literal) if len(literal) <= INTEGER_CHARS_MAX else Decimal(literal)


def _fraction(literal: str) -> Decimal:
    try:
        return Decimal(literal)
    except InvalidOperation:
        detail = f"the number {shown(literal)} has too large an exponent"
        raise NotFittingError(Reason.OUT_OF_RANGE, detail) from None


def _constant(literal: str) -> NoReturn:
    raise malformed(f"no JSON: {literal} is no number of JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_float=_fraction,
    parse_int=_integer,
    parse_constant=_constant,
)
