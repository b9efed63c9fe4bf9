"""The Java programs of jobs/integrations and of the tests: jars, classes, command.

Jars come by Maven coordinates into the project's cache, once. `javac` compiles a program into a
folder named by its sources and jars: the frameworks send instances of its classes from process to
process or thread to thread, which a source that Java compiles as it starts does not stand.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from suites import parts
from suites.parts import CACHE, MissingPartError

HEAP = "-Xmx512m"
COMPILE_S = 120.0
NAME_CHARACTERS = 16
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""The optimising compiler would cost more than it gives."""
OPENED = tuple(
    f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "nio", "util", "net")
)
"""What Kryo and Hadoop read by reflection."""


def classes(sources: Path, classpath: str, home: Path | None = None) -> Path:
    """The folder with the classes of all Java sources in a folder, compiled once.

    `home`: of the Java to take, where the one on the PATH may be too old.
    """
    files = sorted(sources.glob("*.java"))
    digest = hashlib.sha256("\n".join(_jar_names(classpath)).encode())
    for file in files:
        digest.update(file.name.encode() + file.read_bytes())
    name = f"{sources.name}-{digest.hexdigest()[:NAME_CHARACTERS]}"
    folder = CACHE / "classes" / name
    with parts.once(folder.parent, name) as is_missing:
        if is_missing:
            _compile(program("javac", home), files, classpath, folder)
    return folder


def java(
    classpath: str,
    main: str,
    *arguments: str,
    properties: Mapping[str, str] | None = None,
    home: Path | None = None,
) -> Sequence[str]:
    """The command that runs a program."""
    told = [f"-D{name}={value}" for name, value in (properties or {}).items()]
    return [
        program("java", home),
        HEAP,
        *SHORT_LIVED,
        *OPENED,
        *told,
        "-cp",
        classpath,
        main,
        *arguments,
    ]


def _jar_names(classpath: str) -> Sequence[str]:
    entries = [Path(entry) for entry in classpath.split(":")]
    jars = [sorted(e.parent.glob("*.jar")) if e.name == "*" else [e] for e in entries]
    return [jar.name for found in jars for jar in found]


def program(name: str, home: Path | None = None) -> str:
    """A program of a Java, or of the one on the PATH."""
    return name if home is None else str(home / "bin" / name)


def _compile(javac: str, files: Sequence[Path], classpath: str, folder: Path) -> None:
    command = [javac, "-nowarn", "-d", str(folder), "-cp", classpath, *map(str, files)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_S, check=False
        )
    except FileNotFoundError as error:
        raise MissingPartError("a JDK (17 or newer): `javac` is not on the PATH") from error
    assert done.returncode == 0, done.stderr
