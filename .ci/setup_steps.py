"""Builds .venv with all that demo, tests and benches need, and shows what it does.

Standard library only: nothing is installed yet. Every step can be repeated; the marker that makes
`make setup` instant is written last.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from interpreters import fastest, of_the_system

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOTS = ("platform", "tiered_storage", "broker_service", "spark_integration")
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".headwater-setup"
LOG = ROOT / ".cache" / "setup.log"
JARS = ROOT / ".cache" / "jars"
STEPS = 4
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER_TIMEOUT_S = 300
TICK_S = 10.0
LINE_CHARS = 60


class SetupError(Exception):
    """One line: what is wrong and what to do."""


class Shown:
    """The running step: on a terminal one line that moves, elsewhere a line now and then."""

    def __init__(self, number, text):
        self.head = "setup [%d/%d] %s" % (number, STEPS, text)
        self.tty = sys.stdout.isatty()
        self.started = self.told = time.monotonic()
        self.note = ""
        self.done = threading.Event()
        print(self.head, end="" if self.tty else "\n", flush=True)
        self.ticker = threading.Thread(target=self.tick, daemon=True)
        self.ticker.start()

    def tick(self):
        while not self.done.wait(0.5):
            now = time.monotonic()
            line = "%s (%.0f s) %s" % (self.head, now - self.started, self.note[:LINE_CHARS])
            if self.tty:
                print("\r\033[K" + line, end="", flush=True)
            elif now - self.told >= TICK_S:
                self.told = now
                print(line, flush=True)

    def end(self, text):
        self.done.set()
        self.ticker.join()
        took = time.monotonic() - self.started
        print("%s%s: %s (%.0f s)" % ("\r\033[K" if self.tty else "", self.head, text, took))


class Beside:
    """A step that runs beside the others from now on; its own turn waits for its end."""

    def __init__(self, step):
        self.note = ""
        self.result = self.error = None
        self.thread = threading.Thread(target=self.run, args=(step,), daemon=True)
        self.thread.start()

    def run(self, step):
        try:
            self.result = step(self)
        except Exception as error:  # raised again in the step's turn
            self.error = error

    def __call__(self, shown):
        while self.thread.is_alive():
            shown.note = self.note
            self.thread.join(0.5)
        if self.error is not None:
            raise self.error
        return self.result


RUNNING = set()


def end_all():
    """End what still runs: a step failed, or the user interrupted."""
    for process in list(RUNNING):
        process.terminate()


def run(shown, command, remedy, environment=None, timeout_s=None):
    """Run a command, its output to the log, its last line on the screen."""
    with open(LOG, "a") as log:
        log.write("\n$ %s\n" % " ".join(map(str, command)))
        try:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=dict(os.environ, **(environment or {})),
                cwd=str(ROOT),
            )
        except OSError as error:
            raise SetupError("%s cannot be run (%s): %s" % (command[0], error, remedy))
        RUNNING.add(process)
        killer = threading.Timer(timeout_s or 3600, process.kill)
        killer.start()
        last = ""
        for line in process.stdout:
            log.write(line)
            if line.strip():
                last = shown.note = line.strip()
        killer.cancel()
        code = process.wait()
        RUNNING.discard(process)
        if code != 0:
            raise SetupError("%s (%s; all of it: %s)" % (remedy, last[:200], LOG))


def make_venv(shown):
    """A venv of this interpreter, or of a faster one of its version unless PYTHON names one; what
    is there already stays, but for a version that is too old."""
    version = "%d.%d" % sys.version_info[:2]
    config = VENV / "pyvenv.cfg"
    if config.exists():
        found = re.search(r"^version\S*\s*=\s*(\d+\.\d+)", config.read_text(), re.M)
        if found and tuple(map(int, found.group(1).split("."))) >= (3, 11) and PYTHON.exists():
            return "kept, Python " + found.group(1)
        shutil.rmtree(str(VENV))
    python, ratio = sys.executable, 1.0
    if not os.environ.get("PYTHON"):
        python, ratio = fastest(sys.executable, of_the_system())
    run(shown, [python, "-m", "venv", VENV], "cannot make a venv: install python3-venv")
    if python == sys.executable:
        return "made, Python " + version
    told = "made, Python %s: %s, %.1f times as fast as %s (PYTHON=%s takes that)"
    return told % (version, python, ratio, sys.executable, sys.executable)


def install_packages(shown):
    """Headwater itself, editable, with everything for development."""
    remedy = "pip could not install the packages: check the network or pip's configuration"
    command = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    run(shown, [*command, "-e", ".[dev]"], remedy)
    return "installed"


def compile_sources(shown):
    """Bytecode of Headwater and of all packages, by every core: pip would take one. A broker's
    start would compile 150 modules each time where Python may not write bytecode
    (PYTHONDONTWRITEBYTECODE, as in many images)."""
    compiling = [PYTHON, "-m", "compileall", "-q", *SOURCE_ROOTS]
    run(shown, compiling, "the sources could not be compiled")
    # Packages carry templates and files of older Pythons: what does not compile is never imported.
    packages = [PYTHON, "-m", "compileall", "-qq", "-j", "0", packages_folder()]
    subprocess.run([str(part) for part in packages], cwd=str(ROOT), check=False)
    return "compiled"


def packages_folder():
    """The folder of the packages in .venv."""
    asked = [str(PYTHON), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def warm_spark(shown):
    """Java is checked; Delta's jars come into .cache/jars, Kafka's tools into .cache/peers."""
    check = "from headwater.local.java import find_java; print(find_java())"
    java = subprocess.run(
        [str(PYTHON), "-c", check], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if java.returncode != 0:
        raise SetupError(java.stderr.strip().splitlines()[-1].split(": ", 1)[-1])
    probe = [str(PYTHON), "-m", "headwater_spark.jars"]
    run(shown, [*probe, JARS], "Delta's jars could not be resolved")
    peers = [PYTHON, ROOT / "bench" / "peers.py"]
    run(shown, peers, "Kafka's own tools, which the tests run, could not be resolved")
    return "ready"


def warm_spark_beside_compiling(shown):
    """`warm_spark`, which mostly waits, while the packages are compiled."""
    compiling = Beside(compile_sources)
    told = warm_spark(shown)
    compiling(shown)
    return told


def find_browser(shown):
    """Chromium for the status page's test: installed where that is easy, else told by the test."""
    if os.environ.get("HEADWATER_CHROMIUM") or any(shutil.which(name) for name in BROWSERS):
        return "found"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "none; the status page's test will say so (install chromium)"
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        run(shown, ["apt-get", "update"], "apt-get update failed", quiet, BROWSER_TIMEOUT_S)
        install = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
        run(shown, install, "chromium not installed", quiet, BROWSER_TIMEOUT_S)
    except SetupError as error:
        return "none; the status page's test will say so (%s)" % str(error)[:120]
    return "installed"


def main():
    """Run the steps."""
    LOG.parent.mkdir(exist_ok=True)
    LOG.write_text("")
    browser = Beside(find_browser)
    steps = [
        ("virtual environment", make_venv),
        ("packages", install_packages),
        ("Java and Spark's jars", warm_spark_beside_compiling),
        ("browser", browser),
    ]
    started = time.monotonic()
    for number, (text, step) in enumerate(steps, start=1):
        shown = Shown(number, text)
        try:
            shown.end(step(shown))
        except SetupError as error:
            shown.end("failed")
            print("setup: %s" % error, file=sys.stderr)
            end_all()
            return 2
        except KeyboardInterrupt:
            shown.end("interrupted")
            end_all()
            return 130
    STAMP.write_text("")
    print("setup: done in %.0f s" % (time.monotonic() - started))
    return 0


if __name__ == "__main__":
    sys.exit(main())
