"""Concatenated JSON: objects one after the other, cut apart as the bytes come. Pure."""

from __future__ import annotations

import re
from enum import Enum

from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest.documents import bad_request

_MARKS = re.compile(rb'["{}\[\]]')
_STRING_MARKS = re.compile(rb'["\\]')
_BETWEEN = b" \t\r\n"


class _Where(Enum):
    BETWEEN = 1
    OBJECT = 2
    STRING = 3
    ESCAPE = 4


class Splitter:
    """Takes pieces of a stream, gives whole objects."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: of one object."""
        self._bytes_max = bytes_max
        self._rest = bytearray()
        self._at = 0
        """What is before it has been looked at."""
        self._depth = 0
        self._where = _Where.BETWEEN
        self._fault: GatewayError | None = None

    @property
    def held_bytes(self) -> int:
        """Of an object that has begun."""
        return len(self._rest)

    def end(self) -> None:
        """The stream is over. Raises GatewayError for what is left."""
        self._raise_fault()
        if self._where is not _Where.BETWEEN:
            raise bad_request("the last object does not end")

    def feed(self, piece: bytes) -> list[bytes]:
        """The objects that end in this piece. Raises GatewayError: 400 for what is no object, 413
        for a longer one; if objects came before it in this piece, the next call raises it."""
        self._raise_fault()
        self._rest += piece
        found = []
        try:
            while (end := self._next_end()) is not None:
                found.append(bytes(self._rest[:end]))
                del self._rest[:end]
                self._at = 0
            if len(self._rest) > self._bytes_max:
                raise GatewayError(413, 413, f"a record is longer than {self._bytes_max} bytes")
        except GatewayError as error:
            self._fault = error
        if not found:
            self._raise_fault()
        return found

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _next_end(self) -> int | None:
        while self._at < len(self._rest):
            if self._where is _Where.BETWEEN:
                self._begin()
            elif self._where is _Where.ESCAPE:
                self._at += 1
                self._where = _Where.STRING
            elif self._where is _Where.STRING:
                self._in_string()
            elif self._in_object():
                return self._at
        return None

    def _begin(self) -> None:
        kept = self._rest.lstrip(_BETWEEN)
        self._rest, self._at = kept, 0
        if not kept:
            return
        if kept[0] != ord("{"):
            raise bad_request(f"a record begins with {bytes(kept[:20])!a}: send JSON objects")
        self._where, self._depth, self._at = _Where.OBJECT, 1, 1

    def _in_string(self) -> None:
        mark = _STRING_MARKS.search(self._rest, self._at)
        if mark is None:
            self._at = len(self._rest)
            return
        self._at = mark.end()
        self._where = _Where.OBJECT if mark[0] == b'"' else _Where.ESCAPE

    def _in_object(self) -> bool:
        """Go on to the next mark; True if it ends the whole object."""
        mark = _MARKS.search(self._rest, self._at)
        if mark is None:
            self._at = len(self._rest)
            return False
        self._at = mark.end()
        if mark[0] == b'"':
            self._where = _Where.STRING
        elif mark[0] in b"{[":
            self._depth += 1
        else:
            self._depth -= 1
            if not self._depth:
                self._where = _Where.BETWEEN
                return True
        return False
