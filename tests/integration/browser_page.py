"""A page in headless Chromium that is driven: keys, clicks, what it logs, how soon it paints.

Speaks the DevTools protocol over a pipe, which needs no library.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from integration.headless_browser import FLAGS, TIMEOUT_S, find_browser

END = b"\0"
WAIT_MS = 20_000
KEYS = {"Enter": ("\r", 13), "Escape": ("", 27)}


class Page:
    """One tab."""

    def __init__(self, read: int, write: int) -> None:
        self._read = os.fdopen(read, "rb")
        self._write = os.fdopen(write, "wb")
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.problems: list[str] = []
        """Errors that the page logged: of scripts, and of its content security policy."""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        found = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """The window, and the colours that the system asks for."""
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Load a page, until its load event."""
        self._ask("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def wait(self, condition: str) -> None:
        """Until a condition in JavaScript holds, on this page or the next."""
        script = (
            f"new Promise((done) => {{ const end = Date.now() + {WAIT_MS}; const look = () => {{"
            f" if ({condition}) done(true); else if (Date.now() > end) done(false);"
            " else setTimeout(look, 20); }; look(); })"
        )
        for _ in range(50):  # a page that goes away takes its promise along
            reply = self._raw("Runtime.evaluate", expression=script, awaitPromise=True)
            value = reply.get("result", {}).get("result", {}).get("value")
            if value is not None:
                assert value, f"never: {condition}\n{self.text()}"
                return
        raise AssertionError(f"never: {condition}")

    def value(self, expression: str) -> Any:
        """The value of an expression."""
        found = self._ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self) -> str:
        """What the page shows."""
        return str(self.value("document.body.innerText"))

    def type(self, text: str) -> None:
        """Type letters where the focus is."""
        for letter in text:
            self._ask("Input.dispatchKeyEvent", type="keyDown", key=letter, text=letter)
            self._ask("Input.dispatchKeyEvent", type="keyUp", key=letter)

    def press(self, key: str) -> None:
        """Press Enter or Escape."""
        text, code = KEYS[key]
        row: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code}
        if text:
            row["text"] = text
        self._ask("Input.dispatchKeyEvent", type="keyDown", **row)
        self._ask("Input.dispatchKeyEvent", type="keyUp", **row)

    def click(self, selector: str) -> None:
        """Click the first element of a selector."""
        self.value(f"document.querySelector({json.dumps(selector)}).click()")

    def picture(self, path: Path) -> None:
        """A PNG of the window."""
        found = self._ask("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))

    def _ask(self, method: str, **params: Any) -> Any:
        reply = self._raw(method, **params)
        assert "error" not in reply, reply
        return reply["result"]

    def _raw(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + END)
        self._write.flush()
        while True:
            reply = self._next()
            if reply.get("id") == self._number:
                return reply
            self._note(reply)

    def _next(self) -> dict[str, Any]:
        while END not in self._rest:
            block = self._read.read1(65_536)
            assert block, "the browser ended"
            self._rest += block
        line, _, self._rest = self._rest.partition(END)
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        if event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url')}")

    def close(self) -> None:
        """End the pipes, and with them the browser."""
        self._write.close()
        self._read.close()


@contextmanager
def browser_page(profile: Path) -> Iterator[Page]:
    """A browser of its own, with one tab."""
    to_browser, ours = os.pipe()
    read, write = os.pipe()
    command = [find_browser(), *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
    # The browser reads from descriptor 3 and writes to 4.
    shell = ["sh", "-c", f'exec "$@" 3<&{to_browser} 4>&{write}', "sh", *command]
    with subprocess.Popen(
        shell, pass_fds=(to_browser, write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        os.close(to_browser)
        os.close(write)
        page = Page(read, ours)
        try:
            yield page
        finally:
            page.close()
            try:
                process.wait(TIMEOUT_S / 9)
            except subprocess.TimeoutExpired:
                process.kill()
