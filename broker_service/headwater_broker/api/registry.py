"""The API keys that this broker serves: each handler registers itself beside its code.

There is one file per key, `kNN_name.py`. `load_handlers` imports every such file, so the directory
listing is the list of features, and ApiVersions (k18) is built from the registered rows. A new
version is one more in `versions` of `headwater.wire.apis.kNN_name`. A general handler takes the
decoded request and returns the response, or an awaitable of it:

    @handles(MetadataRequest, MetadataResponse)
    def metadata(ctx: RequestContext, request: MetadataRequest) -> MetadataResponse: ...

A handler whose key is in `audit_table` gets its audit lines here.
Produce, Fetch and ShareFetch are given the frame in place (`handles_raw`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from headwater.errors import HeadwaterError
from headwater.wire.schema import Message, decoder, encoder
from headwater_broker.api.admin.audit_lines import audited
from headwater_broker.api.admin.audit_table import AUDITED
from headwater_broker.api.context import RequestContext
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.replies import Answer, Part
from headwater_broker.quota.client_quotas import RequestQuota

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)
Handler = Callable[[RequestContext, Req], Res | Awaitable[Res]]
AtOnce = Callable[[Peer, memoryview, int, int, int, int], bytes | None]
"""(connection, view, start and end of the body, version, correlation id) -> the framed response of
a usual request that is decided at once; None: nothing is done, and the handler is called."""
AmendResponse = Callable[[Sequence[Part], int, int], list[Part]]
"""(a framed response, version, throttle_time_ms) -> the response with that time."""

PACKAGE = "headwater_broker.api"


class RawHandler(Protocol):
    """The handler of Produce, Fetch or ShareFetch: it parses the frame itself."""

    def __call__(
        self,
        peer: Peer,
        view: memoryview,
        at: int,
        end: int,
        version: int,
        correlation_id: int,
        quota: RequestQuota | None = None,
        /,
    ) -> Answer:
        """The response to the request whose body is `view[at:end]`, or a place for it.

        Behind `end` the view goes on with whatever came next: nothing of that may be read. `quota`:
        the quotas of the client, while some client has any.
        """
        ...


class RegistrationError(HeadwaterError):
    """Two handlers have the same key, or a handler's versions are not in the schema."""


@dataclass(frozen=True, slots=True)
class ApiRow:
    """One API key as served: versions `low` to `high`, both inclusive.

    `advertised_low` may be below `low`: such versions are advertised but refused (KAFKA-18659:
    older librdkafka would otherwise never compress). `flexible` is the first version with tagged
    fields in headers (KIP-482).
    """

    key: int
    low: int
    high: int
    flexible: int
    advertised_low: int
    request: type[Message]
    response: type[Message]
    handler: Handler[Any, Any] | None
    raw: RawHandler | None
    with_throttle_time: AmendResponse | None = None
    """Of a raw handler: sets throttle_time_ms in its responses."""
    begins_at_once: bool = False
    """The first step of an async handler runs without a task (`runtime.first_step`)."""
    at_once: AtOnce | None = None
    """Answers usual requests without a codec."""

    def response_header_flexible(self, version: int) -> bool:
        """True when the response header carries tagged fields: never for ApiVersions (KIP-511)."""
        return version >= self.flexible and self.key != API_VERSIONS_KEY


API_VERSIONS_KEY = 18

_ROWS: dict[int, ApiRow] = {}


def _add(row: ApiRow) -> None:
    low, high = row.request.versions
    if not low <= row.low <= row.high <= high:
        raise RegistrationError(
            f"API key {row.key}: versions {row.low} to {row.high} are not within {low} to {high}"
        )
    known = _ROWS.get(row.key)
    if known is not None and known.request is not row.request:
        raise RegistrationError(f"API key {row.key} is registered twice")
    _ROWS[row.key] = row


def handles(
    request: type[Req],
    response: type[Res],
    *,
    versions: tuple[int, int] | None = None,
    begins_at_once: bool = False,
    at_once: AtOnce | None = None,
) -> Callable[[Handler[Req, Res]], Handler[Req, Res]]:
    """Register the handler of `request`'s API key; `versions` defaults to those of the schema.

    `begins_at_once`: an async handler that often need not wait runs without a task until it does.
    `at_once`: answers what it can of the hottest requests before that, see `AtOnce`.
    """
    low, high = versions or request.versions

    def register(handler: Handler[Req, Res]) -> Handler[Req, Res]:
        key = request.api_key
        if (audit := AUDITED.get(key)) is not None:
            handler = audited(handler, audit)
        row = ApiRow(
            key, low, high, request.flexible, low, request, response, handler, None,
            begins_at_once=begins_at_once, at_once=at_once,
        )  # fmt: skip
        _add(row)
        return handler

    return register


def handles_raw(
    request: type[Message],
    response: type[Message],
    *,
    versions: tuple[int, int],
    with_throttle_time: AmendResponse,
    advertised_low: int | None = None,
) -> Callable[[RawHandler], RawHandler]:
    """Register a handler that parses the frame itself (Produce, Fetch, ShareFetch)."""
    low, high = versions
    advertised = low if advertised_low is None else advertised_low

    def register(raw: RawHandler) -> RawHandler:
        key = request.api_key
        row = ApiRow(
            key, low, high, request.flexible, advertised, request, response, None, raw,
            with_throttle_time,
        )  # fmt: skip
        _add(row)
        return raw

    return register


def load_handlers() -> dict[int, ApiRow]:
    """Import every `kNN_*` module beside this one; the rows by API key, in key order.

    Codecs are compiled here, not by the first request.
    """
    package = importlib.import_module(PACKAGE)
    for module in pkgutil.iter_modules(package.__path__):
        name = module.name
        if name[:1] == "k" and name[1:3].isdigit():
            importlib.import_module(f"{PACKAGE}.{name}")
    for row in _ROWS.values():
        if row.handler is None:
            continue
        for version in range(row.low, row.high + 1):
            decoder(row.request, version)
            encoder(row.response, version)
    return rows()


def rows() -> dict[int, ApiRow]:
    """The rows registered so far, in key order."""
    return {key: _ROWS[key] for key in sorted(_ROWS)}
