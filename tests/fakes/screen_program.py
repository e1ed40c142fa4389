"""The full screen on a fake session, as a program that tests run in a pseudo-terminal.

    python -m fakes.screen_program SCENARIO FOLDER

Calls of the session are written to FOLDER/calls as JSON lines, so that tests can wait for them.
"""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import termios
import threading
from pathlib import Path

from ouro.frontends.tui import first_frame
from ouro.frontends.tui.screen_settings import ScreenSettings

if __name__ == "__main__":
    SCENARIO, FOLDER = sys.argv[1], Path(sys.argv[2])
    LOOK = ScreenSettings(
        "auto" if SCENARIO in ("auto", "late") else "dark",
        version="0.1.0",
        folder="/project",
        mouse=SCENARIO != "no mouse",
    )
    if not first_frame.can_draw():
        raise SystemExit("no full screen here")
    if SCENARIO == "broken":
        sys.modules["ouro.frontends.tui.first_frame_prompt"] = None  # its import fails
    FRAME = first_frame.draw(LOOK)
    if SCENARIO == "fails":
        FRAME.restore()
        raise SystemExit("it failed")
    if SCENARIO in ("slow", "held"):
        threading.Event().wait(0.4 if SCENARIO == "slow" else None)
    if SCENARIO == "late":
        take_keys = FRAME.take_keys

        def take_keys_after_the_answer():
            (FOLDER / "made").touch()
            while FRAME.settings.theme == "auto":
                threading.Event().wait(0.01)
            return take_keys()

        FRAME.take_keys = take_keys_after_the_answer

from fakes.fake_session import FakeSession, Wait, says
from ouro.display import CommandOutput, Display
from ouro.events import PermissionAsked, TextDelta
from ouro.frontends.tui.full_screen import run_tui
from ouro.messages import ToolCall
from ouro.session import OpenRequest


class RecordingSession(FakeSession):
    def __init__(self, turns, file, **options):
        super().__init__(turns, **options)
        self.file = file
        self.background.kill_lines = kill_children

    def record(self, **what):
        with self.file.open("a") as file:
            file.write(json.dumps(what) + "\n")

    def send(self, text, images=()):
        self.record(sent=text, before_textual="textual.app" not in sys.modules)
        return super().send(text, images)

    def answer(self, question_id, answer):
        self.record(answered=question_id)
        super().answer(question_id, answer)

    async def close(self, on_released=None):
        self.record(closed=True)
        if SCENARIO == "hangs":
            await asyncio.sleep(60)
        if on_released is not None:
            await on_released()


children: list[subprocess.Popen] = []


def kill_children():
    for child in children:
        child.kill()
        child.wait()


def noisy(text):
    print("printed noise")
    sys.stderr.write("stderr noise\n")
    os.write(2, b"raw noise\n")
    logging.getLogger("library").warning("logged noise")
    thread = threading.Thread(target=lambda: print("thread noise"))
    thread.start()
    thread.join()
    return says("quiet here")


def with_child(text):
    children.append(subprocess.Popen(["sleep", "1000"]))
    (FOLDER / "child").write_text(str(children[-1].pid))
    return [TextDelta("at work"), Wait()]


def streaming(text):
    return [item for number in range(300) for item in (TextDelta(f"word{number} "), Pause())]


def flooding(text):
    # More than a terminal holds that nobody reads: the next frame waits.
    threading.Thread(target=os.write, args=(1, bytes(300_000)), daemon=True).start()
    for number in range(120):
        yield TextDelta(f"word{number}\n\n")
        yield Pause(0.05)  # a frame is drawn meanwhile
    with (FOLDER / "calls").open("a") as file:
        file.write(json.dumps({"flooded": True}) + "\n")
    yield TextDelta("the end of it")


class Pause(Wait):
    """A very short wait."""

    def __init__(self, seconds=0.005):
        event = asyncio.Event()
        object.__setattr__(self, "until", event)
        asyncio.get_running_loop().call_later(seconds, event.set)


CALL = ToolCall("c1", "shell", {})
COMMAND = CommandOutput("rm -r build" + " " * 5000 + "\x1b[31m\u202e; curl evil")
ASKS = [PermissionAsked("q1", CALL, "shell", Display("", COMMAND), "it deletes", "shell(rm *)")]
TURNS = {
    "plain": [says("the answer"), says("the second answer")],
    "noisy": [noisy],
    "child": [with_child],
    "hangs": [with_child],
    "stream": [streaming],
    "flood": [flooding],
    "asks": [ASKS],
}


async def open_session(request):
    file = FOLDER / "calls"
    session = RecordingSession(
        TURNS.get(SCENARIO, TURNS["plain"]), file, session_id="0d9f3c52-aaaa"
    )
    session.record(opened=True)
    return session


def resize_while_the_size_is_read():
    """Change the size a second time, after a width of 60 was read."""
    from textual.drivers.linux_driver import LinuxDriver

    read = LinuxDriver._get_terminal_size

    def read_and_resize(self):
        size = read(self)
        if size[0] == 60:
            termios.tcsetwinsize(0, (24, 80))
            (FOLDER / "resized").touch()
        return size

    LinuxDriver._get_terminal_size = read_and_resize


def continue_while_it_continues():
    """Send the signal a second time while the first one is handled. A thread receives it: the main
    thread may have blocked it.
    """
    from textual.drivers.linux_driver import LinuxDriver

    wanted, waiting = threading.Event(), threading.Event()

    def send():
        wanted.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGCONT)
        waiting.set()

    start = LinuxDriver.start_application_mode

    def start_and_continue(self):
        if self._must_signal_resume:
            wanted.set()
            waiting.wait()
        start(self)

    threading.Thread(target=send, daemon=True).start()
    LinuxDriver.start_application_mode = start_and_continue


if __name__ == "__main__":
    from ouro.utils.log import start_log

    start_log()
    if SCENARIO == "resized":
        resize_while_the_size_is_read()
    if SCENARIO == "continued twice":
        continue_while_it_continues()
    raise SystemExit(run_tui(open_session, OpenRequest(), "", FRAME))
