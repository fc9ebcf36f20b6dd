# SPDX-License-Identifier: Apache-2.0
"""A browser without a window, driven by the DevTools protocol over a pair of pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ANSWER_SECONDS = 60
READY_SECONDS = 120


def find_browser() -> str | None:
    """The program of SPDKFAC_BROWSER, or else the first browser that is found."""
    chosen = os.environ.get("SPDKFAC_BROWSER")
    return chosen or next(filter(None, map(shutil.which, BROWSERS)), None)


class Browser:
    """One browser with one tab. What the page complains about gathers in `complaints`."""

    def __init__(self, program: str) -> None:
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        # The browser reads commands from descriptor 3 and writes answers to 4. Ours move out of
        # the way first, or one copy would overwrite the other.
        to_browser, from_browser = self.moved(to_browser), self.moved(from_browser)

        def connect() -> None:
            os.dup2(to_browser, 3)
            os.dup2(from_browser, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=connect, pass_fds=(3, 4, to_browser, from_browser), start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.next_id = 0
        self.session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    @staticmethod
    def moved(descriptor: int) -> int:
        higher = os.dup(descriptor)
        spare = [higher]
        while spare[-1] < 10:
            spare.append(os.dup(descriptor))
        for number in (descriptor, *spare[:-1]):
            os.close(number)
        return spare[-1]

    def close(self) -> None:
        for number in (self.write_end, self.read_end):
            os.close(number)
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.profile.cleanup()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def receive(self, deadline: float) -> dict:
        while b"\0" not in self.buffer:
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self.read_end], [], [], left)
            chunk = os.read(self.read_end, 1 << 20) if ready else b""
            if not chunk:
                raise RuntimeError("the browser has ended" if ready else "the browser is silent")
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def notice(self, message: dict) -> None:
        """Keeps what is an error for the page, and what it loads."""
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description")
                                   or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.complaints.append(" ".join(str(argument.get("value", argument.get("description")))
                                            for argument in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def call(self, method: str, **parameters: object) -> dict:
        self.next_id += 1
        command = {"id": self.next_id, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        data = json.dumps(command).encode() + b"\0"
        while data:
            data = data[os.write(self.write_end, data):]
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            message = self.receive(deadline)
            if message.get("id") == self.next_id:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.notice(message)

    def evaluate(self, expression: str) -> object:
        """The value of an expression in the page; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def window(self, width: int, height: int, scheme: str = "light") -> None:
        """The size of the window, and what the system says of light and dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def mouse(self, kind: str, x: float, y: float, **more: object) -> None:
        """Moves, presses or releases the mouse."""
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **more)

    def drag(self, x: float, y: float, distance: float) -> None:
        """Draws the mouse to the right with its button held."""
        self.mouse("Pressed", x, y, button="left", clickCount=1)
        for step in range(1, 11):
            self.mouse("Moved", x + step * distance / 10, y, button="left")
        self.mouse("Released", x + distance, y, button="left", clickCount=1)

    def wait(self, condition: str) -> None:
        """Until an expression holds in the page."""
        deadline = time.monotonic() + READY_SECONDS
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise RuntimeError(f"in {READY_SECONDS} s never: {condition}; {self.complaints}")
            time.sleep(0.1)

    def open(self, page: Path) -> None:
        """Opens a page and waits until its charts are drawn."""
        self.complaints.clear()
        self.requests.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """A picture of the whole page, or of what the window shows."""
        more = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            more = {"captureBeyondViewport": True,
                    "clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"],
                             "scale": 1}}
        answer = self.call("Page.captureScreenshot", format="png", **more)
        path.write_bytes(base64.b64decode(answer["data"]))
