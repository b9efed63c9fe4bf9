"""Kafka's own command-line tools in JVMs that are tuned to start fast.

A tool's time is nearly all start: classes that are read, checked and compiled. A first run that
tells of nothing leaves its classes in an archive, which all tools map (class data sharing); none
has the optimising compiler, nor threads of a collector.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from peers import kafka_classpath

# The optimising compiler would cost more than it gives.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TOOL_S = 120.0
BOOTSTRAP = "--bootstrap-server"
COMMAND_CONFIG = "--command-config"
FLAGS = (
    *("-Xmx256m", *SHORT_LIVED_JVM.split()),
    # What the JVM has to say of archives is not the tool's output.
    *("-Xlog:disable", "-Xlog:all=warning:stderr"),
)
LEARNS_FROM = ("kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics")
"""Scala, options, an admin client: most of what any tool loads."""


@cache
def _folder() -> TemporaryDirectory[str]:
    """Of the archive: as long as this process lives, as it is for this Java and these jars."""
    return TemporaryDirectory(prefix="headwater-tools-")


def _sharing(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The flags that map the archive. Made once, with the first tool that can name a broker."""
    archive = Path(_folder().name) / "classes.jsa"
    if not archive.exists() and BOOTSTRAP in arguments and COMMAND_CONFIG not in arguments:
        servers = arguments[arguments.index(BOOTSTRAP) + 1]
        _run((f"-XX:ArchiveClassesAtExit={archive}",), *LEARNS_FROM, BOOTSTRAP, servers)
    return (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()


def kafka_tool(main: str, *arguments: str, stdin: str | None = None) -> str:
    """Run a tool by its class; its standard output. Raises RuntimeError when it fails."""
    return _run(_sharing(arguments), main, *arguments, stdin=stdin)


def _run(flags: tuple[str, ...], *command: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        ["java", *FLAGS, *flags, "-cp", kafka_classpath(), *command],
        capture_output=True,
        text=True,
        timeout=TOOL_S,
        input=stdin,
        check=False,
    )
    if done.returncode != 0:
        told = f"{done.stderr[-2000:]}{done.stdout[-500:]}"
        raise RuntimeError(f"{' '.join(command)}: {told}")
    return done.stdout
