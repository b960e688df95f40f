# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for tests, spoken to through a pipe as its developer tools do."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: A machine that is busy with other tests starts a browser slowly.
LONGEST = 120.0


@contextmanager
def chromium(home: Path) -> Iterator[Browser]:
    """A browser that keeps its files in `home`, until the end of the block."""
    program = shutil.which("chromium")
    assert program, "no chromium; tools/packages-test.txt lists what the tests need"
    # It reads its descriptor 3 and writes 4.
    reads, to = os.pipe()
    back, writes = os.pipe()
    command = [
        program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--remote-debugging-pipe", f"--user-data-dir={home}", "about:blank",
    ]  # fmt: skip
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{reads} 4>&{writes}', "bash", *command],
        pass_fds=(reads, writes), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(reads)
    os.close(writes)
    try:
        yield Browser(to, back)
    finally:
        # It ends when nobody speaks to it any more.
        os.close(to)
        os.close(back)
        try:
            process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


class Browser:
    """One page at a time, in a window of a chosen width and a chosen colour scheme.

    `complaints` holds the lines of the page's console, and exceptions that the page did not catch.
    """

    def __init__(self, to: int, back: int) -> None:
        self._to, self._from = to, back
        self._unread = b""
        self._number = 0
        self._session: str | None = None
        self._loaded = False
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def open(self, page: Path, *, width: int = 1000, dark: bool = False) -> None:
        """Loads the page and waits until its scripts have run."""
        self.complaints.clear()
        self._loaded = False
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=800,
                  deviceScaleFactor=1, mobile=width < 500)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._ask("Page.navigate", url=page.resolve().as_uri())
        until = time.monotonic() + LONGEST
        while not self._loaded:
            self._hear(until)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        answer = self._ask("Runtime.evaluate", expression=script, awaitPromise=True,
                           returnByValue=True)  # fmt: skip
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        shot = self._ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + LONGEST
        while True:
            answer = self._hear(until)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])

    def _hear(self, until: float) -> dict[str, Any]:
        """The next message; what the page complains of is kept."""
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser says nothing"
            more = os.read(self._from, 1 << 20)
            assert more, "the browser is gone"
            self._unread += more
        text, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        method = message.get("method")
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
            self.complaints.append(json.dumps(message["params"]))
        return message
