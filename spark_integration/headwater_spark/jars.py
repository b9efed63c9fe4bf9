"""Delta's jars for Spark: resolved once by Maven coordinates, then found in a cache folder.

`python -m headwater_spark.jars [FOLDER]` resolves them ahead of time (an image, a machine without
a way out). A session that has the files needs no network and starts seconds sooner.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from headwater.errors import HeadwaterError

CACHE_VARIABLE = "HEADWATER_JARS"
RESOLVE_TIMEOUT_S = 600
# What Spark ships itself: an older or second copy on the class path would only do harm.
_OF_SPARK = (
    "org.slf4j_",
    "org.apache.logging.",
    "org.apache.hadoop_",
    "org.apache.parquet_",
    "com.fasterxml.jackson.",
    "org.xerial.snappy_",
    "com.github.luben_",
    "org.roaringbitmap_",
    "commons-",
    "io.airlift_",
    "javax.annotation_",
    "org.locationtech.",
    "com.google.code.findbugs_",
)

# Runs in a process of its own: resolution happens at JVM start, and a JVM starts once per process.
_RESOLVE = """
import sys
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession
builder = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars.ivy", sys.argv[1])
    .config("spark.ui.enabled", "false")
)
configure_spark_with_delta_pip(builder).getOrCreate().stop()
"""


class JarsMissingError(HeadwaterError):
    """Delta's jars could not be resolved; says what to do."""


def cache_folder(chosen: str | None = None) -> Path:
    """Where the jars are kept."""
    text = chosen or os.environ.get(CACHE_VARIABLE)
    return Path(text) if text else Path.home() / ".cache" / "headwater" / "jars"


def delta_jars(chosen: str | None = None) -> list[Path]:
    """Delta's jar files, resolved now if they are not there yet. Raises JarsMissingError."""
    folder = cache_folder(chosen)
    found = _found(folder)
    if not found:
        _resolve(folder)
        found = _found(folder)
    if not found:
        raise JarsMissingError(_remedy(folder, "nothing was found afterwards"))
    return found


def _found(folder: Path) -> list[Path]:
    """All of Delta's own jars of the installed version, or nothing."""
    jars = sorted((folder / "jars").glob("*.jar"))
    own = [jar for jar in jars if not jar.name.startswith(_OF_SPARK)]
    wanted = f"-{version('delta-spark')}.jar"
    has_delta = any(j.name.startswith("io.delta_delta-spark_") and wanted in j.name for j in own)
    return own if has_delta else []


def _resolve(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        result = subprocess.run(
            [sys.executable, "-c", _RESOLVE, str(folder)],
            capture_output=True,
            text=True,
            timeout=RESOLVE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as e:
        raise JarsMissingError(_remedy(folder, f"no answer in {RESOLVE_TIMEOUT_S} s")) from e
    if result.returncode != 0:
        told = [line for line in result.stderr.splitlines() if "unresolved" in line.lower()]
        last = result.stderr.strip().splitlines()[-1:] or ["no output"]
        raise JarsMissingError(_remedy(folder, (told or last)[-1].strip()))


def _remedy(folder: Path, reason: str) -> str:
    return (
        f"Delta's jars (io.delta:delta-spark {version('delta-spark')}) could not be resolved into"
        f" {folder}: {reason}. Check the way to your Maven repository, or move ~/.m2/repository/io/"
        "delta away (entries with a POM but no jar stop Spark's resolver), then run"
        " `python -m headwater_spark.jars`"
    )


def main() -> int:
    """Resolve and list."""
    try:
        jars = delta_jars(sys.argv[1] if len(sys.argv) > 1 else None)
    except JarsMissingError as e:
        print(e, file=sys.stderr)
        return 1
    print(f"{len(jars)} jars in {jars[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
