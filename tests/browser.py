"""Headless Chromium for tests of pages, driven over a pipe by the DevTools protocol; no other package is needed."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
NEEDED = "Chromium is not installed here (Debian: apt-get install chromium chromium-driver)"
PATIENCE_S = 120.0


class Browser:
    """One page at a time; what it says on the console and asks of the network is kept."""

    def __init__(self, program: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="shoal-chromium-")
        hear, say = _pipe(), _pipe()  # the browser reads from descriptor 3 and writes to 4
        command = ["bash", "-c", f'exec "$@" 3<&{hear[0]} 4>&{say[1]}', "bash", program, *FLAGS,
                   f"--user-data-dir={self._folder}", "about:blank"]  # fmt: skip
        self._process = subprocess.Popen(
            command, pass_fds=(hear[0], say[1]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.close(hear[0])
        os.close(say[1])
        self._to, self._from, self._rest, self._count = hear[1], say[0], b"", 0
        self._session: str | None = None
        self.faults: list[str] = []
        self.requests: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """A command and its answer; events on the way are kept."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                found: dict[str, Any] = answer["result"]
                return found
            self._event(answer)

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE_S
        while b"\0" not in self._rest:
            if time.monotonic() > end or not (piece := os.read(self._from, 1 << 16)):
                raise RuntimeError("Chromium has ended, or says nothing")
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _event(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.faults.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.faults.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.faults.append(str(params["entry"]))
            case "Page.javascriptDialogOpening":
                self.faults.append(f"dialog: {params['message']}")
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])

    def open(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """A file, as wide as a desk or a phone, light or dark. Waits until it has settled."""
        self.faults, self.requests = [], []
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + PATIENCE_S
        while self.run("document.readyState") != "complete" or self.run("location.href") == "about:blank":
            assert time.monotonic() < end, f"{path} did not load"
            time.sleep(0.02)
        self.run("new Promise(requestAnimationFrame)")

    def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def key(self, name: str) -> None:
        """A key is pressed."""
        codes = {"Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, "End": 35, "Home": 36, "Escape": 27}
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=codes[name])

    def move(self, x: float, y: float) -> None:
        """The pointer goes there."""
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def wider_than_the_screen(self) -> bool:
        """Whether the page has to be pushed sideways."""
        return bool(self.run("document.documentElement.scrollWidth > document.documentElement.clientWidth + 1"))

    def picture(self, path: Path, selector: str | None = None) -> None:
        """The whole page, or one part of it, as PNG."""
        clip: dict[str, Any] = {}
        if selector is not None:
            box = self.run(
                f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); "
                "return {x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height, scale: 1} })()"
            )
            clip = {"clip": box}
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, **clip)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        """End it and what it has started."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self._folder, ignore_errors=True)


def _pipe() -> tuple[int, int]:
    """Both ends far from 3 and 4."""
    ends = os.pipe()
    far = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends)
    for end in ends:
        os.close(end)
    return far[0], far[1]


def program() -> str | None:
    """Chromium, if it is here."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextlib.contextmanager
def opened() -> Iterator[Browser]:
    """A browser, or the test that wants one is skipped and says why."""
    found = program()
    if found is None:
        pytest.skip(NEEDED)
    browser = Browser(found)
    try:
        yield browser
    finally:
        browser.close()


def check_page(browser: Browser, page: Path) -> None:
    """At a desk and on a phone, light and dark: silent, self-contained, as wide as the screen, small."""
    assert page.stat().st_size < 3_000_000
    for width in (1280, 390):
        for dark in (False, True):
            browser.open(page, width, dark=dark)
            assert browser.faults == []
            assert browser.requests == [page.resolve().as_uri()]
            assert not browser.wider_than_the_screen()
