"""A real Chromium without a screen, driven by its own driver over plain HTTP (the W3C's WebDriver).

The protocol is JSON on a loopback port, so the client is these lines: a library for it would bring a
program that looks for browsers and drivers to download.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.servers import tool
from tests.e2e.waiting import wait_until

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
# How WebDriver writes the id of an element.
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_ANSWERS_S = 15.0
ENTER = "\ue007"


class Browser:
    """One window. Everything it writes is below ``folder``."""

    def __init__(self, folder: Path) -> None:
        profile = folder / "profile"
        chromium = tool("chromium")
        self._driver = subprocess.Popen(
            [tool("chromedriver"), "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)},
            text=True,
        )
        self._port = self._wait_port()
        options = {"binary": chromium, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        try:
            opened = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._end_driver()
            raise
        self._session = f"/session/{opened['sessionId']}"

    def close(self) -> None:
        """The window, the browser and its driver, by its own pid."""
        try:
            self._ask("DELETE", self._session)
        finally:
            self._end_driver()

    def open(self, page: Path, *, width: int = 1280, height: int = 900, theme: str = "light") -> None:
        """Load a file in a window of this size, for a reader who likes this theme."""
        self._devtools(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        liked = {"name": "prefers-color-scheme", "value": theme}
        self._devtools("Emulation.setEmulatedMedia", {"features": [liked]})
        # What was noted of the page before is nobody's business.
        self.console()
        self.requested()
        self._post("/url", {"url": page.as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """A script's ``return`` value; elements are not among what it returns here."""
        return self._post("/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector: str, place: int = 0) -> None:
        """As a mouse does: what is covered, or not on the page, cannot be clicked."""
        self._post(f"/element/{self._find(selector, place)}/click", {})

    def type(self, selector: str, text: str, place: int = 0) -> None:
        """Focus it and press these keys."""
        self._post(f"/element/{self._find(selector, place)}/value", {"text": text})

    def texts(self, selector: str) -> list[str]:
        """Of all that is seen, as a reader sees it."""
        seen: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])]"
            ".filter((one) => one.getClientRects().length > 0).map((one) => one.innerText.trim());",
            selector,
        )
        return seen

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Until the page is as it should be."""
        wait_until(condition, what, 5.0)

    def console(self) -> list[str]:
        """What the page complained about since the last time."""
        return [entry["message"] for entry in self._post("/se/log", {"type": "browser"})]

    def requested(self) -> list[str]:
        """Every address that the page asked for since the last time."""
        entries = self._post("/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def picture(self, file: Path) -> None:
        """What is seen, as PNG."""
        file.write_bytes(base64.b64decode(self._ask("GET", f"{self._session}/screenshot")))

    def _find(self, selector: str, place: int) -> str:
        using = {"using": "css selector", "value": selector}
        return str(self._post("/elements", using)[place][_ELEMENT])

    def _devtools(self, command: str, parameters: dict[str, Any]) -> None:
        self._post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._ask("POST", f"{self._session}{path}", body)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_ANSWERS_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        assert not (isinstance(answer, dict) and "error" in answer), answer
        return answer

    def _wait_port(self) -> int:
        """Of all free ports it chose one, and says which."""
        assert self._driver.stdout is not None
        for line in self._driver.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                return int(found[1])
        raise AssertionError(f"the driver ended with {self._driver.wait()}")

    def _end_driver(self) -> None:
        self._driver.terminate()
        self._driver.wait(_ANSWERS_S)
        assert self._driver.stdout is not None
        self._driver.stdout.close()
