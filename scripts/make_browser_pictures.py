"""The pictures of docs/serve.md: the real `ouro serve` in headless Chromium, with a scripted model.

    .venv/bin/python -m scripts.make_browser_pictures [FOLDER]     writes docs/pictures/serve-*.png

Run it after a change of the page, and look at the pictures.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from PIL import Image

from scripts.headless_browser import DESKTOP, PHONE, Browser, Page, browser
from scripts.make_pictures import PICTURES, SUITE, program

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from fakes.model_server import Call, ModelServer, Reply  # noqa: E402 - found by the line above
from fakes.ouro_program import BackgroundSessions  # noqa: E402

IN_DOCS = ("serve-list-light", "serve-question-light", "serve-desktop-dark", "serve-screen")
COLOURS = 64

FIX = "the discount of the basket is wrong. Fix it and run the tests"
ASK = "prepare the release"
DONE = "which Python versions do we support?"
ANSWER = (
    'We support **Python 3.11 to 3.13**:\n\n- `pyproject.toml` says `requires-python = ">=3.11"`\n'
    "- the tests run with all three\n"
)


def shop(request):
    """What the scripted model does with each of the tasks."""
    task = next(text for text in (FIX, ASK, DONE) if text in str(request.messages))
    if task == DONE:
        return ANSWER
    if task == ASK:
        question = {"question": "Which version is it?", "choices": ["0.3.0", "1.0.0"]}
        return Reply("", [Call("ask_user", question)])
    match len(request.results):
        case 0:
            return Reply("I read the function first.", [Call("read", {"path": "basket.py"})])
        case 1:
            edit = {
                "old_text": "    return sum(prices) - discount\n",
                "new_text": "    return round(sum(prices) * (1 - discount))\n",
            }
            call = Call("edit", {"path": "basket.py", "edits": [edit]})
            text = (
                "The discount is subtracted as an **amount**; it is a share:\n\n`0.1` means 10 %."
            )
            return Reply(text, [call])
        case 2:
            return Reply("", [Call("shell", {"command": SUITE})])
        case _:
            return "The discount is now a **share of the total**. All tests pass."


async def make(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch, ModelServer(shop) as server:
        ouro = program(server, Path(scratch))
        os.environ.update(ouro.environment)
        sessions = BackgroundSessions(ouro)
        try:
            await asyncio.to_thread(_start_sessions, sessions)
            serving = ouro.begin("serve", "--port", "0")
            link = (await asyncio.to_thread(serving.stdout.readline)).decode().strip()
            async with browser() as running:
                await _pictures(running, link, sessions, folder)
            serving.terminate()
            serving.wait()
        finally:
            ouro.close()


def _start_sessions(sessions: BackgroundSessions) -> None:
    done = sessions.start(DONE)
    sessions.until_state(done, "idle")
    asking = sessions.start(ASK)
    sessions.until_state(asking, "waiting")
    fixing = sessions.start(FIX)
    sessions.until_state(fixing, "waiting")


async def _pictures(
    running: Browser, link: str, sessions: BackgroundSessions, folder: Path
) -> None:
    rows = await asyncio.to_thread(sessions.rows)
    fixing = next(row["id"] for row in rows if row["question"].startswith("edit"))
    for shade in ("light", "dark"):
        phone = await _page(running, link, PHONE, shade)
        await phone.until_shows("needs you", "#list")
        await save(phone, folder, f"serve-list-{shade}")
        await _question(phone, fixing)
        await save(phone, folder, f"serve-question-{shade}")
        desktop = await _page(running, link, DESKTOP, shade)
        await _question(desktop, fixing)
        await save(desktop, folder, f"serve-desktop-{shade}")
    await desktop.click('[data-choice="yes"]')
    await desktop.until_shows(SUITE, "#question pre")
    await _take_answers(desktop)
    await save(desktop, folder, "serve-command-dark")
    await desktop.click('[data-choice="yes"]')
    await desktop.until_shows("All tests pass", "#transcript")
    await save(desktop, folder, "serve-done-dark")
    await phone.until_shows("All tests pass", "#transcript")
    await save(phone, folder, "serve-done-phone-dark")
    await _screen(desktop, link, fixing)
    await save(desktop, folder, "serve-screen")


async def save(page: Page, folder: Path, name: str) -> None:
    """Save a picture with few colours; into the documentation only those that it shows."""
    if folder == PICTURES and name not in IN_DOCS:
        return
    file = await page.picture(folder / f"{name}.png")
    with Image.open(file) as picture:
        few = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(file, optimize=True)


async def _page(running: Browser, link: str, size: tuple[int, int], shade: str) -> Page:
    page = await running.page(size, is_dark=shade == "dark")
    await page.open(link)
    await page.until("!document.getElementById('app').hidden")
    return page


async def _question(page: Page, session: str) -> None:
    await page.run(f"location.hash = 's/{session}'")
    await page.until_shows("Allow?", "#question")
    await _take_answers(page)


async def _take_answers(page: Page) -> None:
    """Wait until the buttons of a new question take an answer."""
    await page.until("!document.querySelector('#question button').disabled")


async def _screen(page: Page, link: str, session: str) -> None:
    await page.open(f"{link.partition('#')[0]}screen#{session}")
    await page.until("document.getElementById('cover').hidden")
    await asyncio.sleep(2.5)  # the canvas is drawn


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    folder.mkdir(exist_ok=True, parents=True)
    asyncio.run(make(folder))


if __name__ == "__main__":
    main()
