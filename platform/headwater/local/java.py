"""Finds Java for the embedded ZooKeeper and for Spark: JAVA_HOME first, then the PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from headwater.errors import UsageError

JAVA_VERSION_MIN = 17
PROBE_TIMEOUT_S = 20
REMEDY = f"install Java {JAVA_VERSION_MIN} or newer (a JRE is enough) and set JAVA_HOME"


def find_java() -> str:
    """The path of a `java` that is new enough. Raises UsageError with the remedy."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise UsageError(f"JAVA_HOME is {home}, but {java} cannot be run: {REMEDY}")
        found = str(java)
    else:
        on_path = shutil.which("java")
        if on_path is None:
            raise UsageError(f"no Java found (JAVA_HOME is not set, PATH has none): {REMEDY}")
        found = on_path
    version = java_version(found)
    if version < JAVA_VERSION_MIN:
        raise UsageError(f"{found} is Java {version}: {REMEDY}")
    return found


def java_version(java: str) -> int:
    """The feature release of a `java`: 17 for 17.0.15, 8 for 1.8.0. Raises UsageError.

    It reads the `release` file of the Java installation, if there is one: a JVM needs 50 ms to
    start.
    """
    release = Path(os.path.realpath(java)).parent.parent / "release"
    try:
        text = release.read_text()
    except OSError:
        text = _version_output(java)
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    if match is None:
        raise UsageError(f"the version of {java} is unknown: {REMEDY}")
    return int(match.group(1))


def _version_output(java: str) -> str:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"{java} does not run ({error}): {REMEDY}") from error
    return answer.stderr + answer.stdout
