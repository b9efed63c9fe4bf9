"""The load generators written in C, compiled once into the cache."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import confluent_kafka
from peers import CACHE


def generator(name: str, *libraries: Path) -> str:
    """Compile `bench/<name>.c` when it changed, against these libraries; the program's path.

    Raises SystemExit when there is no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("no C compiler: install gcc (Debian: apt-get install gcc)")
    CACHE.mkdir(parents=True, exist_ok=True)
    binary = CACHE / name
    source = Path(__file__).with_name(f"{name}.c")
    newest = max(path.stat().st_mtime for path in (source, *libraries))
    if not binary.exists() or binary.stat().st_mtime < newest:
        found_at = [f"-Wl,-rpath,{library.parent}" for library in libraries]
        linked = [str(library) for library in libraries]
        command = [compiler, "-O2", "-o", str(binary), str(source), *linked, *found_at, "-lpthread"]
        subprocess.run(command, check=True)
    return str(binary)


def librdkafka() -> Path:
    """The shared library that the confluent-kafka wheel brings. Raises SystemExit without one."""
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    found = sorted(folder.glob("librdkafka*.so*"))
    if not found:
        raise SystemExit(
            f"no librdkafka in {folder}: install confluent-kafka from its wheel, not from source"
        )
    return found[0]
