"""The background process of `headwater up`: locks the folder and runs a Manager until a signal.

`python -m headwater.local.daemon D` reads its options as JSON from stdin: they may hold passwords,
and every user sees a process's arguments, where D is for the reader of `ps`. It reports on stdout,
one JSON line per event (`progress`, `up`, `failed`), until the cluster is up; then it closes its
end of the caller's pipe. SIGTERM and SIGINT stop the cluster.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import IO, Any

from headwater.errors import HeadwaterError, UsageError
from headwater.extras import install_hint
from headwater.local import cluster_file
from headwater.local.change_requests import ChangeRequests, progress_to
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.data_folders import shut
from headwater.local.ensemble import with_id_of_ensemble
from headwater.local.manager import Launcher, Manager
from headwater.local.processes import CLUSTER_DIR_VARIABLE
from headwater.local.service_spec import (
    ServiceChoice,
    ServiceSpec,
    gateway_service,
    registry_service,
    tiering_service,
)
from headwater.local.stop import end_leftovers
from headwater.local.supervisor import Supervisor
from headwater.local.supervisor_socket import Report, SupervisorSocket, failure
from headwater.system import SystemClock, SystemEntropy

logger = logging.getLogger(__name__)

LAUNCHER_GROUP = "headwater.launchers"
UNEXPECTED_EXIT = 3
INTERRUPTED_EXIT = 130
PRIVATE_UMASK = 0o077
LOOK_S = 1.0
"""A signal in code that swallows exceptions, such as a `__del__`, is noticed after this time."""

MakeManager = Callable[[ClusterSpec, str | None, Callable[[], None]], Manager]
"""`manager_of`: makes the manager of a cluster, which calls the last argument on changes."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options of `headwater up`; None stands for the folder's value, or else the default."""

    directory: str
    brokers: int | None = None
    base_port: int | None = None
    spark_master: str | None = None
    zookeeper: str | None = None
    properties: dict[str, str] = field(default_factory=dict, repr=False)
    """They may hold passwords."""
    secure: bool = False
    tiering: bool | None = None
    """Run `headwater tier serve` beside the brokers."""
    registry_port: int | None = None
    """Run `headwater registry serve` beside the brokers, at this port; 0: no longer."""
    gateway_port: int | None = None
    """The same for `headwater gateway`."""

    def chosen(self, former: ServiceChoice) -> ServiceChoice:
        """Which services the cluster has from now on; `former`: up to now."""
        tiering = former.tiering if self.tiering is None else self.tiering
        registry = former.registry_port if self.registry_port is None else self.registry_port
        gateway = former.gateway_port if self.gateway_port is None else self.gateway_port
        return ServiceChoice(tiering, registry or None, gateway or None)


class StopRequestedError(BaseException):
    """SIGTERM or SIGINT arrived. Like KeyboardInterrupt it is not an Exception: the interrupted
    code may catch every Exception and go on, as click's output does."""

    def __init__(self, signum: signal.Signals) -> None:
        self.signum = signum
        super().__init__(signum.name)


def manager_of(spec: ClusterSpec, master: str | None, changed: Callable[[], None]) -> Manager:
    """The Supervisor of local processes, or with a Spark master the launcher for Spark jobs."""
    if master is None:
        return Supervisor(spec, SystemClock(), changed=changed)
    return load_launcher("spark")(spec, master, changed)


def run(options: UpOptions, report: Report, make_manager: MakeManager = manager_of) -> int:
    """Run the cluster until SIGTERM (0) or SIGINT (130). Raises HeadwaterError if it fails."""
    directory = prepare_directory(options.directory)
    lock = cluster_file.DirectoryLock(directory)
    lock.acquire()
    try:
        os.environ[CLUSTER_DIR_VARIABLE] = str(directory)  # every child process inherits it
        spec = cluster_file.resolve(
            directory,
            options.brokers,
            options.base_port,
            SystemEntropy(),
            zookeeper=options.zookeeper,
            properties=options.properties,
            secure=options.secure,
        )
        chosen = options.chosen(spec.chosen)
        services = services_of(chosen)
        spec = replace(with_id_of_ensemble(spec), chosen=chosen, services=services)
        end_leftovers(directory)
        with _files_of_the_owner(spec):
            return _run_locked(spec, options, report, make_manager)
    finally:
        lock.release()


def services_of(chosen: ServiceChoice) -> tuple[ServiceSpec, ...]:
    """The processes beside the brokers."""
    tiering = tiering_service() if chosen.tiering else None
    port = chosen.registry_port
    url = None if port is None else f"http://127.0.0.1:{port}"
    registry = None if port is None else registry_service(port)
    gateway = None
    if chosen.gateway_port is not None:
        gateway = gateway_service(chosen.gateway_port, url)
    if tiering is not None and url is not None:
        tiering = replace(tiering, command=(*tiering.command, "--schema-registry", url))
    return tuple(service for service in (registry, gateway, tiering) if service is not None)


@contextmanager
def _files_of_the_owner(spec: ClusterSpec) -> Iterator[None]:
    """While a secure cluster runs, its files are for their owner only: every child process inherits
    the umask. Else a reader of the disk needs no ACL, and ZooKeeper's log shows SCRAM keys."""
    if not spec.secure:
        yield
        return
    former = os.umask(PRIVATE_UMASK)
    try:
        shut(spec)
        yield
    finally:
        os.umask(former)


def _run_locked(
    spec: ClusterSpec, options: UpOptions, report: Report, make_manager: MakeManager
) -> int:
    kind = "spark" if options.spark_master else "local"
    record = cluster_file.ClusterRecord(spec, kind, "supervisor")
    manager = make_manager(spec, options.spark_master, record.update)
    record.manager = manager
    commands = SupervisorSocket(spec.directory, ChangeRequests(manager))
    try:
        asked = _stop_on_signals()
        record.update()
        manager.start(progress_to(report))
        record.update()
        commands.open_if_possible()
        state = manager.state()
        report({"event": "up", "bootstrap_servers": state.bootstrap_servers})
        while not asked:
            time.sleep(LOOK_S)  # the signal handler raises
        raise StopRequestedError(asked[0])
    except StopRequestedError as request:
        _ignore_signals()
        logger.info("%s: stopping", request.signum.name)
        return INTERRUPTED_EXIT if request.signum is signal.SIGINT else 0
    finally:
        _ignore_signals()
        commands.close()
        manager.stop(progress_to(report))
        record.close()


def load_launcher(name: str) -> Launcher:
    """The launcher that a package registered under `name`. Raises UsageError."""
    for entry in entry_points(group=LAUNCHER_GROUP, name=name):
        launcher: Launcher = entry.load()
        return launcher
    raise UsageError(f'no launcher "{name}" is installed: {install_hint(name)}')


def cluster_folder(text: str) -> Path:
    """The absolute path of a `--dir`."""
    return Path(text).expanduser().resolve()


def prepare_directory(text: str) -> Path:
    """The absolute cluster folder, created if absent. Raises UsageError."""
    directory = cluster_folder(text)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "logs").mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"--dir {text}: {error.strerror}: choose a folder to write to") from error
    if not os.access(directory, os.W_OK):
        raise UsageError(f"--dir {text}: not writable: choose a folder to write to")
    return directory


def _stop_on_signals() -> list[signal.Signals]:
    """Raise StopRequestedError on a signal, and add the signal to the list that is returned: the
    list is all that is left where the interrupted code swallows exceptions."""
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
    """The caller's pipe, until the cluster is up. The stdout of child processes goes to the log."""

    def __init__(self) -> None:
        self._fd = os.dup(1)  # not inheritable
        os.dup2(2, 1)

    def report(self, event: dict[str, Any]) -> None:
        logger.info("%s", event_text(event))
        if self._fd < 0:
            return
        try:
            os.write(self._fd, json.dumps(event).encode() + b"\n")
        except BrokenPipeError:
            self._close()  # the caller has ended; the cluster goes on
        if event["event"] in ("up", "failed"):
            self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def event_text(event: dict[str, Any]) -> str:
    """An event as a line of the log."""
    if event["event"] == "progress":
        return f"{event['text']} ({event['done']}/{event['total']})"
    if event["event"] == "up":
        return f"the cluster is up: bootstrap servers {event['bootstrap_servers']}"
    return f"the cluster did not start: {event['error']}"


def main() -> int:
    """Run the daemon; its exit code. Its stderr is the supervisor's log."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("kazoo").setLevel(logging.ERROR)  # an expired session is no error here
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    pipe = _Pipe()
    try:
        return run(read_options(), pipe.report)
    except HeadwaterError as error:
        pipe.report(failure(error))
        return 2 if isinstance(error, UsageError) else 1
    except Exception as error:
        logger.exception("the supervisor failed")
        pipe.report({"event": "failed", "error": repr(error), "usage": False})
        return UNEXPECTED_EXIT


def read_options(stdin: int = 0) -> UpOptions:
    """The options from this descriptor up to end of file; it is /dev/null afterwards, also for
    child processes. Raises UsageError if there are none."""
    with os.fdopen(os.dup(stdin), "rb") as given:
        text = given.read()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, stdin)
    os.close(nothing)
    if not text:
        raise UsageError("stdin holds no options: start a cluster with `headwater up`")
    return UpOptions(**json.loads(text))


def command(options: UpOptions) -> list[str]:
    """The command line that runs this module; `send_options` goes with it."""
    return [sys.executable, "-P", "-m", "headwater.local.daemon", options.directory]


def send_options(options: UpOptions, stdin: IO[bytes]) -> None:
    """Give the daemon its options, and close its stdin."""
    with suppress(BrokenPipeError), stdin:  # it has ended: its stdout and its log say why
        stdin.write(json.dumps(asdict(options)).encode())


if __name__ == "__main__":
    sys.exit(main())
