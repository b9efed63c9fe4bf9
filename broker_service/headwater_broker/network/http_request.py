"""Parser of HTTP/1.1 request heads, as much as a read-only page needs. Pure.

Only GET without a body is accepted. Anything else is refused with the status that RFC 9110 names,
so that nothing unexpected reaches a route.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TARGET_BYTES_MAX = 1024
HEAD_BYTES_MAX = 8192
"""Request line and headers together, with the empty line that ends them."""
HEADERS_MAX = 64
HEAD_END = b"\r\n\r\n"

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S+) (HTTP/\d\.\d)")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")


class BadRequestError(Exception):
    """A refused request: the status code of the reply, and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as routes see it."""

    path: str
    """Without the query: routes take none."""
    keep_alive: bool
    host: str = ""
    """The Host header, with its port."""
    authorization: str = field(default="", repr=False)


def parse_head(head: bytes) -> HttpRequest:
    """The request of a head that ends with HEAD_END. Raises BadRequestError."""
    line, *rest = head.removesuffix(HEAD_END).split(b"\r\n")
    path, version = _request_line(line)
    headers = _headers(rest)
    if version == b"HTTP/1.1" and b"host" not in headers:
        raise BadRequestError(400, "a Host header is required")
    if b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0":
        raise BadRequestError(413, "a GET request with a body is not accepted")
    options = {part.strip() for part in headers.get(b"connection", b"").lower().split(b",")}
    keep_alive = b"close" not in options and (version == b"HTTP/1.1" or b"keep-alive" in options)
    host, authorization = headers.get(b"host", b""), headers.get(b"authorization", b"")
    return HttpRequest(path, keep_alive, host.decode("latin-1"), authorization.decode("latin-1"))


def _request_line(line: bytes) -> tuple[str, bytes]:
    matched = _REQUEST_LINE.fullmatch(line)
    if matched is None:
        raise BadRequestError(400, "not an HTTP request line")
    method, target, version = matched.groups()
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadRequestError(505, "only HTTP/1.1 and HTTP/1.0 are supported")
    if method != b"GET":
        raise BadRequestError(405, "only GET is allowed: the page is read-only")
    if len(target) > TARGET_BYTES_MAX:
        raise BadRequestError(414, f"the target is longer than {TARGET_BYTES_MAX} bytes")
    if not target.startswith(b"/") or not target.isascii():
        raise BadRequestError(400, "the target must be a path")
    return target.partition(b"?")[0].decode("ascii"), version


def _headers(lines: list[bytes]) -> dict[bytes, bytes]:
    if len(lines) > HEADERS_MAX:
        raise BadRequestError(431, f"more than {HEADERS_MAX} headers")
    found: dict[bytes, bytes] = {}
    for line in lines:
        matched = _HEADER.fullmatch(line)
        if matched is None:
            raise BadRequestError(400, "a header is malformed")
        name, value = matched[1].lower(), matched[2].strip()
        if name in found and name in (b"host", b"content-length", b"authorization"):
            raise BadRequestError(400, f"header {name.decode()} occurs twice")
        found[name] = value
    return found
