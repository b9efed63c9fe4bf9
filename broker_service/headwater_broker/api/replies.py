"""Responses between handlers and connections: bytes, slices of files, places in the order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from headwater_broker.api.request_timing import RequestTiming


class CloseConnectionError(Exception):
    """Close this connection with one log line that has the reason."""


class FilePart:
    """Bytes [position, position + size) of an open file, to be sent by `os.sendfile`."""

    __slots__ = ("fd", "owned", "position", "size")

    def __init__(self, fd: int, position: int, size: int, *, owned: bool = False) -> None:
        self.fd = fd
        self.position = position
        self.size = size
        self.owned = owned
        """True: the connection closes `fd` when the part is sent, or when it is lost itself."""

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
    """A place in the order of a connection's responses, for one that is not ready.

    `parts` is None until `resolve`. An empty list is no response (Produce with acks=0).
    """

    __slots__ = ("_notify", "on_gone", "parts", "timing")

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self.parts: Sequence[Part] | None = None
        self.on_gone: Callable[[], None] | None = None
        """Called when the connection is lost before the response is ready."""
        self.timing: RequestTiming | None = None
        """Of a request that is timed."""

    def resolve(self, parts: Sequence[Part]) -> None:
        """Set the framed response; it is sent when all earlier ones are."""
        self.parts = parts
        self.on_gone = None
        if self.timing is not None:
            self.timing.ready()
        self._notify()

    def amend(self, change: Callable[[Sequence[Part]], Sequence[Part]]) -> None:
        """Send the result of `change` instead of the response."""
        if self.parts is not None:
            self.parts = change(self.parts)
            return
        notify_connection = self._notify

        def notify() -> None:
            self.parts = change(self.parts or ())
            notify_connection()

        self._notify = notify

    def abandon(self) -> None:
        """The connection is lost: call `on_gone`, once."""
        on_gone, self.on_gone = self.on_gone, None
        if on_gone is not None:
            on_gone()


Answer = bytes | list[Part] | ParkedReply | None
"""A raw handler's result: the framed response, its parts, a place for it, or no response."""
