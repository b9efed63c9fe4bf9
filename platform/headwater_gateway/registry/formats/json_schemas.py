"""JSON Schema, by `jsonschema` (is it one?) and `jsonsubschema` (is one within the other?).

The only module that imports them. A schema reads what another one wrote if it accepts every
document that the other one accepts. What the check cannot decide is incompatible, as the message
says.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import jsonschema.exceptions
import jsonschema.validators
import jsonsubschema

from headwater_gateway.registry.formats.json_dialect import (
    as_draft_4,
    is_self_contained,
    may_take_long,
    undecided_in,
    without_equal,
)
from headwater_gateway.registry.formats.json_references import bundled
from headwater_gateway.registry.formats.port import (
    NamedText,
    ParsedSchema,
    Problem,
    SchemaSyntaxError,
)

UNDECIDED = "UNDECIDED"
SHOWN_MAX = 3
CHECK_S = 10
_DEFAULT_VALIDATOR = jsonschema.validators.Draft7Validator


class JsonFormat:
    """JSON Schema."""

    def parse(self, text: str, references: Sequence[NamedText]) -> ParsedSchema:
        """Raises SchemaSyntaxError."""
        document = _document(text, "the schema")
        others = {r.name: _document(r.text, f"reference {r.name}") for r in references}
        validator = jsonschema.validators.validator_for(document, default=_DEFAULT_VALIDATOR)
        try:
            validator.check_schema(document)
        except jsonschema.exceptions.SchemaError as error:
            at = "/".join(str(part) for part in error.absolute_path)
            raise SchemaSyntaxError(f"at #/{at}: {error.message}") from error
        return JsonSchema(document, bundled(document, others))


class JsonSchema:
    """A parsed JSON Schema."""

    def __init__(self, document: Any, bundle: Any) -> None:
        """`bundle`: the document with those that it refers to."""
        self._document = document
        self._bundle = bundle
        self._text = _written(document, sort=False)

    @property
    def text(self) -> str:
        """The canonical text: no white space, the order of the keys kept."""
        return self._text

    def normalized(self) -> ParsedSchema:
        """The keys sorted."""
        return JsonSchema(json.loads(_written(self._document, sort=True)), self._bundle)

    def is_same(self, other: ParsedSchema) -> bool:
        """True for equal documents, whatever the order of their keys."""
        return isinstance(other, JsonSchema) and other._document == self._document

    def problems_reading(self, writer: ParsedSchema) -> list[Problem]:
        """Why some document of the writer may not be one of this schema."""
        assert isinstance(writer, JsonSchema)
        if writer._bundle == self._bundle:
            return []
        reads, wrote = without_equal(self._bundle, writer._bundle)
        undecided = undecided_in(reads)
        if undecided:
            return [_undecided(f"{', '.join(undecided[:SHOWN_MAX])} in the {{reader}} schema")]
        within = _is_within(wrote, reads)
        if isinstance(within, str):
            return [_undecided(within)]
        return [] if within else list(_narrowed(reads, wrote, "#"))

    def formatted(self, form: str) -> str:
        """No form is known: the text itself."""
        return self._text


def _document(text: str, what: str) -> Any:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaSyntaxError(f"{what} is not JSON: {error}") from error
    if not isinstance(document, dict | bool):
        raise SchemaSyntaxError(f"{what} is neither an object nor a boolean")
    return document


def _written(document: Any, *, sort: bool) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, sort_keys=sort)


def _undecided(what: str) -> Problem:
    text = f"It is not decidable here whether the {{reader}} schema accepts it all: {what}"
    return Problem(UNDECIDED, text.replace('"', "'"))


def _is_within(wrote: Any, reads: Any) -> bool | str:
    """Whether each document of one schema is one of the other; a text: why that is not known."""
    small = as_draft_4(wrote, keep_undecided=False)
    large = as_draft_4(reads, keep_undecided=True)
    if undecided_in(small):  # below a `not`
        return "the {writer} schema has such keywords below `not`"
    if not (is_self_contained(small) and is_self_contained(large)):
        return "its data hold a `$ref`"
    if may_take_long(small) or may_take_long(large):
        return _checked_apart(small, large)
    return _checked(small, large)


def _checked(small: Any, large: Any) -> bool | str:
    try:
        return bool(jsonsubschema.isSubschema(small, large))
    except Exception as error:  # noqa: BLE001 - the library has no base class of its errors
        return f"{type(error).__name__}: {str(error)[:200]}"


def _checked_apart(small: Any, large: Any) -> bool | str:
    """In a process that can be ended: automata of patterns, and choices, may grow without bound."""
    command = [sys.executable, "-m", "headwater_gateway.registry.formats.json_schemas"]
    text = json.dumps([small, large])
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=CHECK_S, check=True
        )
        answer: bool | str = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return f"the check takes more than {CHECK_S} s"
    except (subprocess.CalledProcessError, ValueError) as error:
        return f"the check ended: {error}"
    return answer


def _narrowed(reads: Any, wrote: Any, path: str) -> Iterator[Problem]:
    """The places that keep one schema from accepting all of the other, as far as they are plain."""
    found = False
    if isinstance(reads, dict) and isinstance(wrote, dict):
        for problem in (
            *_of_properties(reads, wrote, path),
            *_of_required(reads, wrote, path),
            *_of_items(reads, wrote, path),
        ):
            found = True
            yield problem
    if not found:
        yield Problem(
            "TYPE_NARROWED",
            f"The {{reader}} schema at path '{path}' accepts fewer documents than the {{writer}} "
            "schema",
        )


def _of_properties(reads: dict[str, Any], wrote: dict[str, Any], path: str) -> Iterator[Problem]:
    mine, theirs = reads.get("properties") or {}, wrote.get("properties") or {}
    if not (isinstance(mine, dict) and isinstance(theirs, dict)):
        return
    for name in mine:
        at = f"{path}/properties/{name}"
        if name in theirs:
            if _is_within(theirs[name], mine[name]) is False:
                yield from _narrowed(mine[name], theirs[name], at)
        elif wrote.get("additionalProperties", True) is not False and mine[name] not in ({}, True):
            yield Problem(
                "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
                f"The {{reader}} schema has a property at path '{at}' that is missing in the "
                "{writer} schema, whose open content model may hold anything there",
            )
    if reads.get("additionalProperties", True) is False:
        for name in theirs:
            if name not in mine:
                yield Problem(
                    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
                    f"The {{reader}} schema has a closed content model and is missing the property "
                    f"at path '{path}/properties/{name}' of the {{writer}} schema",
                )


def _of_required(reads: dict[str, Any], wrote: dict[str, Any], path: str) -> Iterator[Problem]:
    missing = [n for n in reads.get("required") or () if n not in (wrote.get("required") or ())]
    for name in missing:
        yield Problem(
            "REQUIRED_ATTRIBUTE_ADDED",
            f"The {{reader}} schema requires the property at path '{path}/properties/{name}', the "
            "{writer} schema does not",
        )


def _of_items(reads: dict[str, Any], wrote: dict[str, Any], path: str) -> Iterator[Problem]:
    mine, theirs = reads.get("items"), wrote.get("items")
    if isinstance(mine, dict) and isinstance(theirs, dict) and _is_within(theirs, mine) is False:
        yield from _narrowed(mine, theirs, f"{path}/items")


if __name__ == "__main__":
    print(json.dumps(_checked(*json.load(sys.stdin))))
