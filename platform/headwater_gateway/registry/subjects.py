"""Subjects and their contexts, as Confluent's `QualifiedSubject`: `:.context:subject`."""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT_CONTEXT = "."
WILDCARD_PREFIX = ":*:"
"""Of `subjectPrefix`: subjects of every context."""
GLOBAL = ""
"""In place of a subject: the registry's own config and mode."""
TOPIC_ENDINGS = ("-key", "-value")

RESERVED = ("__GLOBAL", "__EMPTY")
"""Confluent's names for the registry's own config, and for none: no subject may have them."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class QualifiedSubject:
    """`context` begins with a dot; the default one is the dot alone."""

    context: str
    subject: str

    @property
    def prefix(self) -> str:
        """The context as a prefix of subjects: empty for the default one."""
        return context_prefix(self.context)

    def __str__(self) -> str:
        return self.prefix + self.subject


def context_prefix(context: str) -> str:
    """`:.context:`, or nothing for the default context."""
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def parse_subject(text: str) -> QualifiedSubject:
    """The context and the subject in it."""
    if not text.startswith(":."):
        return QualifiedSubject(DEFAULT_CONTEXT, text)
    context, _, subject = text[1:].partition(":")
    return QualifiedSubject(context, subject)


def normal_subject(text: str) -> str:
    """The same subject without a named default context: `:.:s` is `s`, `:.:` is the global one."""
    return str(parse_subject(text))


def prefix_of(subject: str) -> str:
    """The context prefix of a subject: ids are counted per context."""
    return parse_subject(subject).prefix


def beside(parent: str, subject: str) -> str:
    """A subject that a schema of `parent` refers to: in the same context if it names none."""
    if parse_subject(subject).context != DEFAULT_CONTEXT:
        return subject
    return prefix_of(parent) + normal_subject(subject)


def is_valid_subject(subject: str, *, may_be_context: bool = False) -> bool:
    """False for an empty one, a reserved name, and control characters. Configs may be of a
    context."""
    name = parse_subject(subject).subject
    if _CONTROL.search(subject) or name in RESERVED:
        return False
    return may_be_context or name != ""


def normal_context(text: str) -> str:
    """A context with its dot and without colons; the default one for an empty text."""
    name = text.strip(":")
    return name if name.startswith(DEFAULT_CONTEXT) else DEFAULT_CONTEXT + name


def topic_of(subject: str) -> str:
    """The topic whose rights hold for the subject: the subject without `-key` or `-value`."""
    name = parse_subject(subject).subject
    for ending in TOPIC_ENDINGS:
        if name.endswith(ending) and name != ending:
            return name.removesuffix(ending)
    return name
