"""`ouro demo`: the real program at work on a small repair, with a recorded model; then, in a new
session, what it remembered.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, count, repeat
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.assemble import Opener, opener
from ouro.cli import needs_launcher, run_full_screen
from ouro.events import PermissionAsked, Permit
from ouro.frontends.tui.first_frame import LEAVE_SCREEN, can_draw
from ouro.frontends.tui.first_frame_settings import first_frame_settings_of
from ouro.frontends.tui.screen_settings import add_theme_in_use, make_screen_settings
from ouro.llm import ModelSpec, Prices, ScriptedModel, ScriptedReply, call
from ouro.messages import Message, ToolCall, ToolReply, Usage
from ouro.session import OpenRequest
from ouro.session_options import Options
from ouro.settings_sources import load_settings
from ouro.utils.git import Git, GitError
from ouro.utils.log import start_log
from ouro.utils.ouro_paths import tilde
from ouro.utils.sections import replace_fields
from ouro.utils.terminal_parent import continue_in_child

if TYPE_CHECKING:
    from ouro.commands.shell_context import ShellContext
    from ouro.frontends.tui.screen_settings import ScreenSettings

_GIT_SECONDS = 20
_REMOVE_SECONDS = 3.0
PACE = 0.035
"""Seconds between two words: about as fast as a user reads."""
SPEC = ModelSpec("recorded (demo)", window=128_000, prices=Prices(input=0, output=0), thinking=True)
TASK = "The tests of this project fail. Find out why, and fix it."
WISH = "In this shop a price is always a whole number of cents"
FIRST_MESSAGE = f"{TASK}\n\nRemember this, too: {WISH}."
SECOND_MESSAGE = "Add a coffee for 4.50 to a basket. What does the line look like?"
MEMORY_FILE = ".ouro/memory/facts.md"

FILES = {
    "README.md": "# shop\n\nWhat a basket costs. Tests: `python3 -m unittest`\n",
    ".gitignore": "__pycache__/\n",
    "shop/__init__.py": '"""A very small shop."""\n',
    "shop/basket.py": (
        '''"""What a basket costs, in cents."""


class Basket:
    """Things that someone is about to buy."""

    def __init__(self):
        self.lines = []

    def add(self, name, price, count=1):
        self.lines.append((name, price, count))

    def total(self, discount=0):
        """The sum of all lines, less a discount in per cent."""
        total = sum(price for name, price, count in self.lines)
        return total - total * discount // 100
'''
    ),
    "tests/__init__.py": "",
    "tests/test_basket.py": (
        """import unittest

from shop.basket import Basket


class BasketTest(unittest.TestCase):
    def setUp(self):
        self.basket = Basket()
        self.basket.add("tea", 450)
        self.basket.add("cup", 1200, count=2)

    def test_an_empty_basket_costs_nothing(self):
        self.assertEqual(Basket().total(), 0)

    def test_every_piece_is_counted(self):
        self.assertEqual(self.basket.total(), 2850)

    def test_a_discount_is_taken_off_the_sum(self):
        self.assertEqual(self.basket.total(discount=10), 2565)


if __name__ == "__main__":
    unittest.main()
"""
    ),
}
WRONG = "sum(price for name, price, count in self.lines)"
RIGHT = "sum(price * count for name, price, count in self.lines)"

NEXT_STEPS = """\
**To work with ouro yourself it needs a model.** One of these is enough:

- **A key in the environment**: `export ANTHROPIC_API_KEY=…` (or `OPENAI_API_KEY`, `OPENROUTER_API_KEY`,
  `GEMINI_API_KEY` and others), then `ouro`.
- **A model on this machine**: start Ollama, LM Studio, llama.cpp or vLLM; ouro finds it on its usual port.
- **A settings file**: `ouro models --setup` asks, and writes `~/.ouro/models.yaml`; any provider that litellm knows
  can be named there.

`ouro models` lists what can be used, and why the rest cannot.
"""
END = f"""\
The fault was in `shop/basket.py`: `total()` added up the price of each line and forgot how many pieces it has. It now
multiplies by `count`, and all three tests pass. What you said about prices is in `{MEMORY_FILE}`."""
AND_NOW = (
    "Type `/diff` to see the change, `F4` to see the memory. `/exit` closes this session, and opens"
    " a new one: the second act."
)
REMEMBERED = f"""\
You told me in another session, and it is in my prompt now:

> {WISH}

So it is a whole number of cents:

```python
basket.add("coffee", 450)
```

---

That was the real program: its loop, tools, permission question, sessions, memory and screen. Only the model was
recorded: it was given the prompt of a new session, and the line was in it.

{NEXT_STEPS}"""
FORGOT = f"I was told nothing about prices in this project.\n\n{NEXT_STEPS}"
LEAVE = "`/exit` leaves. The folder of this demo is removed then."
BETWEEN = "The session is closed. A new one is opened in the same folder.\n"
REFUSED = f"""\
You said no, so nothing was changed: the tests still fail, and `git status` is clean. That is all there is to it; with
a real model you could now say what you would rather have.

{NEXT_STEPS}"""
LOOK = (
    "**This is a recorded model: nothing leaves this machine.** Everything else that you see is"
    " real.\n\nI will look at the code and its tests first."
)
LOOK_AT = (
    call("glob", pattern="**/*.py"),
    call("read", path="shop/basket.py"),
    call("read", path="tests/test_basket.py"),
)
FAULT = (
    "Two of three fail: 1650 where 2850 is expected. A basket with **two** cups is charged for"
    " **one**: `total()` leaves out `count`. I fix that line; ouro asks you before it changes the"
    " file."
)
KEEP = call("write", path=MEMORY_FILE, content=f"- {WISH}.\n")
FIX = call("edit", path="shop/basket.py", edits=[{"old_text": WRONG, "new_text": RIGHT}])
NOTHING_MORE = f"I am a recording, and know only this one repair.\n\n{NEXT_STEPS}"


def _users_screen_settings() -> ScreenSettings:
    """The screen settings of the user. A session would also save them for the first frame of the
    next start. The demo does not, because it writes nothing into the user's home.
    """
    settings = first_frame_settings_of(load_settings())
    add_theme_in_use(settings.theme)
    return make_screen_settings(settings, Path.cwd())


def demo(context: ShellContext, plain: bool, headless: bool) -> int:
    """Play the demo; returns the exit code. It is not a coroutine: each front end has its own event
    loop.

    Args:
        plain: play it in the front end that prints lines, not on the full screen.
        headless: play it without a user, as `-p` does. So it is played also with `--json`, and if
            there is no terminal.
    """
    screen_settings = _users_screen_settings()
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    is_headless = headless or context.as_json or not has_terminal
    is_plain = plain or not can_draw()
    if not is_headless:
        _start_launcher(is_plain=is_plain)
    with _scratch_project() as project:
        start_log()
        if is_headless:
            return _headless(project, as_json=context.as_json)
        code = _play_acts(project, screen_settings, is_plain=is_plain)
    sys.stdout.write(
        "The demo's folder is removed, and its sessions with it. `ouro models --setup` adds a model; `ouro` begins.\n"
    )
    return code


def _start_launcher(*, is_plain: bool) -> None:
    """Continue in a child, so that the terminal is restored if the demo is killed."""
    if needs_launcher():
        reset = "" if is_plain else LEAVE_SCREEN
        # The demo removes its folder at the end, so no session of it can go on in the background.
        continue_in_child(reset, may_leave=False, killed_text="The demo was killed.\n")


def _play_acts(project: Path, screen_settings: ScreenSettings, *, is_plain: bool) -> int:
    """Run the first session, and the second one if the first was played to its end; returns the exit
    code.
    """
    if is_plain:
        sys.stdout.write(
            "A demo with a recorded model: nothing leaves this machine. Answer the question"
            " with y.\n"
        )
    code = _play(project, FIRST_MESSAGE, screen_settings, is_plain=is_plain)
    if code == 0 and _has_remembered(project):
        sys.stdout.write(BETWEEN)
        code = _play(project, SECOND_MESSAGE, screen_settings, is_plain=is_plain)
    return code


def _play(project: Path, message: str, screen_settings: ScreenSettings, *, is_plain: bool) -> int:
    """Run one session, from a message until the user leaves; returns the exit code."""
    if is_plain:
        from ouro.frontends.plain.repl import run_repl

        return asyncio.run(run_repl(_opener(project, message), OpenRequest(), message))
    return run_full_screen(
        replace_fields(
            screen_settings,
            folder=tilde(project),
            shows_start=False,
            syncs=False,
            is_resumable=False,
        ),
        get_opener=lambda: _opener(project, message),
        get_request=OpenRequest,
        message=message,
    )


def _has_remembered(project: Path) -> bool:
    """Whether the wish is in memory: then the first act was played to its end."""
    file = project / MEMORY_FILE
    return file.exists() and WISH in file.read_text(encoding="utf-8")


@contextmanager
def _scratch_project() -> Iterator[Path]:
    """Make a project to repair, and an ouro home of its own, so that no file of the user is read or
    written.
    """
    top = Path(tempfile.mkdtemp(prefix="ouro-demo-")).resolve()
    home_before = os.environ.get("OURO_HOME")
    os.environ["OURO_HOME"] = str(top / "home")
    try:
        make_project(top / "shop")
        yield top / "shop"
    finally:
        # A terminal that closes sends more than one signal: none of them may end the removal.
        for number in (signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if home_before is None:
            del os.environ["OURO_HOME"]
        else:
            os.environ["OURO_HOME"] = home_before
        _remove(top)


def _remove(top: Path) -> None:
    """Remove a folder, although a process in the background may still write its last file there."""
    ends = time.monotonic() + _REMOVE_SECONDS
    while top.exists() and time.monotonic() < ends:
        shutil.rmtree(top, ignore_errors=True)
        time.sleep(0.05)


def _opener(project: Path, message: str, *, watched: bool = True) -> Opener:
    """Returns a function that opens the session of an act.

    Args:
        message: the first message of the act, by which its recorded model is chosen.
        watched: whether a user watches it on a screen: the model then answers slowly, and says at the
            end how to leave.
    """
    python = "python3" if shutil.which("python3") else shlex.quote(sys.executable)
    test_command = f"{python} -m unittest"
    pace = PACE if watched else 0
    if message == SECOND_MESSAGE:
        model = remembering_model(pace, watched=watched)
    else:
        model = recorded_model(test_command, pace, watched=watched)
    settings = {"permissions.mode": "ask", "permissions.allow": (f"shell({test_command})",)}
    return opener(Options(project, settings, ready_model=model))


def _headless(project: Path, *, as_json: bool) -> int:
    """Run the demo without a screen; returns the exit code. The second act follows only if the first
    one succeeded and its output is text, not JSON.
    """
    sys.stderr.write("ouro: a demo with a recorded model: nothing leaves this machine.\n")
    code = _play_headless(project, FIRST_MESSAGE, as_json=as_json)
    if code == 0 and not as_json and _has_remembered(project):
        sys.stderr.write(f"ouro: {BETWEEN}")
        code = _play_headless(project, SECOND_MESSAGE, as_json=False)
    return code


def _play_headless(project: Path, message: str, *, as_json: bool) -> int:
    """Run one session of the demo, in which every question is answered with yes."""
    from ouro.frontends.headless.headless import HeadlessOptions, Streams, run_headless

    def agree(asked: PermissionAsked) -> Permit:
        sys.stderr.write(f"? {asked.title} — the demo answers: yes\n")
        return Permit("yes")

    sys.stderr.write(f"› {' '.join(message.split())}\n")
    options = HeadlessOptions(message, output="json" if as_json else "text", decide=agree)
    streams = Streams(stdin=None, stdout=sys.stdout, stderr=sys.stderr)
    opens = _opener(project, message, watched=False)
    return asyncio.run(run_headless(opens, request=OpenRequest(), options=options, streams=streams))


def make_project(folder: Path) -> None:
    """Write the program with its fault; in a git repository with one commit, if git is installed."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git = Git(folder, _GIT_SECONDS)
    with suppress(GitError):  # the demo needs no git
        git.change("-c", "init.defaultBranch=main", "init", "-q")
        git.change("add", ".")
        person = (
            "-c",
            "user.name=ouro demo",
            "-c",
            "user.email=demo@localhost",
            "-c",
            "commit.gpgsign=false",
        )
        git.change(*person, "commit", "-q", "-m", "A very small shop")


def recorded_model(test_command: str, pace: float, *, watched: bool) -> ScriptedModel:
    """The model that fixes the program.

    Args:
        test_command: the shell line that runs its tests.
        pace: seconds between two words.
        watched: a user watches, and can continue after the last answer.
    """
    tests = call("shell", command=test_command)
    tokens_read = count(2_100, 350)  # more with each request

    def reply(text: str, *calls: ToolCall, thinking: str = "") -> ScriptedReply:
        """A recorded answer, with as many tokens as such an answer would cost."""
        before = next(tokens_read)
        usage = Usage(
            input=before + 350, cached=before, output=len(text.split()) + 40 * len(calls), cost=0.0
        )
        return ScriptedReply(text, calls, thinking, usage=usage)

    def after_the_fix(messages: Sequence[Message]) -> ScriptedReply:
        """Run the tests, unless the user has refused the fix."""
        results = [*chain.from_iterable(message.parts_of(ToolReply) for message in messages)]
        is_refused = bool(results) and results[-1].failed
        return reply(REFUSED) if is_refused else reply("The tests again:", tests)

    def end_if_refused(answer: ScriptedReply) -> Callable[[Sequence[Message]], ScriptedReply]:
        """A function that returns the recorded answer, or the end of the demo if the user has refused a
        call before.
        """

        def at_this_point(messages: Sequence[Message]) -> ScriptedReply:
            is_refused = any(message.text == REFUSED for message in messages)
            return reply(NOTHING_MORE) if is_refused else answer

        return at_this_point

    script = (
        reply(
            LOOK,
            *LOOK_AT,
            thinking="I do not know the project yet. The module and its test tell most.",
        ),
        reply("Now I run the tests, to see which of them fail.", tests),
        reply(FAULT, FIX, thinking="450 + 1200 = 1650, and 450 + 2 * 1200 = 2850: no count."),
        after_the_fix,
        end_if_refused(reply("All pass. I write down what you said about prices.", KEEP)),
        end_if_refused(reply(f"{END}\n\n{AND_NOW}" if watched else END)),
    )
    return ScriptedModel(chain(script, repeat(lambda _: reply(NOTHING_MORE))), spec=SPEC, pace=pace)


def remembering_model(pace: float, *, watched: bool) -> ScriptedModel:
    """The model of the second act: it repeats what the prompt of its session says about prices, and
    says how to leave the demo if a user watches.
    """

    def answer(messages: Sequence[Message]) -> ScriptedReply:
        """Repeat the wish of the first act if it is in the prompt; otherwise say that it is
        forgotten. A user who watches also reads how to leave the demo.
        """
        prompt = "\n".join(message.text for message in messages if message.role == "system")
        text = REMEMBERED if WISH in prompt else FORGOT
        size = len(prompt) // 4
        usage = Usage(input=size, cached=0, output=len(text.split()), cost=0.0)
        return ScriptedReply(f"{text}\n{LEAVE}" if watched else text.strip(), usage=usage)

    rest = repeat(lambda _: ScriptedReply(NOTHING_MORE))
    return ScriptedModel(chain([answer], rest), spec=SPEC, pace=pace)
