"""The driver's TCP server for the reports of broker tasks; one thread per task."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from headwater.errors import HeadwaterError, UsageError
from headwater_spark.cluster.link_channel import Channel, PlainChannel, TlsChannel, shut

logger = logging.getLogger(__name__)

Report = dict[str, Any]
WELCOME = "welcome"
"""The driver's answer to a task's first report: what the broker needs to run."""
REFUSE = "refuse"
"""The driver's answer to a task whose entry token is used up."""
STOP = "stop"
RESTART = "restart"
LOG_TAIL = "log-tail"
RENEW = "renew"
INSTALL = "install"
REPLY = "reply"
ENTRY_TIMEOUT_S = 10.0
"""For the handshake and the first report, which shows the entry token."""
ENTRY_BYTES_MAX = 1 << 16
ENTERING_MAX = 64
"""Connections that have not shown a token: more are closed at once. A task tries again."""
SILENCE_S = 120.0
"""The default of `spark.network.timeout`, after which Spark gives an executor up."""
PROBES = 4


class TaskLink:
    """The driver's connection to one broker task."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._asked: dict[int, Future[Report]] = {}
        self._last = 0
        self._is_closed = False

    def welcome(self, **facts: Any) -> None:
        """Give the task what its broker needs; does nothing if the task is gone."""
        self._tell({"command": WELCOME, **facts})

    def refuse(self) -> None:
        """Tell the task that its entry token is used up; does nothing if the task is gone."""
        self._tell({"command": REFUSE})

    def ask_to_stop(self) -> None:
        """Ask the task to drain its broker and return; does nothing if the task is gone."""
        self._tell({"command": STOP})

    def _tell(self, command: dict[str, Any]) -> None:
        try:
            self._send(command)
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
        self._channel.send(json.dumps(command).encode() + b"\n")

    def close(self) -> None:
        """Close the connection; the task then stops by itself."""
        with self._lock:
            self._is_closed = True
            asked, self._asked = list(self._asked.values()), {}
        for reply in asked:
            reply.set_exception(HeadwaterError("the broker's Spark task has ended"))
        self._channel.close()


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
        admits: Callable[[object, object], bool],
        on_report: Callable[[Report, TaskLink], None],
        on_lost: Callable[[int, TaskLink], None],
        *,
        port: int = 0,
        silence_s: float = SILENCE_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`admits` says of a broker's id and an entry token whether the task gets in. With `tls`
        tasks must connect by TLS."""
        self._admits = admits
        self._silence_s = silence_s
        self._tls = tls
        self._on_report = on_report
        self._on_lost = on_lost
        self._server = socket.create_server((host, port))
        self.port: int = self._server.getsockname()[1]
        self._connections: set[socket.socket] = set()
        self._entering = threading.BoundedSemaphore(ENTERING_MAX)
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="headwater-link", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and close every task's connection."""
        with self._lock:
            self._closed = True
            connections = list(self._connections)
        # Closing alone would not wake the accepting thread.
        try:
            self._server.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # no connection was waiting
        self._server.close()
        for connection in connections:
            shut(connection)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return  # closed
            if not self._entering.acquire(blocking=False):
                connection.close()
                continue
            end_when_silent(connection, self._silence_s)
            with self._lock:
                if self._closed:
                    connection.close()
                    return
                self._connections.add(connection)
            threading.Thread(
                target=self._serve, args=(connection,), name="headwater-task", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            entered = self._enter(connection)
        except OSError as e:
            logger.info("a connection to the broker tasks' port: %s", e)
            entered = None
        finally:
            self._entering.release()
        if entered is not None:
            self._follow(*entered)
        with self._lock:
            self._connections.discard(connection)
        shut(connection)

    def _enter(self, connection: socket.socket) -> tuple[Channel, Report] | None:
        """The channel and first report of a task; None for one that does not get in."""
        connection.settimeout(ENTRY_TIMEOUT_S)
        channel = self._channel(connection)
        report = _parsed(channel.receive(ENTRY_BYTES_MAX))
        if report is None or not self._admits(report.get("broker_id"), report.pop("token", None)):
            logger.warning("a connection to the broker tasks' port has no valid token: closed")
            TaskLink(channel).refuse()
            return None
        connection.settimeout(None)
        return channel, report

    def _channel(self, connection: socket.socket) -> Channel:
        if self._tls is None:
            return PlainChannel(connection)
        return TlsChannel(connection, self._tls, driver=True)

    def _follow(self, channel: Channel, first: Report) -> None:
        """Hand on the reports of a task that is in, until its connection ends."""
        broker_id, link = int(first["broker_id"]), TaskLink(channel)
        report: Report | None = first
        try:
            while report is not None:
                report["broker_id"] = broker_id
                if report.get("event") == REPLY:
                    link.on_reply(report)
                else:
                    self._on_report(report, link)
                report = _parsed(channel.receive())
        except OSError as e:
            logger.info("link to broker %d: %s", broker_id, e)
        finally:
            link.close()
            self._on_lost(broker_id, link)


def _parsed(line: bytes) -> Report | None:
    """A task's report; None for the end, and for a line that is none, which ends the connection."""
    try:
        report = json.loads(line)
    except ValueError:
        return None
    return report if isinstance(report, dict) else None
