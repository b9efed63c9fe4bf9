"""Tells operators of an alarm: through `notify(alarm)`, retried, once for each opening.

A notifier is any function `notify(alarm)` that raises when it could not deliver; `load` finds one
by its entry point ("module:function"), as a telephone or SMS service would be plugged in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from queue import SimpleQueue

from city.fields import ALARMS, Alarm
from headwater import Producer
from headwater.errors import UsageError

GROUP = "headwater.city.notifiers"
ATTEMPTS = 5
BACKOFF_S = 0.2
DELIVERY_MS = 10_000

Notify = Callable[[Alarm], None]


def load(entry_point: str) -> Notify:
    """The function of an entry point, as "sms_service:notify". Raises UsageError."""
    module, _, name = entry_point.partition(":")
    if not module or not name:
        raise UsageError(f"notifier {entry_point!r}: write it as MODULE:FUNCTION")
    try:
        found = EntryPoint("notify", entry_point, GROUP).load()
    except (ImportError, AttributeError) as e:
        raise UsageError(f"notifier {entry_point!r} cannot be loaded: {e}") from e
    if not callable(found):
        raise UsageError(f"notifier {entry_point!r} is no function")
    return found  # type: ignore[no-any-return]


class FileNotifier:
    """Appends alarms to a file, a JSON object a line: the demo's own notifier."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, alarm: Alarm) -> None:
        """Deliver an alarm."""
        with self._path.open("ab") as file:
            file.write(alarm.to_wire() + b"\n")


class TopicNotifier:
    """Sends alarms to their topic, for the live pages."""

    def __init__(self, servers: Callable[[], str]) -> None:
        """`servers`: of the site that works now."""
        self._servers = servers

    def __call__(self, alarm: Alarm) -> None:
        """Deliver an alarm."""
        with Producer(self._servers(), delivery_timeout_ms=DELIVERY_MS) as producer:
            producer.send(ALARMS, alarm.to_wire(), key=alarm.key).result()


@dataclass
class Delivery:
    """What became of one notification of one notifier."""

    alarm: Alarm
    attempts: int = 0
    """Of all notifiers."""
    is_delivered: bool = False
    """True when every notifier has taken it."""
    errors: list[str] = field(default_factory=list)
    """The last error of each notifier that did not take it."""


@dataclass
class Notifier:
    """Opens and closes alarms; tells each opening to every notifier once, on a thread of its own.

    A flow may open an alarm as often as it sees the cause: only the first call after a closing
    is sent.
    """

    notifiers: Sequence[Notify]
    backoff_s: float = BACKOFF_S
    deliveries: list[Delivery] = field(default_factory=list)
    _open: dict[tuple[str, str], Alarm] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _queue: SimpleQueue[Delivery | None] = field(default_factory=SimpleQueue)
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that delivers."""
        self._thread = threading.Thread(target=self._run, name="city-notifier")
        self._thread.start()

    def open(self, alarm: Alarm) -> bool:
        """Open an alarm; True if it was closed before, and is sent now."""
        with self._lock:
            if (alarm.flow, alarm.key) in self._open:
                return False
            self._open[alarm.flow, alarm.key] = alarm
            self._tell(alarm)
        return True

    def close(self, flow: str, key: str) -> bool:
        """Close an alarm; False if it was not open. Operators get no message of a closing."""
        with self._lock:
            return self._open.pop((flow, key), None) is not None

    def openings(self, flow: str) -> list[Alarm]:
        """All alarms of a flow that were opened, in order, open or closed since."""
        with self._lock:
            return [d.alarm for d in self.deliveries if d.alarm.flow == flow]

    def stop(self) -> None:
        """Deliver what is queued, each once more if need be, and end the thread."""
        self._closing.set()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join()

    def _tell(self, alarm: Alarm) -> None:
        delivery = Delivery(replace(alarm, is_open=True))
        self.deliveries.append(delivery)
        self._queue.put(delivery)

    def _run(self) -> None:
        while (delivery := self._queue.get()) is not None:
            for notify in self.notifiers:
                error = self._deliver(notify, delivery)
                if error:
                    delivery.errors.append(error)
            delivery.is_delivered = not delivery.errors

    def _deliver(self, notify: Notify, delivery: Delivery) -> str:
        """Try until the notifier takes it; else its last error."""
        error = ""
        for attempt in range(ATTEMPTS):
            delivery.attempts += 1
            try:
                notify(delivery.alarm)
                return ""
            except Exception as e:  # noqa: BLE001 - anything that a plug-in raises is retried
                error = f"{type(e).__name__}: {e}"
            self._closing.wait(self.backoff_s * 2**attempt)
        return error
