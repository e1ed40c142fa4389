"""Chromium without a window, over its DevTools protocol: pages at given sizes, clicks, pictures."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_TIMEOUT = 60.0
PHONE = (390, 844)
DESKTOP = (1280, 800)


def find_browser() -> str:
    """The program of a browser on this machine; empty if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), "")


class Browser:
    """A running browser. `page` opens a page with its own cookies and storage."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        self._reading = asyncio.create_task(self._read())

    async def page(self, size: tuple[int, int], *, is_dark: bool = False) -> Page:
        """An empty page of this size in pixels; phones have touch, and two dots for a pixel."""
        context = await self.call("Target.createBrowserContext", disposeOnDetach=True)
        target = await self.call(
            "Target.createTarget", url="about:blank", browserContextId=context["browserContextId"]
        )
        attached = await self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"])
        is_phone = size[0] < 600
        await page.call(
            "Emulation.setDeviceMetricsOverride",
            width=size[0], height=size[1], deviceScaleFactor=2 if is_phone else 1, mobile=is_phone,
        )  # fmt: skip
        await page.call("Emulation.setTouchEmulationEnabled", enabled=is_phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await page.call("Emulation.setEmulatedMedia", features=[scheme])
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.call(f"{domain}.enable")
        return page

    async def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        await self._socket.send_json(message | ({"sessionId": session} if session else {}))
        return await answer

    async def _read(self) -> None:
        async for message in self._socket:
            data = json.loads(message.data)
            if "id" in data:
                answer = self._answers.pop(data["id"])
                if "error" in data:
                    answer.set_exception(RuntimeError(str(data["error"])))
                else:
                    answer.set_result(data["result"])
            elif page := self._pages.get(data.get("sessionId", "")):
                page.take(data["method"], data["params"])

    async def close(self) -> None:
        self._reading.cancel()
        await self._socket.close()


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.problems: list[str] = []
        """Errors of scripts, and what the browser has blocked."""
        self.requested: list[str] = []
        """The addresses of all requests."""

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        return await self._browser.call(method, self._session, **params)

    def take(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"])[:2000])
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.problems.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])
            case "Page.javascriptDialogOpening":
                accept = self.call("Page.handleJavaScriptDialog", accept=True)
                self._accepting = asyncio.ensure_future(accept)

    async def open(self, address: str) -> None:
        await self.call("Page.navigate", url=address)

    async def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"])[:800])
        return found["result"].get("value")

    async def until(self, script: str, seconds: float = 60.0) -> Any:
        """Ask until an expression is true; returns it."""
        async with asyncio.timeout(seconds):
            while True:
                with suppress(RuntimeError):  # the page is being replaced
                    if found := await self.run(script):
                        return found
                await asyncio.sleep(0.05)

    async def text(self, selector: str = "body") -> str:
        """What a user reads in the first such element."""
        found = await self.run(f"document.querySelector({json.dumps(selector)})?.innerText || ''")
        return str(found)

    async def until_shows(self, text: str, selector: str = "body", seconds: float = 60.0) -> None:
        inner = f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})"
        try:
            await self.until(inner, seconds)
        except TimeoutError as error:
            shown = await self.text(selector)
            raise AssertionError(f"{text!r} is not shown in {shown!r}; {self.problems}") from error

    async def click(self, selector: str) -> None:
        """Press where the element is, when it can be pressed: with a finger on a phone."""
        find = f"""(() => {{
          const found = document.querySelector({json.dumps(selector)});
          if (!found || found.disabled) return null;
          found.scrollIntoView({{ block: "nearest" }});
          const box = found.getBoundingClientRect();
          const place = [box.x + box.width / 2, box.y + box.height / 2];
          const top = document.elementFromPoint(...place);
          return top && (found === top || found.contains(top)) ? place : null;
        }})()"""
        x, y = await self.until(find)
        for kind in ("mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    async def type(self, selector: str, text: str) -> None:
        await self.click(selector)
        await self.call("Input.insertText", text=text)

    async def press(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    async def picture(self, file: Path) -> Path:
        """Save what is shown as PNG."""
        found = await self.call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(found["data"]))
        return file


@contextmanager
def running_browser() -> Iterator[Path]:
    """Start the browser with a profile of its own; it ends with the block. The file has its address."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                find_browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--no-first-run", "--disable-background-networking", "--disable-component-update",
                "--disable-sync", "--hide-scrollbars", "--remote-debugging-port=0",
                f"--user-data-dir={profile}", "about:blank",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            yield Path(profile) / "DevToolsActivePort"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@asynccontextmanager
async def connected(file: Path) -> AsyncIterator[Browser]:
    """Control a running browser. The pages that were opened are closed with the block."""
    address = await _address(file)
    async with aiohttp.ClientSession() as client:
        running = Browser(await client.ws_connect(address, max_msg_size=0))
        try:
            yield running
        finally:
            await running.close()


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Start the browser with a profile of its own, and control it; it ends with the block."""
    with running_browser() as file:
        async with connected(file) as running:
            yield running


async def _address(file: Path) -> str:
    async with asyncio.timeout(START_TIMEOUT):
        while True:
            with suppress(OSError, ValueError):
                port, path = file.read_text().split()
                return f"ws://127.0.0.1:{port}{path}"
            await asyncio.sleep(0.05)
