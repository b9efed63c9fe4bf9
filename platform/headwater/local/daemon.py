"""The process behind `headwater up`: holds the folder's lock, runs a Manager until told to stop.

`python -m headwater.local.daemon` takes its options as JSON in its first argument and reports on
stdout, one JSON line per event (`progress`, `up`, `failed`), until the cluster is up; then it lets
go of the caller's pipe. SIGTERM and SIGINT stop the cluster.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import Any

from headwater.errors import HeadwaterError, UsageError
from headwater.extras import install_hint
from headwater.local import cluster_file
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.manager import Launcher, Manager
from headwater.local.processes import CLUSTER_DIR_VARIABLE
from headwater.local.stop import end_leftovers
from headwater.local.supervisor import Supervisor
from headwater.system import SystemClock, SystemEntropy

logger = logging.getLogger(__name__)

LAUNCHER_GROUP = "headwater.launchers"
UNEXPECTED_EXIT = 3
INTERRUPTED_EXIT = 130
LOOK_S = 1.0
"""How soon a signal is noticed that came where nothing could be raised."""

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What `headwater up` was asked for; None: as the folder says, or the default."""

    directory: str
    brokers: int | None = None
    base_port: int | None = None
    spark_master: str | None = None
    zookeeper: str | None = None
    properties: dict[str, str] = field(default_factory=dict)


class StopRequestedError(BaseException):
    """SIGTERM or SIGINT arrived. As KeyboardInterrupt it is no Exception: in whatever code a signal
    comes, that may catch those and go on (click's output does)."""

    def __init__(self, signum: signal.Signals) -> None:
        self.signum = signum
        super().__init__(signum.name)


def run(options: UpOptions, report: Report) -> int:
    """Run the cluster until SIGTERM (0) or SIGINT (130). Raises HeadwaterError, e.g. at start."""
    directory = prepare_directory(options.directory)
    lock = cluster_file.DirectoryLock(directory)
    lock.acquire()
    try:
        os.environ[CLUSTER_DIR_VARIABLE] = str(directory)  # inherited by whatever we start
        spec = cluster_file.resolve(
            directory,
            options.brokers,
            options.base_port,
            SystemEntropy(),
            zookeeper=options.zookeeper,
            properties=options.properties,
        )
        end_leftovers(directory)
        return _run_locked(spec, options, report)
    finally:
        lock.release()


def _run_locked(spec: ClusterSpec, options: UpOptions, report: Report) -> int:
    kind = "spark" if options.spark_master else "local"
    record = cluster_file.ClusterRecord(spec, kind, "supervisor")
    manager = _manager(spec, options, record.update)
    record.manager = manager
    try:
        asked = _stop_on_signals()
        record.update()
        manager.start(lambda text, done, total: report(_progress(text, done, total)))
        record.update()
        state = manager.state()
        report({"event": "up", "bootstrap_servers": state.bootstrap_servers})
        while not asked:
            time.sleep(LOOK_S)  # until a signal's handler raises
        raise StopRequestedError(asked[0])
    except StopRequestedError as request:
        _ignore_signals()
        logger.info("%s: stopping", request.signum.name)
        return INTERRUPTED_EXIT if request.signum is signal.SIGINT else 0
    finally:
        _ignore_signals()
        manager.stop(lambda text, done, total: report(_progress(text, done, total)))
        record.close()


def _manager(spec: ClusterSpec, options: UpOptions, changed: Callable[[], None]) -> Manager:
    if options.spark_master is None:
        return Supervisor(spec, SystemClock(), changed=changed)
    return load_launcher("spark")(spec, options.spark_master, changed)


def load_launcher(name: str) -> Launcher:
    """The launcher that a package registered under `name`. Raises UsageError."""
    for entry in entry_points(group=LAUNCHER_GROUP, name=name):
        launcher: Launcher = entry.load()
        return launcher
    raise UsageError(f'no launcher "{name}" is installed: {install_hint(name)}')


def prepare_directory(text: str) -> Path:
    """The absolute cluster folder, made if absent. Raises UsageError."""
    directory = Path(text).expanduser().resolve()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "logs").mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"--dir {text}: {error.strerror}: choose a folder to write to") from error
    if not os.access(directory, os.W_OK):
        raise UsageError(f"--dir {text}: not writable: choose a folder to write to")
    return directory


def _progress(text: str, done: int, total: int) -> dict[str, Any]:
    return {"event": "progress", "text": text, "done": done, "total": total}


def _stop_on_signals() -> list[signal.Signals]:
    """The list gets what arrived: where nothing can be raised (a `__del__`), that alone tells."""
    asked: list[signal.Signals] = []

    def stop(signum: int, _frame: FrameType | None) -> None:
        _ignore_signals()
        asked.append(signal.Signals(signum))
        raise StopRequestedError(asked[0])

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return asked


def _ignore_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Pipe:
    """The caller's pipe while it listens. Our children's stdout goes to the log, not there."""

    def __init__(self) -> None:
        self._fd = os.dup(1)  # not inheritable
        os.dup2(2, 1)

    def report(self, event: dict[str, Any]) -> None:
        logger.info("%s", event)
        if self._fd < 0:
            return
        try:
            os.write(self._fd, json.dumps(event).encode() + b"\n")
        except BrokenPipeError:
            self._close()  # the caller is gone; the cluster is not its child
        if event["event"] in ("up", "failed"):
            self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def main() -> int:
    """The daemon's entry. Its stderr is the supervisor's log."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("kazoo").setLevel(logging.ERROR)  # an expired session is expected
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    pipe = _Pipe()
    try:
        return run(UpOptions(**json.loads(sys.argv[1])), pipe.report)
    except HeadwaterError as error:
        pipe.report(
            {"event": "failed", "error": str(error), "usage": isinstance(error, UsageError)}
        )
        return 2 if isinstance(error, UsageError) else 1
    except Exception as error:
        logger.exception("the supervisor failed")
        pipe.report({"event": "failed", "error": repr(error), "usage": False})
        return UNEXPECTED_EXIT


def command(options: UpOptions) -> list[str]:
    """The command line that runs this module with `options`."""
    return [sys.executable, "-P", "-m", "headwater.local.daemon", json.dumps(asdict(options))]


if __name__ == "__main__":
    sys.exit(main())
