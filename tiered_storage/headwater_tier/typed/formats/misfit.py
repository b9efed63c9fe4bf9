"""The error that ends the decoding of one record, never of its chunk (Kafka's
SerializationException)."""

from __future__ import annotations

from headwater_tier.typed.quarantine_reasons import DETAIL_BYTES_MAX, Misfit, Reason

SHOWN_CHARS = 80


class NotFittingError(Exception):
    """A value that does not fit. Decoders catch it for each row; it never leaves them."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail

    def at_row(self, row: int) -> Misfit:
        """The misfit to report."""
        data = self.detail.encode("utf-8", "backslashreplace")[:DETAIL_BYTES_MAX]
        return Misfit(row, self.reason, data.decode("utf-8", "ignore"))


def malformed(detail: str) -> NotFittingError:
    """The bytes are not of the declared format."""
    return NotFittingError(Reason.MALFORMED, detail)


def does_not_fit(path: str, value: object, kind: object) -> NotFittingError:
    """A value of another type than its column's."""
    return NotFittingError(
        Reason.DOES_NOT_FIT, f"{path}: {shown(value)} does not fit the column's type {kind}"
    )


def out_of_range(path: str, value: object, kind: object) -> NotFittingError:
    """A number that its column cannot hold exactly."""
    return NotFittingError(
        Reason.OUT_OF_RANGE, f"{path}: {kind} cannot hold {shown(value)} exactly"
    )


def shown(value: object) -> str:
    """A value for an error, cut."""
    if isinstance(value, dict):
        return f"an object of {len(value)} keys"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}... ({len(text)} chars)"


class UnsupportedSchemaError(Exception):
    """A schema that no columns can have, or that does not parse. Names place and remedy.

    An inline one becomes a DeclarationError; rows of a registered one do not fit.
    """
