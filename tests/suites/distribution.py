"""`make dist`: builds sdist and wheel, and checks them as a stranger does, in an empty environment.

make dist ARGS="--quick"    # build, contents, SDK and commands, plugin; no extras, no cluster

The wheel is built out of the sdist. Then, in a new virtual environment outside the checkout: the
SDK alone with its commands, every extra by pip's resolver, the pytest plugin, and `headwater up` to
`headwater down` with a record in between.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
PACKAGES = frozenset(
    {
        "headwater",
        "headwater_broker",
        "headwater_gateway",
        "headwater_spark",
        "headwater_tier",
        "pyspark_headwater",
    }
)
TYPED = ("headwater", "headwater_broker", "headwater_spark", "headwater_tier")
PLUGIN_TEST = """
def test_it(headwater_broker, headwater_topic):
    with headwater_broker.producer() as producer:
        assert producer.send(headwater_topic, b"v").result().offset == 0
"""
EXPORTS = """
import headwater, headwater.aio, headwater.serializers, sys
for name in headwater.__all__:
    getattr(headwater, name)
assert "site-packages" in headwater.__file__, headwater.__file__
print(headwater.__version__)
"""
ROUND = """
import sys
from headwater import Consumer, Producer
with Producer(sys.argv[1]) as producer:
    producer.send("dist", b"of the wheel").result(30)
with Consumer("dist", bootstrap_servers=sys.argv[1], group_id="dist",
              auto_offset_reset="earliest", consumer_timeout_ms=30_000) as consumer:
    assert next(iter(consumer)).value == b"of the wheel"
"""


class DistributionError(Exception):
    """What is built is not what it should be."""


def build(target: Path, *, isolated: bool = True) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built out of it."""
    command = [sys.executable, "-m", "build", "--outdir", str(target), str(ROOT)]
    run(command if isolated else [*command, "--no-isolation"], ROOT)
    return only(target, "*.tar.gz"), only(target, "*.whl")


def only(folder: Path, pattern: str) -> Path:
    """The one file of this pattern."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise DistributionError(f"{pattern} in {folder}: {[p.name for p in found]}, not one file")
    return found[0]


def declared_version() -> str:
    """The version as the source says it, in one place."""
    text = (ROOT / "platform" / "headwater" / "__init__.py").read_text()
    line = next(row for row in text.splitlines() if row.startswith("__version__"))
    return line.split('"')[1]


def extras() -> list[str]:
    """The names of the optional dependencies, without those of contributors."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return sorted(set(project["optional-dependencies"]) - {"dev"})


def check_wheel(wheel: Path) -> list[str]:
    """What is wrong inside the wheel."""
    version = declared_version()
    info = f"headwater-{version}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        tops = {PurePosixPath(name).parts[0] for name in names}
        wrong = [f"{top} is no package of ours" for top in sorted(tops - PACKAGES - {info})]
        wrong += [f"{package} is missing" for package in sorted(PACKAGES - tops)]
        wrong += [f"{name} has no py.typed" for name in TYPED if f"{name}/py.typed" not in names]
        wrong += [f"{name} is a test" for name in names if is_test(name)]
        wrong += [f"{name} is no source" for name in names if name.endswith((".pyc", ".jar"))]
        for name in (f"{info}/licenses/LICENSE", f"{info}/entry_points.txt", f"{info}/METADATA"):
            if name not in names:
                wrong.append(f"{name} is missing")
                return wrong
        metadata = archive.read(f"{info}/METADATA").decode()
        entries = archive.read(f"{info}/entry_points.txt").decode()
    if f"\nVersion: {version}\n" not in metadata:
        wrong.append(f"METADATA has not the version {version}")
    if "headwater_broker = headwater_broker.testing.plugin" not in entries:
        wrong.append("the pytest plugin is not registered")
    missing = {p.relative_to(ROOT).name for p in source_files()} - {
        PurePosixPath(name).name for name in names
    }
    return wrong + [f"{name} is in the source and not in the wheel" for name in sorted(missing)]


def is_test(name: str) -> bool:
    """Whether a file of the wheel is one of pytest's."""
    parts = PurePosixPath(name).parts
    return "tests" in parts or parts[-1].startswith("test_") or parts[-1] == "conftest.py"


def source_files() -> list[Path]:
    """Every file below the packages that git knows."""
    folders = ("platform", "broker_service", "spark_integration", "tiered_storage")
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    inside = [ROOT / row for row in listed.stdout.splitlines() if len(Path(row).parts) > 2]
    return [path for path in inside if path.exists()]


def check_sdist(sdist: Path) -> list[str]:
    """What is wrong inside the sdist."""
    with tarfile.open(sdist) as archive:
        names = {str(PurePosixPath(*PurePosixPath(n).parts[1:])) for n in archive.getnames()}
    wanted = ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml")
    wrong = [f"the sdist has no {name}" for name in wanted if name not in names]
    return wrong + [
        f"the sdist has {n}" for n in sorted(names) if n.startswith((".venv", ".cache"))
    ]


def run(command: list[str], folder: Path, timeout_s: float = 1800) -> str:
    """Run a command as a stranger's shell would, without the checkout's settings; its output."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "PYSPARK_PYTHON", "HEADWATER_JARS", "VIRTUAL_ENV")
        and not key.startswith("PYTEST_")
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout_s,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise DistributionError(
            f"{' '.join(command[-6:])}: exit {done.returncode}\n{done.stdout[-3000:]}"
            f"{done.stderr[-3000:]}"
        )
    return done.stdout + done.stderr


class Stranger:
    """An empty virtual environment and an empty folder, where nothing but the wheel is known."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        self.wheel = wheel
        venv.create(folder / "env", with_pip=True)
        self.python = str(folder / "env" / "bin" / "python")
        self.home = folder / "home"
        self.home.mkdir()

    def install(self, extra: str = "", *, dry_run: bool = False) -> None:
        """Install the wheel with an extra, or have pip's resolver find what that would take."""
        name = f"{self.wheel}[{extra}]" if extra else str(self.wheel)
        options = ["--dry-run", "--ignore-installed"] if dry_run else []
        run([self.python, "-m", "pip", "install", "-q", *options, name], self.home)

    def says(self, *command: str) -> str:
        """The output of Python with these arguments."""
        return run([self.python, *command], self.home, 600)

    def tries_commands(self) -> None:
        """The SDK alone: every name can be imported, the commands answer."""
        version = declared_version()
        if self.says("-c", EXPORTS).strip() != version:
            raise DistributionError(f"headwater.__version__ is not {version}")
        if version not in self.says("-m", "headwater", "--version"):
            raise DistributionError(f"python -m headwater --version does not say {version}")
        if "topics" not in self.says("-m", "headwater", "--help"):
            raise DistributionError("python -m headwater --help lists no command `topics`")
        headwater = str(self.folder / "env" / "bin" / "headwater")
        if version not in run([headwater, "--version"], self.home):
            raise DistributionError("the command `headwater` does not say its version")

    def tries_plugin(self) -> None:
        """pytest finds the fixtures, and a test with a broker passes."""
        (self.home / "test_plugin.py").write_text(PLUGIN_TEST)
        said = self.says("-m", "pytest", "-q", "test_plugin.py")
        if "1 passed" not in said:
            raise DistributionError(f"the plugin's test: {said}")

    def tries_cluster(self) -> None:
        """`headwater up`, a record there and back, `headwater down`; nothing is left running."""
        port = free_port()
        up = ("-m", "headwater", "up", "--brokers", "1", "--dir", "data", "--port", str(port))
        try:
            self.says(*up, "--no-tiering")
            self.says("-c", ROUND, f"127.0.0.1:{port}")
            status = json.loads(self.says("-m", "headwater", "status", "--dir", "data", "--json"))
            if not status:
                raise DistributionError("headwater status says nothing of a running cluster")
        finally:
            self.says("-m", "headwater", "down", "--dir", "data")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise DistributionError("the broker still listens after `headwater down`")


def check_extra(stranger: Stranger, extra: str) -> None:
    """An extra resolves, where its packages can be built."""
    if extra == "kerberos" and shutil.which("krb5-config") is None:
        print("dist: extra kerberos: not checked, gssapi is built with krb5-config (libkrb5-dev)")
        return
    step(f"extra {extra} resolves", lambda: stranger.install(extra, dry_run=True))


def free_port() -> int:
    """A port of which the next 400 are likely to be free too."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port if port < 60_000 else port - 20_000


def step(text: str, work: Callable[[], list[str] | None]) -> None:
    """Run one check and print it. Raises DistributionError."""
    wrong = work() or []
    if wrong:
        raise DistributionError(f"{text}: " + "; ".join(wrong))
    print(f"dist: {text}: ok", flush=True)


def main() -> int:
    """1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, prog="distribution")
    parser.add_argument("--quick", action="store_true", help="without the extras and the cluster")
    given = parser.parse_args()
    shutil.rmtree(DIST, ignore_errors=True)
    try:
        sdist, wheel = build(DIST)
        print(f"dist: built {sdist.name}, {wheel.name} ({wheel.stat().st_size // 1024} KB)")
        step("the wheel's contents", lambda: check_wheel(wheel))
        step("the sdist's contents", lambda: check_sdist(sdist))
        with tempfile.TemporaryDirectory() as folder:
            stranger = Stranger(Path(folder), wheel)
            stranger.install()
            step("the SDK in an empty environment", stranger.tries_commands)
            stranger.install("testing")
            step("the pytest plugin", stranger.tries_plugin)
            if not given.quick:
                for extra in extras():
                    step(
                        f"extra {extra} resolves", lambda e=extra: stranger.install(e, dry_run=True)
                    )
                stranger.install("spark")
                step("headwater up, a record, headwater down", stranger.tries_cluster)
    except DistributionError as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
