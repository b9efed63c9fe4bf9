"""`/contexts/C/REST` is `/REST` in context C, as Confluent's `ContextFilter` has it. Pure."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, unquote, urlencode

from headwater_gateway.registry.subjects import context_prefix, normal_context

_SUBJECT_AFTER = {"subjects": 1, "config": 1, "mode": 1, "compatibility": 2}


def without_contexts(path: str, query: str) -> tuple[str, str]:
    """The escaped path and the query, with the context in the subject or its parameter."""
    parts = path.split("/")
    if len(parts) < 4 or parts[1] != "contexts" or not parts[3]:
        return path, query
    prefix = context_prefix(normal_context(unquote(parts[2])))
    rest = parts[3:]
    if not prefix:
        return "/" + "/".join(rest), query
    at = _SUBJECT_AFTER.get(rest[0])
    if at is not None and len(rest) > at and rest[at]:
        rest[at] = quote(_qualified(prefix, unquote(rest[at])), safe=":")
    elif rest[0] in ("config", "mode"):
        rest.append(quote(prefix, safe=":"))
    elif rest[0] == "subjects":
        query = _with(query, "subjectPrefix", prefix)
    else:
        query = _with(query, "subject", prefix)
    return "/" + "/".join(rest), query


def _with(query: str, name: str, prefix: str) -> str:
    """The query with the context before the value of a parameter."""
    pairs = parse_qsl(query, keep_blank_values=True)
    given = next((value for key, value in pairs if key == name), "")
    return urlencode([*((k, v) for k, v in pairs if k != name), (name, _qualified(prefix, given))])


def _qualified(prefix: str, subject: str) -> str:
    return subject if subject.startswith(":.") else prefix + subject.removeprefix(":*:")
