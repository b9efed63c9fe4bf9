"""Audit lines of requests that change the cluster: who, from where, what, with which result.

`registry.handles` puts `audited` around every handler that `audit_table` has a row for, so no
handler writes such a line itself, or forgets it. The line is written whatever becomes of the
request: a change is made by then, or may be, also where the reply is an error or nobody waits for
it. Requests without the right have the authorizer's own line (`security.audit_log`).
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.schema import Message
from headwater_broker.api.context import RequestContext, Services
from headwater_broker.security.audit_entry import AskedChange
from headwater_broker.security.delegation_tokens import principal_text

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)

TEXT_MAX = 1_000
"""Characters of one change that are written."""
LINE_MAX = 4_000
"""Characters of changes in one line: a request may have thousands of rows."""
WHOLE = None
"""The key of what is true of the whole request."""
MAY_BE_MADE = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""With these a change may have been made: their lines are never left out. With others nothing was
changed; such lines are limited as denials are, or a client in a loop would fill the disk."""

Change = tuple[Hashable, str]
"""(what its row in the reply is found by, what is to be changed)."""


class Outcome(NamedTuple):
    """A row of a reply: whose it is, its error code, and what was changed where only the reply has
    that."""

    key: Hashable
    code: int
    text: str = ""


class WithCode(Protocol):
    """A reply with an error code of its own."""

    @property
    def error_code(self) -> int: ...


def whole(reply: WithCode) -> Iterator[Outcome]:
    """The outcome of a reply without rows."""
    yield Outcome(WHOLE, reply.error_code)


NO_ROW = (Outcome(WHOLE, ErrorCode.UNKNOWN_SERVER_ERROR),)


@dataclass(frozen=True, slots=True)
class Audit(Generic[Req, Res]):
    """How an API key's requests and replies are put into audit lines."""

    changes: Callable[[RequestContext, Req], Iterable[Change]]
    """Called before the handler; none for a request that changes nothing."""
    outcomes: Callable[[Res], Iterable[Outcome]]


def audited(
    handler: Callable[[RequestContext, Req], Res | Awaitable[Res]], audit: Audit[Req, Res]
) -> Callable[[RequestContext, Req], Res | Awaitable[Res]]:
    """`handler` with audit lines, where the broker has an authorizer."""

    @functools.wraps(handler)
    def run(ctx: RequestContext, request: Req) -> Res | Awaitable[Res]:
        changes = tuple(audit.changes(ctx, request)) if ctx.broker.acls is not None else ()
        if not changes:
            return handler(ctx, request)
        note = _Note(ctx, type(request), changes, audit.outcomes)
        try:
            response = handler(ctx, request)
        except BaseException as error:
            note.failed(error)
            raise
        if isinstance(response, Message):
            note.answered(response)
            return response
        return _awaited(response, note)

    return run


async def _awaited(response: Awaitable[Res], note: _Note[Res]) -> Res:
    try:
        reply = await response
    except BaseException as error:
        note.failed(error)
        raise
    note.answered(reply)
    return reply


class _Note(Generic[Res]):
    """The changes of one request, until their outcome is known."""

    def __init__(
        self,
        ctx: RequestContext,
        request: type[Message],
        changes: tuple[Change, ...],
        outcomes: Callable[[Res], Iterable[Outcome]],
    ) -> None:
        self._ctx = ctx
        self._request = request.__name__.removesuffix("Request")
        self._changes = changes
        self._outcomes = outcomes

    def answered(self, reply: Res) -> None:
        """Write what the reply says, one line per error code."""
        rows: dict[Hashable, list[Outcome]] = defaultdict(list)
        for outcome in self._outcomes(reply):
            rows[outcome.key].append(outcome)
        by_code: dict[int, list[str]] = defaultdict(list)
        for key, text in self._changes:
            for outcome in rows.get(key) or rows.get(WHOLE) or NO_ROW:
                by_code[outcome.code].append(outcome.text or text)
        for code, texts in by_code.items():
            self._write(_name(code), texts, may_be_made=code in MAY_BE_MADE)

    def failed(self, error: BaseException) -> None:
        """Write that the request ended without a reply."""
        texts = [text for _, text in self._changes]
        if isinstance(error, KafkaError):
            self._write(error.code.name, texts, may_be_made=error.code in MAY_BE_MADE)
        else:
            self._write(f"unknown ({type(error).__name__})", texts, may_be_made=True)

    def _write(self, result: str, texts: Iterable[str], *, may_be_made: bool) -> None:
        if not result.endswith("AUTHORIZATION_FAILED"):
            who = principal_text(self._ctx.principal.kind, self._ctx.principal.name)
            head = AskedChange(who, self._ctx.client_host, self._request, result, "")
            for change in in_lines(head, texts):
                write(self._ctx.broker, change, may_be_made=may_be_made)


def write(services: Services, change: AskedChange, *, may_be_made: bool = True) -> None:
    """Write one of `in_lines`, where the broker has an authorizer."""
    if services.acls is None:
        return
    audit = services.acls.authorizer.audit
    if may_be_made:
        audit.changed(change)
    else:
        audit.refused(change)


def in_lines(head: AskedChange, texts: Iterable[str]) -> Iterator[AskedChange]:
    """What one request asked for with the same result, in as few lines as LINE_MAX allows.

    `head` has all but the texts.
    """
    line = ""
    for text in texts:
        shown = text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."
        if line and len(line) + len(shown) > LINE_MAX:
            yield head._replace(detail=line)
            line = ""
        line = f"{line}; {shown}" if line else shown
    if line:
        yield head._replace(detail=line)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
