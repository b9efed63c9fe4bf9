"""JSON bodies of requests, checked as they are read; errors name the field and what it takes."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NoReturn

from headwater_gateway.app.errors import GatewayError

SHOWN_CHARS = 100
VALUES_MAX = 1_000_000
"""Of one body: 24 MB of `{},{},` are 8 million objects, and 3 GB of memory."""
INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _same(value: dict[str, Any]) -> dict[str, Any]:
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_LARGE_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_hook=_same)
"""Python gives other threads a turn in its own code only: this one runs some at each object."""
LARGE_BYTES = 128 * 1024
"""A body from this length on is parsed beside the loop."""


def parsed(body: bytes) -> Any:
    """The document of a body. Raises GatewayError: 400, 413 with too many values."""
    decoder = _DECODER if len(body) < LARGE_BYTES else _LARGE_DECODER
    # Those within texts count, too: it is a bound, and cheap.
    if sum(body.count(mark) for mark in (b",", b"{", b"[")) > VALUES_MAX:
        raise GatewayError(413, 413, f"the body has more than {VALUES_MAX} values: send fewer")
    try:
        return decoder.decode(body.decode())
    except RecursionError:
        raise bad_request("the JSON is nested too deep") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, a number too long
        raise bad_request(f"the body is no JSON: {str(error)[:SHOWN_CHARS]}") from None


def encoded(value: Any) -> bytes:
    """A value as compact JSON in UTF-8. Raises GatewayError (422) for what UTF-8 cannot hold."""
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (ValueError, RecursionError) as error:
        raise unprocessable(f"not JSON in UTF-8: {str(error)[:SHOWN_CHARS]}", 42203) from None


def bad_request(message: str) -> GatewayError:
    """400: not even JSON, or a parameter that is none."""
    return GatewayError(400, 400, message)


def unprocessable(message: str, code: int = 422) -> GatewayError:
    """422: JSON, but not what the request takes."""
    return GatewayError(422, code, message)


class Document:
    """A JSON object, and where it stands in the body, for errors."""

    def __init__(self, value: Any, where: str = "the body") -> None:
        if not isinstance(value, dict):
            raise unprocessable(f"{where} is {shown(value)}: send an object")
        self._value: Mapping[str, Any] = value
        self._where = where

    @classmethod
    def of_body(cls, body: bytes) -> Document:
        """Of a whole body; an empty one is an empty object."""
        return cls(parsed(body) if body.strip() else {})

    @classmethod
    async def read(cls, body: bytes) -> Document:
        """The same; a large one is parsed in a thread, while the loop answers others."""
        if len(body) < LARGE_BYTES:
            return cls.of_body(body)
        return await asyncio.to_thread(cls.of_body, body)

    def has(self, name: str) -> bool:
        """True if the field is there, and not null."""
        return self._value.get(name) is not None

    def any(self, name: str) -> Any:
        """The field as it is; None without it."""
        return self._value.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """A string; without a default it has to be there."""
        value = self._value.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not is_utf8(value):
            raise self.wrong(name, "a string")
        return value

    def optional_text(self, name: str) -> str | None:
        """A string, or None."""
        return self.text(name) if self.has(name) else None

    def integer(self, name: str, default: int | None = None, most: int = INT32_MAX) -> int:
        """A number from 0 on; without a default it has to be there."""
        value = self._value.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise self.wrong(name, f"a number from 0 to {most}")
        return value

    def setting(self, name: str) -> str:
        """A string; numbers and booleans are taken as their text, as Kafka's proxy does."""
        value = self._value.get(name)
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if isinstance(value, int | float) else self.text(name)

    def optional_integer(self, name: str, most: int = INT32_MAX) -> int | None:
        """A number, or None."""
        return self.integer(name, most=most) if self.has(name) else None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """True or false; also as text, which Kafka's proxy takes."""
        value = self._value.get(name)
        if value is None:
            return default
        if value in ("true", "false"):
            return bool(value == "true")
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def objects(self, name: str) -> list[Document]:
        """A list of objects, which has to be there."""
        return [Document(v, f"{name}[{i}]") for i, v in enumerate(self.values(name))]

    def values(self, name: str) -> list[Any]:
        """A list, which has to be there."""
        value = self._value.get(name)
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        return value

    def texts(self, name: str) -> list[str]:
        """A list of strings."""
        values = self.values(name)
        if not all(isinstance(v, str) and is_utf8(v) for v in values):
            raise self.wrong(name, "a list of strings")
        return values

    def object(self, name: str) -> Document:
        """An object, which has to be there."""
        return Document(self._value.get(name), name)

    def wrong(self, name: str, remedy: str) -> GatewayError:
        """The error for a field that is missing or of another kind."""
        value = self._value.get(name)
        found = "is missing" if value is None else f"is {shown(value)}"
        return unprocessable(f"{name} of {self._where} {found}: give {remedy}")

    def __iter__(self) -> Any:
        return iter(self._value)


def is_utf8(text: str) -> bool:
    """False for halves of surrogate pairs, which JSON can write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: Any) -> str:
    """A value in an error, cut."""
    return ascii(value)[:SHOWN_CHARS]


def from_base64(value: Any, where: str) -> bytes:
    """The bytes of a base64 text. Raises GatewayError (422, 42206)."""
    try:
        if not isinstance(value, str):
            raise TypeError
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise unprocessable(
            f"{where} is {shown(value)}: give binary data in base64", 42206
        ) from None


def to_base64(blob: bytes) -> str:
    """Bytes in base64."""
    return base64.b64encode(blob).decode()
