"""The replies of one connection that are not written yet: bytes and slices of files, in order.

Bytes go through the transport. The queue is congested while the transport's own buffer is not
empty; replies then wait here, and are joined into few writes. A slice is sent by `os.sendfile` on a
second descriptor of the socket (asyncio allows no writer callback on the transport's own), or read
and written like bytes where the transport does not allow that.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from headwater_broker.api.replies import FilePart, Part

QUEUED_BYTES_MAX = 1024 * 1024
"""With more bytes than this queued, slices included, the connection takes no further request."""
JOIN_BYTES_MAX = 1024 * 1024
"""How many bytes one write joins at most."""
SENDFILE_TURN_BYTES = 2 * 1024 * 1024
"""How much of files one connection sends in one turn of the loop: about 0.5 ms."""
READ_BYTES = 64 * 1024
"""How much of a slice is read at once where sendfile is not allowed."""
MSG_MORE = getattr(socket, "MSG_MORE", 0)


class ShortFileError(Exception):
    """A file ends inside a slice: the response cannot be completed."""


class SendQueue:
    """Writes in order. `on_drained` is called when a full queue has room again, `fail` when
    nothing more can be written."""

    allows_sendfile: ClassVar[bool] = True
    """False where bytes must pass through the transport, as with TLS in user space."""

    __slots__ = (
        "_fail",
        "_is_waiting",
        "_loop",
        "_on_drained",
        "_queue",
        "_raw",
        "_transport",
        "_when_idle",
        "closed",
        "congested",
        "queued_bytes",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        on_drained: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._on_drained = on_drained
        self._fail = fail
        self._queue: deque[Part] = deque()
        self._raw: socket.socket | None = None
        self._is_waiting = False
        self._when_idle: Callable[[], None] | None = None
        self.closed = False
        self.congested = False
        self.queued_bytes = 0
        transport.set_write_buffer_limits(high=0)

    @property
    def is_full(self) -> bool:
        """True when no further request should be taken."""
        return self.queued_bytes > QUEUED_BYTES_MAX

    @property
    def is_idle(self) -> bool:
        """True when the kernel has taken everything."""
        return not self._queue and not self.congested

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self.queued_bytes + self._transport.get_write_buffer_size()

    def call_when_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` once everything is with the kernel; a later call replaces it."""
        if self.is_idle:
            callback()
        else:
            self._when_idle = callback

    def push_bytes(self, data: bytes) -> None:
        """Write `data` after everything before it."""
        if self._queue or self.congested or self.closed:
            self.push((data,))
        else:
            self._transport.write(data)

    def push(self, parts: Sequence[Part]) -> None:
        """Write `parts` in order after everything before them."""
        if self.closed:
            release_parts(parts)
            return
        self._queue.extend(parts)
        self.queued_bytes += sum(_size(part) for part in parts)
        self._drain()
        if self._queue:  # a segment may be closed, and its descriptor reused, while a slice waits
            own_parts(parts)

    def pause(self) -> None:
        """The transport's buffer is not empty."""
        self.congested = True

    def resume(self) -> None:
        """The transport's buffer is empty."""
        self.congested = False
        self._drain()

    def close(self) -> None:
        """Drop the queue and release its descriptors."""
        self.closed = True
        release_parts(self._queue)
        self._queue.clear()
        self.queued_bytes = 0
        raw, self._raw = self._raw, None
        if raw is not None:
            self._loop.remove_writer(raw.fileno())
            raw.close()

    def lost(self) -> None:
        """`close`; also let go of the connection, which is gone and holds this."""
        self.close()
        self._on_drained = self._fail = _nothing

    def _drain(self) -> None:
        was_full = self.is_full
        queue = self._queue
        turn_bytes = 0
        while queue and not self.congested and not self._is_waiting and not self.closed:
            part = queue[0]
            if not isinstance(part, FilePart):
                self._write_joined()
                continue
            sent = self._send_slice(part) if self.allows_sendfile else self._write_slice(part)
            turn_bytes += sent
            if turn_bytes >= SENDFILE_TURN_BYTES and queue and not self._is_waiting:
                self._is_waiting = True
                self._loop.call_soon(self._continue)
        if was_full and not self.is_full and not self.closed:
            self._on_drained()
        if self._when_idle is not None and self.is_idle:
            callback, self._when_idle = self._when_idle, None
            callback()

    def _write_joined(self) -> None:
        queue = self._queue
        head: list[bytes] = []
        size = 0
        while queue and size < JOIN_BYTES_MAX:
            part = queue[0]
            if isinstance(part, FilePart):
                break
            head.append(part)
            size += len(part)
            queue.popleft()
        self.queued_bytes -= size
        data = b"".join(head) if len(head) > 1 else head[0]
        if queue and self.allows_sendfile:
            data = self._send_corked(data)
        if data:
            self._transport.write(data)

    def _send_corked(self, data: bytes) -> bytes:
        """Send the bytes before a slice so that they leave together with it; returns the bytes that
        the kernel did not take."""
        try:
            sent = self._socket().send(data, MSG_MORE)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._break(error)
            return b""
        return data[sent:]

    def _send_slice(self, part: FilePart) -> int:
        raw = self._socket()
        count = min(part.size, SENDFILE_TURN_BYTES)
        try:
            sent = os.sendfile(raw.fileno(), part.fd, part.position, count)
        except (BlockingIOError, InterruptedError):
            self._wait_writable(raw)
            return 0
        except OSError as error:
            self._break(error)
            return 0
        if sent == 0:
            self._break(short_file(part))
            return 0
        self._took(part, sent)
        if part.size and sent < count:
            self._wait_writable(raw)
        return sent

    def _write_slice(self, part: FilePart) -> int:
        try:
            data = os.pread(part.fd, min(part.size, READ_BYTES), part.position)
        except OSError as error:
            self._break(error)
            return 0
        if not data:
            self._break(short_file(part))
            return 0
        self._took(part, len(data))
        self._transport.write(data)
        return len(data)

    def _took(self, part: FilePart, sent: int) -> None:
        part.position += sent
        part.size -= sent
        self.queued_bytes -= sent
        if part.size == 0:
            self._queue.popleft()
            release_parts((part,))

    def _break(self, error: Exception) -> None:
        """Nothing more can be written. Close at once: `connection_lost` comes a turn later."""
        self.close()
        self._fail(error)

    def _wait_writable(self, raw: socket.socket) -> None:
        self._is_waiting = True
        self._loop.add_writer(raw.fileno(), self._writable)

    def _writable(self) -> None:
        if self._raw is not None:
            self._loop.remove_writer(self._raw.fileno())
        self._continue()

    def _continue(self) -> None:
        self._is_waiting = False
        if not self.closed:
            self._drain()

    def _socket(self) -> socket.socket:
        raw = self._raw
        if raw is None:
            own = self._transport.get_extra_info("socket")
            raw = self._raw = socket.socket(fileno=os.dup(own.fileno()))
            raw.setblocking(False)
        return raw


def short_file(part: FilePart) -> ShortFileError:
    """The error of a file that ends inside `part`."""
    return ShortFileError(f"file ends at {part.position}, {part.size} bytes short")


def _size(part: Part) -> int:
    return part.size if isinstance(part, FilePart) else len(part)


def own_parts(parts: Iterable[Part]) -> None:
    """Keep the files of `parts` open until they are sent."""
    for part in parts:
        if isinstance(part, FilePart) and part.size:
            part.own()


def release_parts(parts: Iterable[Part]) -> None:
    """Close the descriptors that unsent parts own."""
    for part in parts:
        if isinstance(part, FilePart):
            part.release()


def _nothing(*_: object) -> None:
    """Whom the queue of a lost connection tells."""
