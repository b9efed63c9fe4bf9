"""Probe of one Python process, run on the driver and in tasks. No pyspark."""

from __future__ import annotations

import importlib
import platform
import socket
import sys
from typing import Any

NEEDED = (
    "pyarrow",
    "numba",
    "numpy",
    "crc32c",
    "cramjam",
    "deltalake",
    "grpc",
    "headwater",
    "headwater_spark.source.read_task",
    "headwater_spark.sink.write_task",
)


def probe() -> dict[str, Any]:
    """Host, interpreter, Headwater's version, and each module that fails to import, with why."""
    missing = {}
    for name in NEEDED:
        try:
            importlib.import_module(name)
        except ImportError as e:
            missing[name] = str(e)
    version = None
    if "headwater" not in missing:
        version = importlib.import_module("headwater").__version__
    return {
        "host": socket.gethostname(),
        "python": sys.executable,
        "python_version": platform.python_version(),
        "headwater": version,
        "missing": missing,
    }
