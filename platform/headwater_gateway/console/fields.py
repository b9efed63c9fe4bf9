"""The fields of a form, as the values that a plan needs. Pure; bad ones raise UsageError."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from headwater.errors import UsageError

INT64_MAX = 2**63 - 1


class Fields:
    """A form's fields by name."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str) -> str:
        """A field that must be filled in."""
        value = self._given.get(name, "")
        if not value:
            raise UsageError(f"{name} is empty: fill it in")
        return value

    def optional(self, name: str) -> str | None:
        """A field that may be empty."""
        return self._given.get(name) or None

    def flag(self, name: str) -> bool:
        """A box that is ticked or not."""
        return name in self._given

    def number(
        self, name: str, *, least: int = 0, most: int = INT64_MAX, default: int | None = None
    ) -> int:
        """A whole number; `default` when empty."""
        text = self._given.get(name, "").strip()
        if not text and default is not None:
            return default
        digits = text.removeprefix("-")
        is_number = digits.isascii() and digits.isdigit() and len(digits) < 20
        if not is_number or not least <= int(text) <= most:
            shown = str(most) if most < INT64_MAX else "more"
            raise UsageError(f"{name} is {text[:40]!r}: give a whole number, {least} to {shown}")
        return int(text)

    def numbers(self, name: str) -> list[int]:
        """Whole numbers with commas or blanks between them."""
        words = self._given.get(name, "").replace(",", " ").split()
        return [Fields({name: word}).number(name, most=2**31 - 1) for word in words]

    def one_of(self, name: str, *words: str) -> str:
        """One of these words."""
        value = self._given.get(name, "")
        if value not in words:
            raise UsageError(f"{name} is {value[:40]!r}: give one of {', '.join(words)}")
        return value

    def rate(self, name: str) -> float:
        """A number above 0."""
        text = self._given.get(name, "").strip()
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value < 1e18:
            raise UsageError(f"{name} is {text[:40]!r}: give a number above 0")
        return value

    def settings(self, name: str) -> dict[str, str]:
        """Lines of `key=value`."""
        found: dict[str, str] = {}
        for line in self._given.get(name, "").splitlines():
            if not line.strip():
                continue
            key, mark, value = line.partition("=")
            if not mark or not key.strip():
                raise UsageError(f"{name}: {line[:60]!r} is no setting: write key=value")
            found[key.strip()] = value.strip()
        return found

    def moment_ms(self, name: str) -> int:
        """A time: ms since 1970, or as ISO writes it (UTC unless it names its zone)."""
        text = self.text(name).strip()
        if text.isascii() and text.isdigit():
            return self.number(name)
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(
                f"{name} is {text[:40]!r}: write 2026-11-25T18:20:00Z, or ms since 1970"
            ) from None
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
