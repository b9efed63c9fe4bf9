"""Delta's jars for Spark: resolved once by Maven coordinates, then kept in a cache folder.

`python -m headwater_spark.jars [FOLDER]` resolves them ahead of time, for an image or a machine
without network. A session that finds the files starts seconds sooner.
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
# Libraries that Spark ships: an older or second copy on the class path breaks it.
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
    """Delta's jars could not be resolved; the message has a remedy."""


def cache_folder(chosen: str | None = None) -> Path:
    """The folder of the jars: `chosen`, else `$HEADWATER_JARS`, else the user's cache."""
    text = chosen or os.environ.get(CACHE_VARIABLE)
    return Path(text) if text else Path.home() / ".cache" / "headwater" / "jars"


def delta_jars(chosen: str | None = None) -> list[Path]:
    """Delta's jar files, resolved now if the folder lacks them. Raises JarsMissingError."""
    folder = cache_folder(chosen)
    found = _found(folder)
    if not found:
        _resolve(folder)
        found = _found(folder)
    if not found:
        raise JarsMissingError(_remedy(folder, "the resolver succeeded, but left no jars"))
    return found


def _found(folder: Path) -> list[Path]:
    """Delta's jars of the installed version without Spark's own; none if Delta itself is absent."""
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
        unresolved = [line for line in result.stderr.splitlines() if "unresolved" in line.lower()]
        last = result.stderr.strip().splitlines()[-1:] or ["no output"]
        raise JarsMissingError(_remedy(folder, (unresolved or last)[-1].strip()))


def _remedy(folder: Path, reason: str) -> str:
    return (
        f"Delta's jars (io.delta:delta-spark {version('delta-spark')}) could not be resolved into"
        f" {folder}: {reason}. Check the connection to your Maven repository, or move"
        " ~/.m2/repository/io/delta away (an entry with a POM but no jar stops Spark's resolver),"
        " then run `python -m headwater_spark.jars`"
    )


def main() -> int:
    """Resolve the jars and print their number and folder."""
    try:
        jars = delta_jars(sys.argv[1] if len(sys.argv) > 1 else None)
    except JarsMissingError as e:
        print(e, file=sys.stderr)
        return 1
    print(f"{len(jars)} jars in {jars[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
