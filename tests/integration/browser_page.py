"""A page in headless Chromium that stays open: streams, clicks, dark mode, widths, pictures.

    with open_page(tmp_path / "profile", width=400, dark=True) as page:
        page.go("http://127.0.0.1:8085/")
        page.wait("document.body.dataset.seen === 'yes'")
        page.run("document.querySelector('button').click()")
        page.picture(tmp_path / "page.png")

It speaks Chromium's DevTools protocol over a pair of pipes, so a page whose stream of events never
ends can be looked at: with `--virtual-time-budget` its time would not pass.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from integration.headless_browser import FLAGS, find_browser

READ_BYTES = 1 << 20
WAIT_S = 20.0
POLL_S = 0.05
HEIGHT = 900


class BrowserPage:
    """One tab of a browser."""

    def __init__(self, requests: int, answers: int) -> None:
        """The file descriptors that commands are written to, and answers read from."""
        self._requests = requests
        self._answers = answers
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.problems: list[str] = []
        """What the page's scripts raised, and what its console has as errors."""

    def attach(self) -> None:
        """Open the tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """One command of the protocol; its result."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._requests, json.dumps(command).encode() + b"\0")
        while (told := self._next()).get("id") != self._number:
            self._note(told)
        assert "error" not in told, f"{method}: {told['error']}"
        return told["result"]

    def _next(self) -> Any:
        while b"\0" not in self._rest:
            data = os.read(self._answers, READ_BYTES)
            assert data, "the browser has ended"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, told: Any) -> None:
        if told.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(told["params"]["exceptionDetails"])[:2000])
        if told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
            self.problems.append(told["params"]["entry"]["text"])

    def shape(self, width: int, height: int = HEIGHT, *, dark: bool = False) -> None:
        """The window's size, and the colour scheme that the user prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def go(self, url: str) -> None:
        """Load a page."""
        found = self.call("Page.navigate", url=url)
        assert not found.get("errorText"), f"{url}: {found['errorText']}"
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def type(self, text: str) -> None:
        """Type letters where the focus is."""
        for letter in text:
            self.call("Input.dispatchKeyEvent", type="keyDown", key=letter, text=letter)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=letter)

    def press(self, key: str) -> None:
        """Press a key that writes nothing, such as Escape."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def wait(self, condition: str, timeout_s: float = WAIT_S) -> None:
        """Until an expression is true in the page."""
        deadline_s = time.monotonic() + timeout_s
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < deadline_s, f"{condition}: not so. {self.problems}"
            time.sleep(POLL_S)

    def text(self, selector: str) -> str:
        """The text of the first element."""
        found = self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return str(found)

    def is_wider_than_window(self) -> bool:
        """True when one has to scroll sideways."""
        return bool(self.run("document.documentElement.scrollWidth > innerWidth"))

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """A PNG of the page, of all of it or of what the window shows."""
        if not whole:
            found = self.call("Page.captureScreenshot")
        else:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            found = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def open_page(profile: Path, width: int = 1280, *, dark: bool = False) -> Iterator[BrowserPage]:
    """A tab in a browser of its own, which ends with the block."""
    command_out, command_in = os.pipe()
    answer_out, answer_in = os.pipe()
    # Chromium reads commands from its descriptor 3 and answers on 4.
    launch = f'exec "$0" "$@" 3<&{command_out} 4>&{answer_in}'
    browser = subprocess.Popen(
        [
            *("bash", "-c", launch, find_browser(), *FLAGS),
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ],
        pass_fds=(command_out, answer_in),
        stderr=subprocess.DEVNULL,
    )
    os.close(command_out)
    os.close(answer_in)
    try:
        page = BrowserPage(command_in, answer_out)
        page.attach()
        page.shape(width, dark=dark)
        yield page
    finally:
        os.close(command_in)  # at the end of its commands the browser ends
        os.close(answer_out)
        try:
            browser.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()
