"""`D/supervisor.sock`: the Unix socket through which commands change a running cluster.

A client sends one JSON line, `{"format": 1, "command": ..., ...}`, and reads JSON lines: events
`progress`, and at the end `done` or `failed`. The server handles one request at a time. Only the
user who runs the cluster may connect. Both ends use the socket's name relative to D: the path of a
Unix socket may have no more than 107 bytes.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError, UsageError

logger = logging.getLogger(__name__)

NAME = "supervisor.sock"
FORMAT = 1
REQUEST_BYTES_MAX = 65_536
REQUEST_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 5.0
BACKLOG = 16

Event = dict[str, Any]
Report = Callable[[Event], None]
Handler = Callable[[dict[str, Any], Report], Event]
"""Carries out a request, reports progress, returns the `done` event. Raises HeadwaterError."""


class SupervisorSocket:
    """The server. `open` changes the working directory for a moment: call it before other threads
    of this process depend on that."""

    def __init__(self, directory: Path, handler: Handler) -> None:
        self._directory = directory
        self._handler = handler
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._serve, name="commands", daemon=True)

    def open(self) -> None:
        """Listen, and serve requests in a thread."""
        with chdir(self._directory):
            with suppress(FileNotFoundError):
                os.unlink(NAME)  # of a supervisor that was killed
            self._socket.bind(NAME)
            os.chmod(NAME, 0o600)
        self._socket.listen(BACKLOG)
        self._thread.start()

    def open_if_possible(self) -> None:
        """`open`; logs a warning where the folder's file system has no sockets."""
        try:
            self.open()
        except OSError as error:
            logger.warning("%s: no socket for `headwater cluster`: %s", NAME, error)

    def close(self) -> None:
        """Accept no more requests. A request in progress is not waited for."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with suppress(OSError):
            (self._directory / NAME).unlink()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        def report(event: Event) -> None:
            with suppress(OSError):  # the client has gone: the change goes on
                connection.sendall(json.dumps(event).encode() + b"\n")

        try:
            connection.settimeout(REQUEST_TIMEOUT_S)
            report(self._handler(_request(connection), report))
        except HeadwaterError as error:
            report(failure(error))
        except Exception as error:
            logger.exception("a request through %s failed", NAME)
            report(failure(HeadwaterError(repr(error))))


def failure(error: HeadwaterError) -> Event:
    """The `failed` event of an error."""
    return {"event": "failed", "error": str(error), "usage": isinstance(error, UsageError)}


def raise_failure(event: Event) -> None:
    """Raise the error of a `failed` event as it was raised in the other process."""
    raise (UsageError if event["usage"] else HeadwaterError)(event["error"])


def _request(connection: socket.socket) -> dict[str, Any]:
    line = b""
    while not line.endswith(b"\n") and len(line) < REQUEST_BYTES_MAX:
        part = connection.recv(REQUEST_BYTES_MAX)
        if not part:
            break
        line += part
    try:
        request = json.loads(line)
    except ValueError as error:
        raise UsageError(f"the request is not one line of JSON: {error}") from error
    found = request.get("format") if isinstance(request, dict) else None
    if found != FORMAT:
        raise UsageError(
            f"the request has format {found!r}, this supervisor reads {FORMAT}: "
            "use the Headwater version that started the cluster"
        )
    return dict(request)


def ask(directory: Path, command: str, **arguments: Any) -> Iterator[Event]:
    """Send a request to the supervisor of `directory`; its events up to and including `done`.

    Raises the HeadwaterError that the supervisor has met.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_TIMEOUT_S)
        try:
            with chdir(directory):
                connection.connect(NAME)
        except OSError as error:
            raise HeadwaterError(
                f"the supervisor of {directory} does not listen on {NAME} ({error.strerror}): stop "
                "the cluster with `headwater down` and start it with `headwater up`"
            ) from error
        request = {"format": FORMAT, "command": command, **arguments}
        connection.sendall(json.dumps(request).encode() + b"\n")
        connection.settimeout(None)
        for line in connection.makefile("rb"):
            event = json.loads(line)
            if event["event"] == "failed":
                raise_failure(event)
            yield event
            if event["event"] == "done":
                return
    raise HeadwaterError(f"the supervisor of {directory} ended before it answered")


class SocketManagerClient:
    """Requests to the manager of a cluster's folder on this host."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def ask(self, command: str, **arguments: Any) -> Iterator[Event]:
        """Send a request; its events up to and including `done`. Raises HeadwaterError."""
        return ask(self._directory, command, **arguments)
