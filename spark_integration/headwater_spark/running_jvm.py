"""The driver's JVM that runs before a session is configured: spark-submit's, or an earlier one.

`spark.jars` reaches a JVM's class path only when the JVM starts with it. A JVM that runs already
(spark-submit starts Python, not the other way round) gets jars through its class loader.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext

GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit for the Python program that it starts."""


class RunningJvm:
    """A JVM that pyspark is connected to."""

    def __init__(self, jvm: Any, *, is_submitted: bool) -> None:
        self._jvm = jvm
        self._is_submitted = is_submitted

    def settings(self) -> dict[str, str]:
        """The configuration that spark-submit was given; empty where pyspark started the JVM."""
        return dict(SparkConf().getAll()) if self._is_submitted else {}

    def jar_of(self, class_name: str) -> Path | None:
        """The jar or folder that a class is loaded from; None for a class that is not there."""
        try:
            found = self._jvm.java.lang.Class.forName(class_name, False, self._loader())
        except Py4JJavaError:
            return None
        location = found.getProtectionDomain().getCodeSource().getLocation()
        return Path(unquote(urlsplit(str(location.toString())).path))

    def add_jars(self, jars: Iterable[Path]) -> None:
        """Extend the driver's class path."""
        loader = self._loader()
        for jar in jars:
            loader.addURL(self._jvm.java.io.File(str(jar)).toURI().toURL())

    def _loader(self) -> Any:
        """Spark's MutableURLClassLoader, which spark-submit makes for `--jars`."""
        return self._jvm.java.lang.Thread.currentThread().getContextClassLoader()


def running_jvm() -> RunningJvm | None:
    """The JVM of this process; None while none runs."""
    if SparkContext._gateway is None and GATEWAY_VARIABLE not in os.environ:
        return None
    SparkContext._ensure_initialized()
    is_submitted = getattr(SparkContext._gateway, "proc", None) is None
    return RunningJvm(SparkContext._jvm, is_submitted=is_submitted)
