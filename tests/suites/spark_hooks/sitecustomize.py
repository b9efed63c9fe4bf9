"""The crash points of `suites.spark`; Python loads this module at the start of each process.

The suite puts this folder on PYTHONPATH of brokers, drivers and executors. No product code knows
of it. A process that comes to a point whose file `<folder>/<point>.armed` exists takes the file
away, writes its process id to `<point>.reached`, and stands still until `<point>.released` exists.
Every commit is noted with its time in `commits-<pid>.jsonl`. `HEADWATER_SPARK_PLANT` plants a bug.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

HOOK_FAILED = 97
POLL_S = 0.02
HELD_MAX_S = 120.0
FOLDER = os.environ.get("HEADWATER_SPARK_POINTS", "")


def is_reached(point: str) -> bool:
    """Whether this process is the one that stops here."""
    path = Path(FOLDER)
    try:
        (path / f"{point}.armed").rename(path / f"{point}.taken")
    except FileNotFoundError:
        return False
    (path / f"{point}.part").write_text(str(os.getpid()))
    (path / f"{point}.part").rename(path / f"{point}.reached")
    return True


def is_held(point: str, since_s: float) -> bool:
    return (
        not (Path(FOLDER) / f"{point}.released").exists()
        and time.monotonic() < since_s + HELD_MAX_S
    )


def pass_point(point: str) -> None:
    """Stand still here if the point is armed."""
    if is_reached(point):
        since_s = time.monotonic()
        while is_held(point, since_s):
            time.sleep(POLL_S)


async def pass_point_async(point: str) -> None:
    """The same on an event loop, which goes on."""
    if is_reached(point):
        since_s = time.monotonic()
        while is_held(point, since_s):
            await asyncio.sleep(POLL_S)


def around(owner: type, name: str, before: str = "", after: str = "") -> None:
    """Points before and after a method."""
    call = getattr(owner, name)

    def passing(*arguments: Any, **options: Any) -> Any:
        if before:
            pass_point(before)
        result = call(*arguments, **options)
        if after:
            pass_point(after)
        return result

    setattr(owner, name, passing)


def note_commits(client: type) -> None:
    """Write down when each commit begins."""
    commit: Callable[..., Any] = client.commit  # type: ignore[attr-defined]

    def noting(self: Any, writer: Any, *arguments: Any, **options: Any) -> Any:
        line = json.dumps({"epoch": writer.epoch, "at_s": time.time()})
        with (Path(FOLDER) / f"commits-{os.getpid()}.jsonl").open("a") as out:
            out.write(line + "\n")
        return commit(self, writer, *arguments, **options)

    client.commit = noting  # type: ignore[attr-defined]


def points_in_spark() -> None:
    """In drivers, and in the Python workers of executors."""
    from headwater.client.blocking.epoch_client import EpochClient
    from headwater.client.blocking.record_client import RecordClient
    from headwater_spark.sink.connections import SinkConnections

    plant(EpochClient)
    note_commits(EpochClient)
    around(EpochClient, "join", before="before-join")
    around(RecordClient, "produce_batch", after="mid-write")
    around(SinkConnections, "wait_until_sent", after="after-flush")
    around(EpochClient, "prepare", before="before-prepare", after="after-prepare")
    around(EpochClient, "commit", before="before-commit", after="before-spark-log")


def points_in_broker() -> None:
    """In the coordinator's broker: before the first marker of a transaction, and before the second
    request with markers. Nothing but epochs has transactions here."""
    from headwater_broker.app.marker_channel import MarkerChannel

    write: Callable[..., Awaitable[Any]] = MarkerChannel.write
    sent = 0

    async def passing(self: MarkerChannel, broker_id: int, markers: Any) -> Any:
        nonlocal sent
        await pass_point_async("after-record")
        if not (Path(FOLDER) / "between-markers.armed").exists():
            sent = 0
        else:
            sent += 1
            if sent > 1:
                await pass_point_async("between-markers")
        return await write(self, broker_id, markers)

    MarkerChannel.write = passing  # type: ignore[method-assign]


def plant(client: Any) -> None:
    """Plant a known bug in the Spark side. It sleeps until `<folder>/planted` exists."""
    bug = os.environ.get("HEADWATER_SPARK_PLANT", "")
    if not bug:
        return
    abort = client.abort

    def swallowed(_self: Any, *_arguments: Any, **_options: Any) -> bool:
        return True

    def aborted(self: Any, writer: Any, _participants: Any, **options: Any) -> bool:
        abort(self, writer, is_prepared=options.get("is_prepared", False))
        return True

    def of_new_epoch(call: Callable[..., Any]) -> Callable[..., Any]:
        """A replayed batch of a new run is a new epoch."""

        def later(self: Any, writer: Any, *arguments: Any, **options: Any) -> Any:
            epoch = writer.epoch + int(os.environ["HEADWATER_SPARK_STARTED"])
            return call(self, replace(writer, epoch=epoch), *arguments, **options)

        return later

    match bug:
        case "commit-swallowed":
            put(client, "commit", swallowed)
        case "abort-for-commit":
            put(client, "commit", aborted)
        case "not-drained":
            put(client, "commit", of_new_epoch(client.commit))
            put(client, "join", of_new_epoch(client.join))
        case "verdict-ignored":
            from headwater_spark.sink.delta_decision import DeltaDecisionTable
            from headwater_spark.sink.epoch_decided_by_table import Verdict

            put(DeltaDecisionTable, "verdict", lambda *_arguments: Verdict.ABSENT)
            put(DeltaDecisionTable, "last_epoch", lambda _self: None)
        case "reversed":
            from headwater_spark.sink.write_task import TaskWriter

            write = TaskWriter.write

            def backwards(self: TaskWriter, batches: Any) -> Any:
                """The rows of each batch in the wrong order."""
                return write(
                    self, (batch.take(list(reversed(range(batch.num_rows)))) for batch in batches)
                )

            put(TaskWriter, "write", backwards)
        case "at-least-once" | "uncommitted-reader" | "records-lost":
            pass  # an option of the program, and bugs of the brokers, which the suite feigns
        case _:
            raise ValueError(f"no planted bug is called {bug!r}")


def put(owner: Any, name: str, wrong: Callable[..., Any]) -> None:
    """Replace a method once the bug is awake."""
    right = getattr(owner, name)

    def one_of_both(*arguments: Any, **options: Any) -> Any:
        is_awake = (Path(FOLDER) / "planted").exists()
        return (wrong if is_awake else right)(*arguments, **options)

    setattr(owner, name, one_of_both)


if FOLDER:
    try:
        if "headwater_broker" in sys.orig_argv:
            points_in_broker()
        elif any("spark" in word for word in sys.orig_argv):
            points_in_spark()
    except BaseException:  # noqa: BLE001 - Python would go on without the hook
        traceback.print_exc()
        os._exit(HOOK_FAILED)
