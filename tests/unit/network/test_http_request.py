"""The parser of HTTP request heads, and the status of each refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater_broker.network.http_request import BadRequestError, HttpRequest, parse_head

HOST = b"Host: 127.0.0.1:9292\r\n"


def head(line: bytes, *headers: bytes) -> bytes:
    return line + b"\r\n" + b"".join(headers) + b"\r\n"


@pytest.mark.parametrize(
    ("given_head", "wanted"),
    [
        (head(b"GET / HTTP/1.1", HOST), HttpRequest("/", True)),
        (head(b"GET /status.json?x=1&y HTTP/1.1", HOST), HttpRequest("/status.json", True)),
        (head(b"GET / HTTP/1.1", HOST, b"Connection: Close\r\n"), HttpRequest("/", False)),
        (head(b"GET /metrics HTTP/1.0"), HttpRequest("/metrics", False)),
        (head(b"GET / HTTP/1.0", b"connection: keep-alive\r\n"), HttpRequest("/", True)),
        (head(b"GET / HTTP/1.1", HOST, b"Content-Length: 0\r\n"), HttpRequest("/", True)),
        (head(b"GET / HTTP/1.1", HOST, b"Cookie: \xc3\xa9\r\n"), HttpRequest("/", True)),
    ],
)
def test_taken(given_head: bytes, wanted: HttpRequest) -> None:
    found = parse_head(given_head)
    assert (found.path, found.keep_alive) == (wanted.path, wanted.keep_alive)
    assert found.host == ("127.0.0.1:9292" if HOST in given_head else "")


@pytest.mark.parametrize(
    ("given_head", "status"),
    [
        (head(b"POST / HTTP/1.1", HOST), 405),
        (head(b"HEAD / HTTP/1.1", HOST), 405),
        (head(b"GET / HTTP/2.0", HOST), 505),
        (head(b"GET / HTTP/1.1"), 400),
        (head(b"GET / HTTP/1.1", HOST, HOST), 400),
        (head(b"GET  / HTTP/1.1", HOST), 400),
        (head(b"GET /", HOST), 400),
        (head(b"GET http://elsewhere/ HTTP/1.1", HOST), 400),
        (head(b"GET /\xff HTTP/1.1", HOST), 400),
        (head(b"GET /" + b"a" * 2000 + b" HTTP/1.1", HOST), 414),
        (head(b"GET / HTTP/1.1", HOST, b"Content-Length: 5\r\n"), 413),
        (head(b"GET / HTTP/1.1", HOST, b"Transfer-Encoding: chunked\r\n"), 413),
        (head(b"GET / HTTP/1.1", HOST, b"no colon\r\n"), 400),
        (head(b"GET / HTTP/1.1", HOST, b" folded: x\r\n"), 400),
        (head(b"GET / HTTP/1.1", HOST, *[b"X: y\r\n"] * 70), 431),
    ],
)
def test_refused(given_head: bytes, status: int) -> None:
    with pytest.raises(BadRequestError) as refused:
        parse_head(given_head)
    assert refused.value.status == status


@given(st.binary(max_size=200))
def test_anything_else_is_a_refusal_never_another_error(data: bytes) -> None:
    for text in (data, b"GET / HTTP/1.1\r\n" + HOST + data):
        try:
            request = parse_head(text)
        except BadRequestError:
            continue
        assert request.path.startswith("/")
