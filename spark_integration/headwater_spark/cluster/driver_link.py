"""The driver's TCP server for the reports of broker tasks; one thread per task."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from headwater.errors import HeadwaterError, UsageError

logger = logging.getLogger(__name__)

Report = dict[str, Any]
STOP = "stop"
RESTART = "restart"
LOG_TAIL = "log-tail"
REPLY = "reply"
LINE_BYTES_MAX = 1 << 22
"""A reply has a part of a log."""
SILENCE_S = 120.0
"""The default of `spark.network.timeout`, after which Spark gives an executor up."""
PROBES = 4


class TaskLink:
    """The driver's connection to one broker task."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._asked: dict[int, Future[Report]] = {}
        self._last = 0
        self._is_closed = False

    def ask_to_stop(self) -> None:
        """Ask the task to drain its broker and return; does nothing if the task is gone."""
        try:
            self._send({"command": STOP})
        except OSError:
            return  # the task has ended

    def ask(self, command: str, timeout_s: float, **arguments: Any) -> Report:
        """Send a command to the task; its reply. Raises HeadwaterError."""
        reply: Future[Report] = Future()
        with self._lock:
            self._last += 1
            number = self._last
            self._asked[number] = reply
            is_closed = self._is_closed
        try:
            if is_closed:
                raise HeadwaterError("the broker's Spark task has ended")
            self._send({"command": command, "request": number, **arguments})
            found = reply.result(timeout_s)
        except (OSError, TimeoutError) as error:
            raise HeadwaterError(f"the broker's Spark task does not answer: {error!r}") from error
        finally:
            with self._lock:
                self._asked.pop(number, None)
        if found.get("error"):
            raise UsageError(str(found["error"]))
        return found

    def on_reply(self, report: Report) -> None:
        """The reply to a command has come."""
        with self._lock:
            reply = self._asked.pop(int(report["request"]), None)
        if reply is not None:
            reply.set_result(report)

    def _send(self, command: dict[str, Any]) -> None:
        self._connection.sendall(json.dumps(command).encode() + b"\n")

    def close(self) -> None:
        """Close the connection; the task then stops by itself."""
        with self._lock:
            self._is_closed = True
            asked, self._asked = list(self._asked.values()), {}
        for reply in asked:
            reply.set_exception(HeadwaterError("the broker's Spark task has ended"))
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the task closed it first
        self._connection.close()


def end_when_silent(connection: socket.socket, silence_s: float) -> None:
    """Have the kernel probe the peer, and end the connection when the peer is silent for so long.

    A machine that is dead or cut off from the network sends no end of file.
    """
    every_s = max(1, round(silence_s / (PROBES + 1)))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, every_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    # The same bound for data that is not acknowledged: meanwhile the kernel sends no probes.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silence_s * 1_000))


class DriverLink:
    """Accepts tasks and hands their reports on. Callbacks run on the connections' threads."""

    def __init__(
        self,
        host: str,
        token: str,
        on_report: Callable[[Report, TaskLink], None],
        on_lost: Callable[[int, TaskLink], None],
        *,
        port: int = 0,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._token = token
        self._silence_s = silence_s
        self._on_report = on_report
        self._on_lost = on_lost
        self._server = socket.create_server((host, port))
        self.port: int = self._server.getsockname()[1]
        self._links: set[TaskLink] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="headwater-link", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and close every task's connection."""
        with self._lock:
            self._closed = True
            links = list(self._links)
        # Closing alone would not wake the accepting thread.
        try:
            self._server.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # no connection was waiting
        self._server.close()
        for link in links:
            link.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return  # closed
            end_when_silent(connection, self._silence_s)
            link = TaskLink(connection)
            with self._lock:
                if self._closed:
                    link.close()
                    return
                self._links.add(link)
            threading.Thread(
                target=self._serve, args=(connection, link), name="headwater-task", daemon=True
            ).start()

    def _serve(self, connection: socket.socket, link: TaskLink) -> None:
        broker_id: int | None = None
        try:
            with connection.makefile("rb") as lines:
                while line := lines.readline(LINE_BYTES_MAX):
                    report = self._parsed(line)
                    if report is None:
                        break
                    broker_id = int(report["broker_id"])
                    if report.get("event") == REPLY:
                        link.on_reply(report)
                    else:
                        self._on_report(report, link)
        except OSError as e:
            logger.info("link to broker %s: %s", broker_id, e)
        finally:
            with self._lock:
                self._links.discard(link)
            link.close()
            if broker_id is not None:
                self._on_lost(broker_id, link)

    def _parsed(self, line: bytes) -> Report | None:
        """A task's report; None for a line without the token, which ends the connection."""
        try:
            report = json.loads(line)
        except ValueError:
            return None
        if not isinstance(report, dict) or report.get("token") != self._token:
            logger.warning("closed a connection to the broker tasks' port that has no valid token")
            return None
        return report
