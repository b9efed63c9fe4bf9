"""The value of sasl.jaas.config: one login module with its options (Kafka's `JaasConfig`).

A module is a name here, never code: the four that Kafka's mechanisms need are known, every other
one is refused (CVE-2025-27818, CVE-2025-27819). Errors name no option's value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from headwater.errors import UsageError

SHADED_PREFIX = "kafkashaded."
"""Databricks renames Kafka's classes with it."""
USER_PREFIX = "user_"
"""Options of PlainLoginModule at the broker: `user_alice="her password"`."""
_FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL = "01234567"


class LoginModule(Enum):
    """The login modules by their Java classes."""

    PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
    SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
    OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


@dataclass(frozen=True, slots=True)
class JaasLogin:
    """A login module and its options, which may hold passwords."""

    module: LoginModule
    options: Mapping[str, str] = field(repr=False)

    def users(self) -> dict[str, str]:
        """User name -> password, of a broker's PlainLoginModule."""
        return {
            name.removeprefix(USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(USER_PREFIX) and len(name) > len(USER_PREFIX)
        }


def parse_jaas(text: str, key: str = "sasl.jaas.config") -> JaasLogin:
    """The one login module in `text`. Raises UsageError that names `key`."""
    tokens = list(_tokens(text, key))
    if not tokens:
        raise _refusal(key, "it names no login module")
    module = _module(tokens[0], key)
    if len(tokens) < 2 or tokens[1].text.upper() not in _FLAGS:
        raise _refusal(key, "the login module is not followed by `required`")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and not tokens[at].is_sign(";"):
        name, equals, value = (*tokens[at : at + 3], _NO_TOKEN, _NO_TOKEN)[:3]
        if name.is_any_sign or not equals.is_sign("=") or value.is_any_sign:
            raise _refusal(key, f"option {(at - 2) // 3 + 1} is not written as name=value")
        options[name.text] = value.text
        at += 3
    if at == len(tokens):
        raise _refusal(key, "it does not end with a semicolon")
    if at + 1 < len(tokens):
        raise _refusal(key, "it has more than one login module")
    return JaasLogin(module, options)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_any_sign: bool = False
    """True for `=` and `;` outside of quotes, and where there is no token."""

    def is_sign(self, sign: str) -> bool:
        return self.is_any_sign and self.text == sign


_NO_TOKEN = _Token("", True)


def _refusal(key: str, why: str) -> UsageError:
    return UsageError(
        f'{key}: {why}; write it as `LoginModule required name="value" ... ;`, '
        "with one of Kafka's login modules"
    )


def _module(token: _Token, key: str) -> LoginModule:
    name = token.text.removeprefix(SHADED_PREFIX)
    try:
        return LoginModule(name)
    except ValueError:
        known = ", ".join(m.value.rpartition(".")[2] for m in LoginModule)
        shown = name if name.isascii() and name.replace(".", "").isalnum() else "the first word"
        raise UsageError(
            f"{key}: login module {shown[:100]} is not known; known are {known}"
        ) from None


def _tokens(text: str, key: str) -> Iterator[_Token]:
    """The words as Java's StreamTokenizer finds them with Kafka's settings."""
    at, size = 0, len(text)
    while at < size:
        char = text[at]
        if char <= " ":
            at += 1
        elif char == "/":
            at = _comment_end(text, at)
        elif char in "=;":
            yield _Token(char, True)
            at += 1
        elif char in "\"'":
            word, at = _quoted(text, at, key)
            yield _Token(word)
        else:
            end = at
            while end < size and text[end] > " " and text[end] not in "=;/\"'":
                end += 1
            yield _Token(text[at:end])
            at = end


def _comment_end(text: str, at: int) -> int:
    is_long = text.startswith("/*", at)
    end = text.find("*/" if is_long else "\n", at + 1 + is_long)
    return len(text) if end < 0 else end + (2 if is_long else 1)


def _quoted(text: str, at: int, key: str) -> tuple[str, int]:
    """The quoted word at `at`, and the position behind it."""
    quote, found = text[at], []
    at += 1
    while at < len(text) and text[at] != quote and text[at] not in "\r\n":
        if text[at] == "\\" and at + 1 < len(text):
            char, at = _escaped(text, at + 1)
            found.append(char)
        else:
            found.append(text[at])
            at += 1
    if at == len(text) or text[at] != quote:
        raise _refusal(key, "a quoted value does not end")
    return "".join(found), at + 1


def _escaped(text: str, at: int) -> tuple[str, int]:
    """The character that an escape stands for, and the position behind it."""
    if text[at] not in _OCTAL:
        return _ESCAPES.get(text[at], text[at]), at + 1
    longest = 3 if text[at] <= "3" else 2
    end = at + 1
    while end < len(text) and end < at + longest and text[end] in _OCTAL:
        end += 1
    return chr(int(text[at:end], 8)), end
