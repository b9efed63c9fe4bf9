"""The fault harness inside a broker process; Python loads this module at the start of each.

The harness puts this folder on PYTHONPATH. No product code knows of it. In a broker process it

- moves the process into its network namespace (`HEADWATER_SOAK_NETNS`: a path per broker);
- lets the harness make the disk slow or failing, by a file that each write reads;
- plants a bug on request (`HEADWATER_SOAK_PLANT=bug:broker`, or `bug:*`), to show that the harness
  detects it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

CLONE_NEWNET = 0x40000000
HOOK_FAILED = 97
SLICE_S = 0.05


def broker_name() -> str:
    """`broker-N` in a broker's process, else empty."""
    words = sys.orig_argv
    if "headwater_broker" not in words or "--config" not in words:
        return ""
    return Path(words[words.index("--config") + 1]).stem


def enter_network(name: str) -> None:
    """Move into the broker's network namespace, before any socket or thread exists."""
    paths = json.loads(os.environ.get("HEADWATER_SOAK_NETNS", "{}"))
    if name not in paths:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(paths[name], os.O_RDONLY)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"setns({paths[name]})")
    os.close(descriptor)


def watch_disk(name: str) -> None:
    """Make each write and fsync follow `<folder>/<name>.disk` while that file exists."""
    from headwater import system_files

    path = f"{os.environ['HEADWATER_SOAK_DISKS']}/{name}.disk"

    def suffer() -> None:
        try:
            with open(path) as told:
                trouble = json.load(told)
        except FileNotFoundError:
            return
        until = time.monotonic() + trouble.get("delay_ms", 0) / 1000
        while (left := until - time.monotonic()) > 0 and os.path.exists(path):
            time.sleep(min(left, SLICE_S))
        if code := trouble.get("errno", 0):
            raise OSError(code, f"{os.strerror(code)} (planted)")

    def before(call: Callable[..., Any]) -> Callable[..., Any]:
        def slowed(*arguments: Any) -> Any:
            suffer()
            return call(*arguments)

        return slowed

    file, files = system_files.SystemFile, system_files.SystemFiles
    for owner, method in ((file, "append"), (file, "fsync"), (files, "write_atomic")):
        setattr(owner, method, before(getattr(owner, method)))


def plant(name: str) -> None:
    """Plant a known bug in one broker."""
    bug, _, broker = os.environ.get("HEADWATER_SOAK_PLANT", "").partition(":")
    if not bug or broker not in ("*", name.removeprefix("broker-")):
        return
    from headwater.errors import ErrorCode
    from headwater_broker.replica.partition import Partition

    if bug != "ack-before-high-watermark":
        raise ValueError(f"no planted bug is called {bug!r}")

    def outcome(self: Partition, last_offset: int, leader_epoch: int) -> ErrorCode | None:
        is_led = self.is_leader and self.leader_epoch == leader_epoch
        return ErrorCode.NONE if is_led else ErrorCode.NOT_LEADER_OR_FOLLOWER

    Partition.outcome = outcome  # type: ignore[method-assign]


if NAME := broker_name():
    try:
        enter_network(NAME)
        watch_disk(NAME)
        plant(NAME)
    except BaseException:  # noqa: BLE001 - Python would go on without the hook
        traceback.print_exc()
        os._exit(HOOK_FAILED)
