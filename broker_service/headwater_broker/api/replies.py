"""Replies between handlers and the server: bytes, slices of files, and places kept in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from headwater_broker.api.request_meters import RequestTiming


class CloseConnectionError(Exception):
    """Close this connection, telling why in one log line; nothing else is touched."""


class FilePart:
    """Bytes [position, position + size) of an open file, to be sent by `os.sendfile`."""

    __slots__ = ("fd", "owned", "position", "size")

    def __init__(self, fd: int, position: int, size: int, *, owned: bool = False) -> None:
        self.fd = fd
        self.position = position
        self.size = size
        self.owned = owned
        """True: the server closes `fd` once it is sent or the connection is gone."""

    def own(self) -> FilePart:
        """Duplicate the descriptor: the file may be closed, and its number reused, before this
        part is sent.
        """
        if not self.owned:
            self.fd = os.dup(self.fd)
            self.owned = True
        return self

    def release(self) -> None:
        """Close an owned descriptor."""
        if self.owned:
            os.close(self.fd)
            self.owned = False


Part = bytes | FilePart


class ParkedReply:
    """A reply that is not ready: its place among the connection's replies is kept.

    `parts` is None until `resolve`; an empty list is no reply at all (Produce with acks=0).
    """

    __slots__ = ("_notify", "on_gone", "parts", "timing")

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self.parts: Sequence[Part] | None = None
        self.on_gone: Callable[[], None] | None = None
        """Called when the connection is lost and nobody waits for the reply any more."""
        self.timing: RequestTiming | None = None
        """Of a request that is timed."""

    def resolve(self, parts: Sequence[Part]) -> None:
        """Give the framed reply; the server sends it when every earlier one is out."""
        self.parts = parts
        self.on_gone = None
        if self.timing is not None:
            self.timing.ready()
        self._notify()

    def amend(self, change: Callable[[Sequence[Part]], Sequence[Part]]) -> None:
        """Send what `change` makes of the reply, when it is there."""
        if self.parts is not None:
            self.parts = change(self.parts)
            return
        told = self._notify

        def notify() -> None:
            self.parts = change(self.parts or ())
            told()

        self._notify = notify

    def abandon(self) -> None:
        """The connection is lost: whoever would have answered is told, once."""
        told, self.on_gone = self.on_gone, None
        if told is not None:
            told()


Answer = bytes | list[Part] | ParkedReply | None
"""A raw handler's result: the framed reply, its parts, a kept place, or no reply."""
